"""Options of the program from arguments of Python."""
from __future__ import annotations

import json
import numbers
import os
from typing import Any, List, Mapping, Optional

# They are given once for each value; all others are lists with commas.
REPEATED = frozenset({"plugin", "from-set", "deepspeed-set", "add"})


def option_name(keyword: str) -> str:
    """Returns the option that a keyword means.

    ``global_batch`` is global-batch, ``zero2__reduce_bucket_size`` zero2.reduce-bucket-size, and ``from_`` is from,
    which is a word of Python's own.
    """
    return keyword.rstrip("_").replace("__", ".").replace("_", "-")


def option_text(value: Any) -> str:
    """Returns a value as the command line has it. Lists have commas, mappings are JSON."""
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return "true" if value else "false"
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    if isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, (list, tuple, range)):
        return ",".join(option_text(item) for item in value)
    raise TypeError(f"{value!r} of type {type(value).__name__} cannot be the value of an option: give a text, a "
                    "number, True or False, a path, or a list of them")


def swept_text(option: str, values: Any) -> str:
    """Returns a list as `compare` and `tune` take it: A,B, or [A],[B] where values may have commas of their own."""
    texts = [option_text(value) for value in values]
    is_of_part = "." in option and any(isinstance(value, (str, os.PathLike)) for value in values)
    if len(texts) > 1 and (is_of_part or any("," in text for text in texts)):
        return ",".join(f"[{text}]" for text in texts)
    return ",".join(texts)


def words(keywords: Mapping[str, Any], options: Optional[Mapping[str, Any]] = None, sweeps: bool = False) -> List[str]:
    """Returns the words of a command line.

    ``keywords`` are spelled as arguments of Python, ``options`` as the program spells them. None leaves an option out,
    True is a switch. With ``sweeps`` the members of a list are rows of a comparison.
    """
    given = {option_name(keyword): value for keyword, value in keywords.items()}
    for option in options or {}:
        if option.lstrip("-") in given:
            raise TypeError(f"the option '{option}' is given as a keyword, too")
    given.update({option.lstrip("-"): value for option, value in (options or {}).items()})
    line: List[str] = []
    for option, value in given.items():
        if value is None:
            continue
        if value is True:
            line.append(f"--{option}")
        elif option in REPEATED and isinstance(value, (list, tuple)):
            for item in value:
                line += _word(option, option_text(item))
        elif sweeps and isinstance(value, (list, tuple, range)):
            line += _word(option, swept_text(option, value))
        else:
            line += _word(option, option_text(value), joined=value is False)
    return line


def _word(option: str, text: str, joined: bool = False) -> List[str]:
    """`--option text`, or one word where the text could be taken for an option."""
    if joined or not text or text.startswith("-"):
        return [f"--{option}={text}"]
    return [f"--{option}", text]
