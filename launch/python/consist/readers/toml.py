"""Writes what was read as a TOML of Consist's own, which --config reads, with each key of the file as a comment."""
from __future__ import annotations

import json
import re
from typing import Dict, Iterator, List

from .messages import in_quotes, one_line, printable, shown
from .target import BEHIND_COMMAND_LINE, HONOURED, WITHOUT_EFFECT, Target

# Options whose values are texts, though they may look like numbers.
_TEXTS = ("model", "strategy", "recompute-layers", "offload-activations", "deepspeed-config", "freeze", "train-only",
          "optimizer-rules")
_NUMBER = re.compile(r"[+-]?(\d+|\d+\.\d+)([eE][+-]?\d+)?")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_HEADS = {HONOURED: "Honoured:", WITHOUT_EFFECT: "Without effect here:",
          BEHIND_COMMAND_LINE: "Behind what the command line gives:"}


def to_toml(target: Target) -> str:
    """The options as TOML, behind comments that say what became of each key."""
    source = target.source
    lines = [f"# {printable(source.path)}, of {source.trainer}, as consist import reads it."]
    for fate, head in _HEADS.items():
        entries = [entry for entry in target.entries if entry.fate == fate]
        lines += ["#", f"# {head}"] if entries else []
        lines += [f"#   {one_line(f'{entry.key} {shown(entry.value)}: {entry.what}')}" for entry in entries]
    if target.defaults:
        lines += ["#", f"# Keys that are absent have {source.trainer}'s defaults:",
                  *(f"#   {one_line(default)}" for default in target.defaults)]
    if target.remarks:
        lines += ["#", "# Done otherwise here, or left open:", *(f"#   {one_line(text)}" for text in target.remarks)]
    return "\n".join([*lines, "", *_tables(target.options)]) + "\n"


def _tables(options: Dict[str, str]) -> Iterator[str]:
    of_plugins: Dict[str, List[str]] = {}
    for name, value in options.items():
        plugin, dot, option = name.partition(".")
        if dot:
            of_plugins.setdefault(plugin, []).append(f"{_key(option)} = {_value(option, value)}")
        else:
            yield f"{name} = {_value(name, value)}"
    for plugin in sorted(of_plugins):
        yield from ("", f"[{_key(plugin)}]", *of_plugins[plugin])


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else in_quotes(name)


def _value(name: str, value: str) -> str:
    if name not in _TEXTS and (value in ("true", "false") or _NUMBER.fullmatch(value)):
        return value
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
