"""Processes of the program: their lines as they come, their end, and the end of all that they started."""
from __future__ import annotations

import atexit
import collections
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import IO, Any, Callable, Deque, Dict, Mapping, Optional, Sequence, Union

from . import _program
from .errors import ConsistError, ProgramError, UsageError, WaitTimeoutError

Folder = Union[str, "os.PathLike[str]", None]
STATUS_USAGE = 2
_KEPT_LINES = 10_000  # of standard error
_LIFELINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_lifeline.py")
_living: "weakref.WeakSet[Process]" = weakref.WeakSet()


class Process:
    """A command of the program that prints a line of JSON for each thing that happens.

    A thread reads the lines, so that the program never waits for its reader; ``on_line`` is called there. The process
    has a group of its own, which ends with it.
    """

    def __init__(self, arguments: Sequence[str], on_line: Callable[[Dict[str, Any]], None],
                 on_end: Callable[["Process"], None], folder: Folder = None,
                 variables: Optional[Mapping[str, str]] = None, shows_log: bool = False) -> None:
        self.program = _program.find()
        self.command = [self.program, *arguments]
        self.status: Optional[int] = None
        self._log: Deque[str] = collections.deque(maxlen=_KEPT_LINES)
        self._log_lock = threading.Lock()
        self._ended = threading.Event()
        self._shows_log = shows_log
        self._popen = _start(self.command, folder, variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        _living.add(self)
        out = threading.Thread(target=self._read_lines, args=(self._popen.stdout, on_line), daemon=True)
        err = threading.Thread(target=self._read_log, args=(self._popen.stderr,), daemon=True)
        for thread in (out, err):
            thread.start()
        threading.Thread(target=self._reap, args=((out, err), on_end), daemon=True).start()

    @property
    def log(self) -> str:
        """The end of the standard error so far."""
        with self._log_lock:
            return "".join(self._log)

    @property
    def is_running(self) -> bool:
        """True until the process and its group have ended and every line was read."""
        return not self._ended.is_set()

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits for the end; raises WaitTimeoutError."""
        if not self._ended.wait(timeout):
            raise WaitTimeoutError(f"consist {self.command[1]} still runs after {timeout:g} s; it was not ended")

    def stop(self, timeout: float) -> None:
        """Asks for an end in good order, to which a run comes after its step. Kills the group after `timeout` s."""
        for number, seconds in ((signal.SIGINT, timeout), (signal.SIGKILL, 10.0)):
            if self._ended.is_set():
                return
            self._signal(number)
            if self._ended.wait(seconds):
                return
        raise ConsistError(f"process {self._popen.pid} does not end, although it was killed")

    def _signal(self, number: int) -> None:
        """Signals the group. Until the process is reaped, no other group can have its number."""
        try:
            os.killpg(self._popen.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # it is about to be reaped

    def _read_lines(self, stream: IO[bytes], on_line: Callable[[Dict[str, Any]], None]) -> None:
        with stream:
            for line in stream:
                try:
                    value = json.loads(line)
                except ValueError:
                    value = None
                if isinstance(value, dict):
                    on_line(value)
                else:
                    self._keep(line.decode(errors="replace"))  # nothing that the program prints is lost

    def _read_log(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._keep(line.decode(errors="replace"))

    def _keep(self, line: str) -> None:
        with self._log_lock:
            self._log.append(line)
        if self._shows_log:
            print(line, end="", file=sys.stderr, flush=True)

    def _reap(self, readers: Sequence[threading.Thread], on_end: Callable[["Process"], None]) -> None:
        os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOWAIT)
        self._signal(signal.SIGKILL)  # what it left behind; the process itself has ended
        for reader in readers:
            reader.join(10)
        self.status = self._popen.wait()
        try:
            on_end(self)
        finally:
            self._ended.set()


def failure(status: int, command: Sequence[str], log: str, message: Optional[str] = None) -> ProgramError:
    """Returns the exception for a command that failed, with the program's own message."""
    if message is None:
        message = _message_in(log)
    if message is None:
        message = f"the program was ended by signal {-status}" if status < 0 else f"consist {command[1]} failed"
    kind = UsageError if status == STATUS_USAGE else ProgramError
    return kind(message, status, command, log)


def answer(arguments: Sequence[str], time_limit: Optional[float], good: Sequence[int] = (0,),
           folder: Folder = None) -> str:
    """Runs a command to its end and returns what it printed.

    Raises ProgramError for an exit status that is not ``good``, and WaitTimeoutError after ``time_limit`` seconds, when
    the command is ended.
    """
    command = [_program.find(), *arguments]
    with _start(command, folder, None, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            out, err = process.communicate(timeout=time_limit)
        except subprocess.TimeoutExpired:
            _end(process)
            raise WaitTimeoutError(f"consist {command[1]} took longer than {time_limit:g} s and was ended") from None
        except BaseException:
            _end(process)
            raise
    text, log = out.decode(errors="replace"), err.decode(errors="replace")
    error = _error_in(text)
    # A status that may be good is a failure after all where nothing but a message was printed.
    if error is None and process.returncode in good and (not process.returncode or text.lstrip()[:1] in ("{", "[")):
        return text
    raise failure(process.returncode, command, log, error or _told(log) or log.strip() or text.strip() or None)


def document(arguments: Sequence[str], time_limit: Optional[float], good: Sequence[int] = (0,),
             folder: Folder = None) -> Any:
    """Runs a command that prints one document of JSON, and returns it. Raises what answer() raises."""
    text = answer(arguments, time_limit, good, folder)
    try:
        return json.loads(text)
    except ValueError:
        raise ConsistError(f"consist {arguments[0]} printed no JSON: {text[:200]!r}; is {_program.find()} older than "
                           "this package?") from None


def _start(command: Sequence[str], folder: Folder, variables: Optional[Mapping[str, str]],
           **streams: Any) -> "subprocess.Popen[bytes]":
    environment = {**_program.environment(), **(variables or {})}
    words = list(command)
    # The signal comes when the thread ends that started the process: those of other threads do without.
    if sys.executable and threading.current_thread() is threading.main_thread():
        words = [sys.executable, "-I", "-S", _LIFELINE, str(os.getpid()), *words]
    try:
        return subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, start_new_session=True,
                                **streams)
    except OSError as error:
        raise ConsistError(f"{command[0]} cannot be started: {error.strerror}") from error


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kills the group of a process that has not been reaped."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def _error_in(text: str) -> Optional[str]:
    """The message of the line by which a command of JSON says that it failed (docs/json.md)."""
    if not text.startswith('{"event":"error"'):
        return None
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError):
        return None


def _message_in(log: str) -> Optional[str]:
    """The program's message, else the last line that it wrote."""
    lines = log.splitlines()
    return _told(log) or (lines[-1].strip() if lines else None)


def _told(log: str) -> Optional[str]:
    """The program's message: the lines from the last one that begins with its name on."""
    lines = log.splitlines()
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].startswith("consist: "):
            return "\n".join([lines[index][len("consist: "):], *lines[index + 1:]]).strip()
    return None


@atexit.register
def _stop_living() -> None:
    """Ends the runs that go on when Python ends."""
    end = time.monotonic() + 20
    for process in list(_living):
        if process.is_running:
            process.stop(max(0.1, end - time.monotonic()))
