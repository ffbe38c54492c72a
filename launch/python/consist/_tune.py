"""Searches for the fastest configuration from Python."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from . import _options, _tables, events
from ._frames import frame_of_rows
from ._process import Folder
from ._run import Model
from ._stream import Stream
from .errors import ProgramError
from .events import SearchResult

if TYPE_CHECKING:
    import pandas as pd


class Search(Stream[SearchResult]):
    """A run of ``consist tune``. Iterate over it for its progress; tune() makes one."""

    _kinds = events.TUNE
    _result_kind = SearchResult

    def table(self, timeout: Optional[float] = None) -> "pd.DataFrame":
        """Waits for the end and returns the best configurations, the first one on top. Raises what result() raises."""
        rows: List[Dict[str, Any]] = []
        for row in self.result(timeout).rows:
            rows.append({**row.get("options", {}), **{key: value for key, value in row.items() if key != "options"}})
        return frame_of_rows(rows)

    def best(self, timeout: Optional[float] = None) -> Mapping[str, Any]:
        """Waits for the end and returns the winner's row: its options, its command, its times.

        Raises ProgramError if no configuration fits.
        """
        result = self.result(timeout)
        if result.winner is None:
            raise ProgramError("no configuration that was tried fits", self.status or 0, self.command, self.log)
        return result.rows[result.winner]

    def __str__(self) -> str:
        rows = self._found()
        return _tables.rows_as_text(rows) if rows else super().__str__()

    def _repr_html_(self) -> str:
        rows = self._found()
        return _tables.rows_as_html(rows) if rows else super()._repr_html_()

    def _found(self) -> List[Dict[str, Any]]:
        last = self.seen[-1] if self.seen else None
        if not isinstance(last, SearchResult):
            return []
        rows = []
        for row in last.rows:
            chosen = " ".join(f"--{name} {value}" for name, value in row.get("options", {}).items())
            others = {key: value for key, value in row.items() if key not in ("options", "command")}
            rows.append({**others, "configuration": chosen})
        return rows


def tune(model: Model = None, *, ranks: Optional[int] = None, global_batch: Optional[int] = None,
         machine: Optional[str] = None, options: Optional[Mapping[str, Any]] = None, folder: Folder = None,
         environment: Optional[Mapping[str, str]] = None, show_log: bool = False, **keywords: Any) -> Search:
    """Starts ``consist tune`` and returns the search, whose events come while it goes on.

    Keywords are the options of the command, as in run(); those that are given are fixed, the search chooses the others.
    ``measure=0`` runs nothing.
    """
    given = {"model": model, "ranks": ranks, "global_batch": global_batch, "machine": machine, **keywords}
    words = _options.words(given, options, sweeps=True)
    return Search(["tune", "--json", *words], (), folder, environment, show_log)
