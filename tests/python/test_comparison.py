"""Comparisons and searches by the program under test."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

import consist
from consist import events

TINY: Dict[str, Any] = {"device": "cpu", "batch": 1, "sequence": 32}


def test_rows_runs_and_the_table(tmp_path: Path) -> None:
    comparison = consist.compare("llama-tiny", precision=["fp32", "bf16"], steps=8, repeats=1, output=tmp_path / "out", **TINY)
    seen = list(comparison.events(timeout=200))
    first, last = seen[0], seen[-1]
    assert isinstance(first, events.ComparisonStarted) and isinstance(last, events.ComparisonResult)
    assert [row["options"]["precision"] for row in first.rows] == ["fp32", "bf16"] and first.output == str(tmp_path / "out")
    runs = [event for event in seen if isinstance(event, events.RunOfRow)]
    assert {(run.row, run.state) for run in runs} >= {(0, "started"), (0, "finished"), (1, "started"), (1, "finished")}
    finished = next(run for run in runs if run.state == "finished")
    assert finished.tokens_per_second > 0 and finished.ms > 0 and Path(finished.archive).exists()
    table = comparison.table()
    assert list(table.index) == [row["label"] for row in first.rows] and list(table.precision) == ["fp32", "bf16"]
    archives = comparison.archives()
    assert set(table.index) <= set(archives) and (archives.table.loc[table.index].status == "finished").all()
    assert "<td" in comparison._repr_html_() and table.index[0] in str(comparison)


def test_a_predicted_comparison() -> None:
    comparison = consist.compare("llama-3-8b", ["zero2", "zero3-offload"], ranks=8, precision="bf16", batch=1, sequence=2048, machine="h100",
                                 recompute="full", predict=True)
    table = comparison.table(200)
    assert len(table) == 2
    with pytest.raises(consist.ArchiveError, match="was predicted"):
        comparison.archives()


def test_a_row_that_cannot_run_is_in_the_table(tmp_path: Path) -> None:
    table = consist.compare("llama-tiny", ["ddp", "tp-sp=3"], ranks=1, steps=3, repeats=1, output=tmp_path / "out", **TINY).table(200)
    assert len(table) == 2


def test_a_comparison_that_is_refused(tmp_path: Path) -> None:
    with pytest.raises(consist.UsageError, match="lists 'fp32' twice"):
        consist.compare("llama-tiny", precision=["fp32", "fp32"], output=tmp_path / "out").result(60)


def test_a_comparison_that_is_stopped(tmp_path: Path) -> None:
    with consist.compare("llama-tiny", precision=["fp32", "bf16"], steps=1_000_000, repeats=1, output=tmp_path / "out", **TINY) as comparison:
        next(event for event in comparison.events(timeout=120) if isinstance(event, events.RunOfRow))
    assert not comparison.is_running


def test_a_search() -> None:
    search = consist.tune("llama-tiny", ranks=2, global_batch=4, sequence=32, machine="cpu", measure=0, search_seconds=5)
    seen = list(search.events(timeout=200))
    assert isinstance(seen[0], events.SearchStarted) and isinstance(seen[-1], events.SearchResult)
    best = search.best()
    assert best["command"].startswith("consist train --model llama-tiny") and best["predicted_ms"] > 0
    table = search.table()
    assert table.predicted_ms.iloc[0] == best["predicted_ms"] and "strategy" in table.columns
    assert "strategy" in str(search) and "<td" in search._repr_html_()


def test_every_attribute_of_an_event_is_filled(tmp_path: Path) -> None:
    """An attribute whose key the program does not have would be None for ever."""
    comparison = consist.compare("llama-tiny", precision=["fp32"], steps=3, repeats=1, output=tmp_path / "out", **TINY)
    search = consist.tune("llama-tiny", ranks=1, global_batch=2, sequence=32, machine="cpu", measure=0, search_seconds=2)
    comparison.result(200), search.result(200)
    for event in (*comparison.seen, *search.seen):
        if isinstance(event, events.RunOfRow) and event.state == "started":
            continue  # figures come at its end
        missing = [name for name in event.__dataclass_fields__ if name not in (*event.data, "data")]
        assert not missing, f"{type(event).__name__} has {missing}, which the program does not: it has {list(event.data)}"
        assert type(event) is not events.Event, f"{event.name} has no class"


def test_a_search_that_is_refused() -> None:
    with pytest.raises(consist.UsageError):
        consist.tune("llama-tiny", ranks=2, machine="nosuch", global_batch=4, measure=0).result(60)
