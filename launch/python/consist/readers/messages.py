"""Texts of messages: values and names of a file, fit for a terminal, and the two exceptions that readers raise."""
from __future__ import annotations

import json
import math
import re
from typing import Any, Iterable

_MOST = 200
# Control characters but newlines and tabs, marks that turn the direction of writing, line separators.
_MOVES_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_SURROGATE = re.compile("[\ud800-\udfff]")


class UsageError(Exception):
    """A file asks for something that is not done here, or the request is wrong. Exit status 2."""


class DataError(Exception):
    """A file cannot be read, or is not what it looks like. Exit status 1."""


def printable(text: str) -> str:
    """Escapes what a terminal would act on; bytes that were no UTF-8 (Python reads surrogates) become \\xff."""
    text = _MOVES_TEXT.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
    return _SURROGATE.sub(lambda found: f"\\x{ord(found.group()) & 0xff:02x}", text)


def one_line(text: str) -> str:
    """The text as printable() has it, on one line."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def in_quotes(text: str, most: int = _MOST) -> str:
    """A name for a message: quoted, on one line, cut after `most` characters."""
    cut = text[:most].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{printable(cut)}"' + ("..." if len(text) > most else "")


def shown(value: Any, most: int = _MOST) -> str:
    """A value for a message: as JSON on one line, keys sorted, cut after `most` characters."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return printable(text[:most] + "..." if len(text) > most else text)


def as_text(value: Any) -> str:
    """A value as an option takes it: numbers whole where they are, with the fewest digits that read as the same."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if not isinstance(value, float):
        return str(value)
    if math.isfinite(value) and value == math.floor(value) and abs(value) < 1e15:
        return str(int(value))
    short = f"{value:.6g}"
    return short if float(short) == value else f"{value:.17g}"


def same(left: Any, right: Any) -> bool:
    """Compares as JSON does: 1 is 1.0, and neither is true."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def listed(words: Iterable[object]) -> str:
    """The words with commas between."""
    return ", ".join(map(str, words))
