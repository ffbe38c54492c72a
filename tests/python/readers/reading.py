"""Reads texts as files of other trainers, for the tests of readers.

With CONSIST_READER_CASES=FOLDER each read is written there as well, for comparisons with another version of the readers.
"""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Optional, Sequence

import pytest

from consist.readers.formats import read_file
from consist.readers.messages import DataError, UsageError
from consist.readers.target import Context, Sizes, Target

TINY = Sizes(4)  # of llama-tiny


class Reading:
    """Reads texts in a folder of its own, with a note for each key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, text: str, *replacements: str, name: str = "file", sizes: Optional[Sizes] = None, each_key: bool = True,
             **given: object) -> Target:
        """The target of a file; given options are named with _ for - and __ for a dot."""
        path = self.folder / name
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
        options = {key.replace("__", ".").replace("_", "-"): str(value) for key, value in given.items()}
        if "CONSIST_READER_CASES" in os.environ:
            folder = Path(os.environ["CONSIST_READER_CASES"])
            number = sum(1 for _ in folder.glob("*.json"))
            (folder / f"{number:04}.json").write_text(json.dumps([name, text, replacements, options, bool(sizes)]))
        if "model" in options and sizes is None:
            sizes = TINY
        return read_file(str(path), Context(options, sizes, replacements, each_key))

    def refused(self, text: str, *messages: str, replacements: Sequence[str] = (), **given: object) -> str:
        """What is said of a file that is refused: all of `messages`, in a text that people can read."""
        with pytest.raises((UsageError, DataError)) as refusal:
            self.read(text, *replacements, **given)  # type: ignore[arg-type]
        said = str(refusal.value)
        for message in messages:
            assert message in said
        assert len(said) < 2000
        return said
