"""Small tables as text and as HTML, for terminals and notebooks."""
from __future__ import annotations

import datetime
import html
from typing import Any, List, Mapping, Optional, Sequence

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")


def cell(name: str, value: Any) -> str:
    """Returns a value as people read it; sizes, rates, fractions and times by the name of their column."""
    if value is None or value != value:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) or (isinstance(value, int) and "bytes" in name):
        return _number(name, float(value))
    if isinstance(value, (list, tuple)):
        return ", ".join(cell("", item) for item in value)
    return str(value)


def _number(name: str, value: float) -> str:
    if name in ("time", "written"):
        return datetime.datetime.fromtimestamp(value, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    if "bytes" in name:
        unit = 0
        while abs(value) >= 1024 and unit + 1 < len(_BINARY):
            value, unit = value / 1024, unit + 1
        return f"{value:.3g} {_BINARY[unit]}" if value < 1000 else f"{value:.0f} {_BINARY[unit]}"
    if name in ("mfu", "model_flops_utilization") or name.startswith("share") or name.endswith("share"):
        return f"{value:.1%}"
    if name.endswith("loss"):
        return f"{value:.4f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def rows_as_text(rows: Sequence[Mapping[str, Any]], columns: Optional[Sequence[str]] = None) -> str:
    """Returns rows below one another, numbers to the right; columns in which nothing is known are left out."""
    names = _columns(rows, columns)
    if not names:
        return "(no rows)"
    lines = [names, *([cell(name, row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(names))]
    right = [all(isinstance(row.get(name), (int, float, type(None))) for row in rows) for name in names]
    return "\n".join("  ".join(text.rjust(width) if is_right else text.ljust(width)
                               for text, width, is_right in zip(line, widths, right)).rstrip() for line in lines)


def rows_as_html(rows: Sequence[Mapping[str, Any]], columns: Optional[Sequence[str]] = None) -> str:
    """Returns rows as a table of HTML, with everything escaped."""
    names = _columns(rows, columns)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell(name, row.get(name)))}</td>" for name in names) + "</tr>"
                   for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def facts_as_text(facts: Mapping[str, Any]) -> str:
    """Returns a line for each fact that is known."""
    known = {name: value for name, value in facts.items() if value is not None and value != ""}
    width = max(map(len, known), default=0)
    return "\n".join(f"{name:<{width}}  {cell(name, value)}" for name, value in known.items())


def facts_as_html(facts: Mapping[str, Any]) -> str:
    """Returns a table of HTML with a row for each fact that is known."""
    rows = "".join(f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
                   f"<td style='text-align:left'>{html.escape(cell(name, value))}</td></tr>"
                   for name, value in facts.items() if value is not None and value != "")
    return f"<table>{rows}</table>"


def _columns(rows: Sequence[Mapping[str, Any]], columns: Optional[Sequence[str]]) -> List[str]:
    names = list(columns) if columns is not None else list(dict.fromkeys(name for row in rows for name in row))
    return [name for name in names if any(row.get(name) is not None for row in rows)]
