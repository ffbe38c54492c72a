"""Trees of JSON, TOML and YAML from outside, within limits of size and depth, and the guess which of them a text is."""
from __future__ import annotations

import json
import math
import os
import re
import stat
import sys
from typing import Any, Dict, List, NoReturn, Optional, Tuple, Union

from .messages import DataError, UsageError, in_quotes, printable

MOST_BYTES = 1 << 20
MOST_DEPTH = 32
MOST_VALUES = 100_000


def read_text(path: str, most: int = MOST_BYTES) -> str:
    """The text of a regular file. Bytes that are no UTF-8 are surrogates. Raises DataError."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise DataError(f"{path} is no regular file")
        with open(path, "rb") as file:
            content = file.read(most + 1)
            size = os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > most:
        raise DataError(f"{path} has {max(size, len(content))} bytes, more than the {most} that such a file may have")
    return content.decode("utf-8", "surrogateescape")


# Recognition

_REMARK = ("#", "//", '"""', "/*")
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def syntax_of(text: str) -> str:
    """Guesses "json", "toml", "yaml", "script", "python" or '' from the first lines that are no comments."""
    if text.startswith("#!"):
        return "python" if "python" in text.partition("\n")[0] else "script"
    first = True
    for line in text.split("\n"):
        rest = line.lstrip(" \t\r")
        if not rest or rest.startswith(_REMARK):
            continue
        if first and rest.startswith("{"):
            return "json"
        if first and rest.startswith("--") and not rest.startswith("---"):
            return "script"
        first = False
        found = _syntax_of_line(line, rest)
        if found:
            return found
    return ""


def _syntax_of_line(line: str, rest: str) -> str:
    if rest.startswith(("import ", "from ", "def ", "class ")):
        return "python"
    if rest.startswith(("export ", "torchrun ", "python ")) or (".py " in rest and " --" in rest):
        return "script"
    if line.startswith("["):
        return "toml"
    name = _NAME.match(rest)
    behind = rest[name.end():] if name else ""
    if behind.startswith(("=", "+=")):
        return "script"
    if behind.startswith(":"):
        return "yaml"
    return "toml" if behind.startswith(" = ") else ""


def parse(text: str, syntax: str, name: str) -> Any:
    """The tree of a text in that syntax. Raises DataError that begins with `name`."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise DataError(f"{name}, line {line}: a byte that is no UTF-8") from error
    if syntax == "json":
        return parse_json(text, name, comments=True)
    return parse_toml(text, name) if syntax == "toml" else parse_yaml(text, name)


def _check_depth(tree: Any, name: str) -> None:
    level = [tree]
    for _ in range(MOST_DEPTH + 1):
        level = [inner for outer in level if isinstance(outer, (dict, list))
                 for inner in (outer.values() if isinstance(outer, dict) else outer)]
        if not level:
            return
    raise DataError(f"{name} is nested deeper than {MOST_DEPTH} levels")


# JSON

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*(?:"|$)|(?:#|//)[^\n]*|/\*.*?\*/|\s+|[^"#/\s,{}\[\]]+|.', re.DOTALL)


def _without_comments(text: str) -> str:
    """Spaces in place of comments (# // /* */) and of a comma behind the last element, as Hjson has them."""
    pieces: List[str] = []
    last, comma = "{", 0
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token.startswith(("#", "//")) or (token.startswith("/*") and len(token) > 2):
            token = re.sub(r"[^\n]", " ", token)
        elif not token.isspace():
            if token == "," and last in (",", "{", "["):
                return "".join(pieces) + text[found.start():]  # nothing before it: the parser refuses it
            if token in ("}", "]") and last == ",":
                pieces[comma] = " "
            if token == ",":
                comma = len(pieces)
            last = token
        pieces.append(token)
    return "".join(pieces)


class _Fault(ValueError):
    """A fault of JSON that has no line."""


def _refuse_constant(text: str) -> NoReturn:
    raise _Fault(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Fault(f"the number {text[:40]} is out of range")
    return value


def parse_json(text: str, name: str, comments: bool = False) -> Any:
    """The value of a text of JSON; repeated keys are refused where comments are not. Raises DataError."""

    def pairs(members: List[Tuple[str, Any]]) -> Dict[str, Any]:
        tree = dict(members)
        if len(tree) < len(members):
            keys = [key for key, _ in members]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise _Fault(f"the key {in_quotes(twice)} stands there twice")
        return tree

    try:
        tree = json.loads(_without_comments(text) if comments else text, object_pairs_hook=pairs,
                          parse_constant=_refuse_constant, parse_float=_finite)
        json.dumps(tree, ensure_ascii=False).encode("utf-8")  # no halves of surrogate pairs
    except RecursionError:
        raise DataError(f"{name} is nested deeper than {MOST_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise DataError(f"{name} is no valid JSON: line {error.lineno}, column {error.colno}: "
                        + printable(error.msg)) from error
    except ValueError as error:  # ours, a number with too many digits, half of a surrogate pair
        raise DataError(f"{name} is no valid JSON: {printable(str(error)[:300])}") from error
    _check_depth(tree, name)
    return tree


# TOML

if sys.version_info >= (3, 11):
    import tomllib as _toml
else:
    try:
        import tomli as _toml
    except ImportError:
        _toml = None


def parse_toml(text: str, name: str) -> Any:
    """The tables of a text of TOML. Raises DataError; UsageError where this Python has no reader of TOML."""
    if _toml is None:
        raise UsageError(f"{name} is TOML, which Python before 3.11 reads by the package tomli: pip install tomli "
                         "(Debian: apt install python3-tomli)")
    try:
        tree = _toml.loads(text.replace("\r\n", "\n"))
    except RecursionError:
        raise DataError(f"{name} is nested deeper than {MOST_DEPTH} levels") from None
    except ValueError as error:  # TOMLDecodeError says "... (at line 3, column 5)"
        place = re.search(r" \(at (line \d+, column \d+)\)$", str(error))
        where, what = (f", {place.group(1)}", str(error)[:place.start()]) if place else ("", str(error)[:300])
        raise DataError(f"{name}{where}: {printable(what)}") from error
    _check_depth(tree, name)
    return _plain(tree)


def _plain(tree: Any) -> Any:
    """Dates and times become texts."""
    if isinstance(tree, dict):
        return {key: _plain(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_plain(value) for value in tree]
    return tree if isinstance(tree, (str, bool, int, float)) else tree.isoformat()


# YAML

_WHOLE = re.compile(r"-?[0-9]+")
_REAL = re.compile(r"-?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WORDS = {**dict.fromkeys(("true", "yes", "on"), True), **dict.fromkeys(("false", "no", "off"), False)}


def number_in(text: str) -> Union[int, float, None]:
    """The number that the text is: 12, 1_000, 1e-5; of 64 bits if it is whole. None for any other text."""
    digits = text.replace("_", "")
    digits = digits[1:] if digits.startswith("+") else digits
    if _WHOLE.fullmatch(digits) and len(digits) < 20 and -2 ** 63 <= int(digits) < 2 ** 63:
        return int(digits)
    real = float(digits) if _REAL.fullmatch(digits) else math.nan
    return real if math.isfinite(real) else None


def plain_scalar(text: str) -> Any:
    """The value of an unquoted word of YAML: 1e-5 is a number, yes and no are truth values, dates are texts."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    number = number_in(text)
    return text if number is None else number


class _Builder:
    """Builds the tree from the parser's events, within limits."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.root: Any = None
        self.values = 0
        self.open: List[Any] = []  # lists and objects around the next value
        self.keys: List[Optional[str]] = []  # of each: the key whose value comes next

    def refuse(self, event: Any, why: str) -> NoReturn:
        raise DataError(f"{self.name}, line {event.start_mark.line + 1}: {why}")

    def add(self, event: Any, value: Any, is_text: bool = False) -> None:
        holder = self.open[-1] if self.open else None
        if isinstance(holder, dict) and self.keys[-1] is None:
            if not is_text:
                self.refuse(event, "a key must be a text")
            if event.value in holder:
                self.refuse(event, f"the key {in_quotes(event.value)} stands there twice")
            self.keys[-1] = event.value
            return
        self.values += 1
        if self.values > MOST_VALUES:
            self.refuse(event, f"there are more than {MOST_VALUES} values")
        if holder is None:
            self.root = value
        elif isinstance(holder, list):
            holder.append(value)
        else:
            holder[self.keys[-1]] = value
            self.keys[-1] = None

    def enter(self, event: Any, value: Any) -> None:
        if len(self.open) == MOST_DEPTH:
            self.refuse(event, f"values are nested deeper than {MOST_DEPTH} levels")
        self.add(event, value)
        self.open.append(value)
        self.keys.append(None)


def parse_yaml(text: str, name: str) -> Any:
    """The value of a text of YAML. Raises DataError, also for aliases, repeated keys and several documents.

    Raises UsageError where PyYAML is not installed.
    """
    try:
        import yaml
    except ImportError as error:
        raise UsageError(f"{name} is YAML, which the package PyYAML reads: pip install pyyaml (Debian: apt install "
                         "python3-yaml)") from error
    roots: List[Any] = []
    builder = _Builder(name)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.AliasEvent):
                builder.refuse(event, "an alias (*name) is not read; write the value out")
            elif isinstance(event, yaml.ScalarEvent):
                plain = event.implicit[0]
                builder.add(event, plain_scalar(event.value) if plain else event.value,
                            is_text=bool(event.value) or not plain)
            elif isinstance(event, yaml.SequenceStartEvent):
                builder.enter(event, [])
            elif isinstance(event, yaml.MappingStartEvent):
                builder.enter(event, {})
            elif isinstance(event, yaml.CollectionEndEvent):
                builder.open.pop()
                builder.keys.pop()
            elif isinstance(event, yaml.DocumentEndEvent):
                roots.append(builder.root)
                builder = _Builder(name)
                if len(roots) > 1 and roots[-1] is not None:
                    raise DataError(f"{name} has several documents; one is read")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        what = getattr(error, "problem", None) or str(error)
        raise DataError(f"{name}{where}: {printable(what[:300])}") from error
    return roots[0] if roots else None
