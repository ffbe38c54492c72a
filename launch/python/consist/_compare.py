"""Comparisons from Python."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional

from . import _options, _tables, events
from ._frames import frame_of_rows
from ._process import Folder
from ._run import Model
from ._stream import Stream
from .events import ComparisonResult, ComparisonStarted, RunOfRow

if TYPE_CHECKING:
    import pandas as pd

    from .archives import Archives


class Comparison(Stream[ComparisonResult]):
    """A run of ``consist compare``. Iterate over it for its events as they come; compare() makes one."""

    _kinds = events.COMPARE
    _result_kind = ComparisonResult

    def table(self, timeout: Optional[float] = None) -> "pd.DataFrame":
        """Waits for the end and returns the table, a row per configuration. Raises what result() raises.

        The options in which rows differ are its first columns.
        """
        return frame_of_rows(_flat(self.result(timeout))).set_index("label")

    def archives(self, timeout: Optional[float] = None) -> "Archives":
        """Waits for the end and returns the archives of the runs."""
        from .archives import Archives, open_archive
        from .errors import ArchiveError
        self.result(timeout)
        first = self.seen[0]
        output = first.output if isinstance(first, ComparisonStarted) else None
        if output is None:
            raise ArchiveError("the comparison was predicted: it has no archives")
        found = open_archive(output)
        assert isinstance(found, Archives)
        return found

    def facts(self) -> Dict[str, Any]:
        """Returns what is shown of a comparison that goes on."""
        ended = [event for event in self.seen if isinstance(event, RunOfRow) and event.state != "started"]
        return {**super().facts(), "runs": len(ended)}

    def __str__(self) -> str:
        last = self.seen[-1] if self.seen else None
        return _tables.rows_as_text(_flat(last)) if isinstance(last, ComparisonResult) else super().__str__()

    def _repr_html_(self) -> str:
        last = self.seen[-1] if self.seen else None
        return _tables.rows_as_html(_flat(last)) if isinstance(last, ComparisonResult) else super()._repr_html_()


def _flat(result: ComparisonResult) -> List[Dict[str, Any]]:
    """The rows with a column for each option."""
    flat = []
    for row in result.rows:
        figures = {name: value for name, value in row.items() if name not in ("label", "options")}
        flat.append({"label": row["label"], **row["options"], **figures})
    return flat


def compare(model: Any = None, strategy: Any = None, *, options: Optional[Mapping[str, Any]] = None,
            folder: Folder = None, environment: Optional[Mapping[str, str]] = None, show_log: bool = False,
            **keywords: Any) -> Comparison:
    """Starts ``consist compare`` and returns the comparison, whose events come while it goes on.

    Keywords are as in run(), and a list is a sweep: ``precision=["fp32", "bf16"]``. ``predict=True`` simulates each row
    and runs nothing; ``output`` names the folder of archives.
    """
    words = _options.words({"model": model, "strategy": strategy, **keywords}, options, sweeps=True)
    return Comparison(["compare", "--json", *words], (), folder, environment, show_log)


__all__ = ["Comparison", "Model", "compare"]
