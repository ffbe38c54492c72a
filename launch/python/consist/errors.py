"""Exceptions of the package. All of them are a ``ConsistError``."""
from __future__ import annotations

from typing import Sequence


class ConsistError(Exception):
    """Base of this package's exceptions."""


class ProgramNotFoundError(ConsistError):
    """The executable ``consist`` was not found; the message lists the places that were searched."""


class ProgramError(ConsistError):
    """A command of the program failed.

    ``message`` is the program's own, ``status`` its exit status (negative: it was ended by that signal), ``command``
    the words that started it, ``log`` the end of what it wrote to standard error.
    """

    def __init__(self, message: str, status: int, command: Sequence[str] = (), log: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.command = tuple(command)
        self.log = log

    def __str__(self) -> str:
        return f"{self.message} (exit status {self.status})"


class UsageError(ProgramError):
    """The program refused its options before anything started (exit status 2)."""


class WaitTimeoutError(ConsistError, TimeoutError):
    """A wait took longer than the caller allowed. The run goes on."""


class ArchiveError(ConsistError):
    """A file is no archive, or lacks what was asked for."""


class MissingPackageError(ConsistError, ImportError):
    """An optional package of Python is needed and is not installed."""


def missing_package(name: str, purpose: str, extra: str = "") -> MissingPackageError:
    """Returns the exception that says which package is missing, what needs it, and how to install it."""
    ways = f"pip install {name}" + (f", or pip install 'consist[{extra}]'" if extra else "")
    return MissingPackageError(f"{purpose} needs the package {name}, which is not installed here: {ways}", name=name)
