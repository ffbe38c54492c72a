"""Runs as ``consist import FILE`` and, with --request, as the reader behind the program's ``--from FILE``."""
from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from typing import Any, Dict, List, Optional

from .formats import read_file
from .messages import DataError, UsageError, printable
from .models import PRESETS
from .target import Context, Sizes, Target
from .toml import to_toml

VERSION = 1
_LEFT_OPEN = ("model", "ranks")  # options that a file may leave open


def main(words: Optional[List[str]] = None) -> int:
    """Runs the command with these words (without them those of the process) and returns the exit status."""
    words = sys.argv[1:] if words is None else words
    try:
        return _answer() if words == ["--request"] else _import(words)
    except (UsageError, DataError) as error:
        # The program says its own name before what it passes on.
        print(("" if words == ["--request"] else "consist: ") + printable(str(error)), file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _document(target: Target) -> Dict[str, Any]:
    return {"version": VERSION, "format": target.source.format, "options": target.options,
            "stated": sorted(target.stated), "notes": target.notes()}


def _answer() -> int:
    """Reads a request from standard input and writes the reply to standard output, both JSON."""
    request = json.load(sys.stdin)
    sizes = request.get("sizes")
    context = Context(given=request["given"], replacements=request["set"], each_key=request["each_key"],
                      sizes=Sizes(sizes["layers"], sizes["experts"]) if sizes else None)
    json.dump(_document(read_file(request["file"], context)), sys.stdout)
    return 0


def _import(words: List[str]) -> int:
    parser = argparse.ArgumentParser(prog="consist import", description="Writes what a file of another trainer states "
                                     "as a file of Consist's own, with each key as a comment (docs/readers.md).")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="replaces a value of the file")
    parser.add_argument("--model", metavar="NAME", help="the model, where the file leaves it open")
    parser.add_argument("--ranks", metavar="N", type=int, help="the number of ranks, where the file leaves it open")
    parser.add_argument("--output", metavar="FILE", help="file to write; without it standard output")
    parser.add_argument("--overwrite", action="store_true", help="replace the output if it exists")
    parser.add_argument("--notes", action="store_true", help="say what became of each key on standard error, too")
    parser.add_argument("--json", action="store_true", help="write JSON instead of TOML")
    given = parser.parse_args(words)
    options = {name: str(value) for name, value in vars(given).items() if name in _LEFT_OPEN and value is not None}
    context = Context(given=options, sizes=PRESETS.get(given.model), replacements=given.set, each_key=given.notes)
    target = read_file(given.file, context)
    target.options.update(options)
    for line in target.notes():
        print(printable(line), file=sys.stderr)
    text = json.dumps({**_document(target), "keys": [vars(entry) for entry in target.entries]}, indent=2) + "\n" \
        if given.json else to_toml(target)
    if given.output:
        _write(given.output, text, given.overwrite)
    else:
        sys.stdout.write(text)
    return 0


def _write(path: str, text: str, overwrite: bool) -> None:
    """Writes the file whole or not at all."""
    if os.path.exists(path) and not overwrite:
        raise UsageError(f"--output {path} exists; --overwrite replaces it")
    try:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=os.path.dirname(path) or ".", delete=False) as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        os.replace(file.name, path)
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror}") from error


if __name__ == "__main__":
    sys.exit(main())
