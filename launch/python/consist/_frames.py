"""Frames of pandas whose column names state units."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence

from ._hdf5 import modules

if TYPE_CHECKING:
    import pandas as pd

# Units of an archive: what a column's name ends with, unless it has one of the words already.
_SUFFIXES = {
    "s": ("_seconds", ("seconds", "time")),
    "1/s": ("_per_second", ("per_second",)),
    "B": ("_bytes", ("bytes",)),
    "B/s": ("_bytes_per_second", ("bytes_per_second",)),
    "W": ("_watts", ("watts",)),
    "J": ("_joules", ("joules",)),
    "degC": ("_celsius", ("celsius",)),
    "Hz": ("_hz", ("_hz",)),
    "nat/token": ("", ()),
    "1": ("", ()),
    "": ("", ()),
}
# Columns that have one name, whatever unit the loss of a run gives them.
_PLAIN = ("loss", "final_loss")


def named(column: str, unit: str) -> str:
    """Returns the column's name with its unit: device_power in W is device_power_watts, seconds stays seconds."""
    if column in _PLAIN:
        return column
    suffix, words = _SUFFIXES.get(unit, (f" [{unit}]", ()))
    return column if any(word in column for word in words) else column + suffix


def frame_of(columns: Mapping[str, Any], units: Mapping[str, str]) -> "pd.DataFrame":
    """Returns columns of an archive as a frame; `attrs["units"]` has the unit of each column."""
    _, pandas = modules()
    names = {column: named(column, units.get(column, "")) for column in columns}
    frame: pd.DataFrame = pandas.DataFrame({names[column]: values for column, values in columns.items()})
    frame.attrs["units"] = {names[column]: units.get(column, "") for column in columns}
    if "time" in frame.columns:
        frame["time"] = pandas.to_datetime(frame["time"], unit="s", utc=True)
    return frame


def frame_of_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> "pd.DataFrame":
    """Returns rows as a frame that has `columns` also if there are no rows."""
    _, pandas = modules()
    frame: pd.DataFrame = pandas.DataFrame(list(rows), columns=list(columns) if columns and not rows else None)
    return frame


def joined(frames: Mapping[str, "pd.DataFrame"], name: str) -> "pd.DataFrame":
    """Returns frames below one another, with a first column that has their keys."""
    _, pandas = modules()
    parts: List[Any] = []
    units: Dict[str, str] = {}
    for key, frame in frames.items():
        units.update(frame.attrs.get("units", {}))
        part = frame.reset_index() if frame.index.name else frame.copy()
        part.attrs = {}
        part.insert(0, name, key)
        parts.append(part)
    whole: pd.DataFrame = pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame(columns=[name])
    whole.attrs["units"] = units
    return whole
