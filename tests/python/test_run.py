"""Runs of training by the program under test: events, results, stops, refusals."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pandas as pd
import pytest

import consist
from consist import events
from consist.observers import Observer

TINY: Dict[str, Any] = {"device": "cpu", "batch": 1, "sequence": 32}


def test_events_are_those_of_the_run(tmp_path: Path) -> None:
    run = consist.run("llama-tiny", "zero2", ranks=2, steps=8, evaluate_every=4, evaluate_sequences=4, sample_every=8, sample_prompt="The",
                      sample_tokens=3, checkpoint=tmp_path / "checkpoints", checkpoint_every=4, archive=tmp_path / "run.h5",
                      zero2__reduce_bucket_size=1e5, options={"zero2.stage": 1}, **TINY)
    seen = list(run.events(timeout=120))
    assert isinstance(seen[0], events.RunStarted) and seen[0].ranks == 2
    assert seen[0].configuration["plugin_options"]["zero2"] == {"reduce-bucket-size": "100000.0", "stage": "1"}
    assert seen[0].archive is not None and Path(seen[0].archive) == tmp_path / "run.h5"
    steps = [event for event in seen if isinstance(event, events.Step)]
    assert [event.step for event in steps] == list(range(1, 9))
    assert [event.step for event in seen if isinstance(event, events.Evaluation)] == [4, 8]
    assert [event.step for event in seen if isinstance(event, events.Sample)] == [8]
    checkpoints = [event for event in seen if isinstance(event, events.Checkpoint)]
    assert [event.step for event in checkpoints] == [4, 8] and Path(checkpoints[0].path).exists()
    result = run.result()
    assert seen[-1] is result and result.steps == 8 and result.loss == steps[-1].loss
    assert not [event for event in seen if type(event) is events.Event], "every kind of event has its class"


def test_the_archive_has_the_same_figures(tmp_path: Path) -> None:
    run = consist.run("llama-tiny", steps=6, evaluate_every=3, evaluate_sequences=4, archive=tmp_path / "run.h5", **TINY)
    result = run.result(120)
    stored = run.archive
    assert stored.status == "finished"
    pd.testing.assert_series_equal(run.steps.loss, stored.steps.loss)
    assert list(run.steps.ms) == pytest.approx(list(stored.steps.seconds * 1000), rel=1e-6)
    assert list(run.steps.tokens_per_second) == pytest.approx(list(stored.steps.tokens_per_second), rel=1e-6)
    assert list(run.evaluations.loss) == pytest.approx(list(stored.evaluations.loss), rel=1e-9)
    assert result.tokens_per_second == pytest.approx(stored.result["tokens_per_second"])
    assert len(run.samples) == 0


def test_every_attribute_of_an_event_is_filled(tmp_path: Path) -> None:
    """An attribute whose key the program does not have would be None for ever."""
    run = consist.run("mixtral-tiny", steps=2, evaluate_every=1, evaluate_sequences=2, **TINY)
    run.result(120)
    optional = {"archive", "mfu", "share_of_bound"}  # no archive, no peak of processors, too short for a bound
    for kind in (events.RunStarted, events.Step, events.Evaluation, events.RunResult):
        event = next(event for event in run.seen if type(event) is kind)
        missing = [name for name in event.__dataclass_fields__ if name not in (*event.data, "data")]
        assert not missing, f"{kind.__name__} has {missing}, which the program does not: it has {list(event.data)}"
        assert [name for name in event.__dataclass_fields__ if getattr(event, name) is None and name not in optional] == []


def test_a_run_that_is_stopped_ends_in_order(tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    with consist.run("llama-tiny", ranks=2, steps=1_000_000, archive=path, **TINY) as run:
        for event in run.events(timeout=120):
            if isinstance(event, events.Step) and event.step >= 3:
                break
    assert not run.is_running and run.status == 130
    archive = consist.Archive(path)
    assert archive.status == "stopped" and len(archive.steps) >= 3
    assert "stopped" in str(run)


def test_a_run_without_an_archive() -> None:
    run = consist.run("llama-tiny", steps=2, **TINY)
    run.result(120)
    with pytest.raises(consist.ArchiveError, match="the run has no archive"):
        _ = run.archive


@pytest.mark.parametrize("options, message", [
    ({"nosuch": 1}, "there is no option '--nosuch'"), ({"zero2__nosuch": 1}, "plugin 'zero2' has no option 'nosuch'"),
    ({"steps": 0}, "--steps is '0'; it must be at least 1"), ({"strategy": "none"}, "none")])
def test_what_the_program_refuses(options: Dict[str, Any], message: str) -> None:
    run = consist.run("llama-tiny", **{**TINY, **options})
    with pytest.raises(consist.UsageError, match=message) as caught:
        run.result(120)
    assert caught.value.status == 2 and caught.value.command[1] == "train"
    with pytest.raises(consist.UsageError):
        list(run)


def test_a_run_that_fails(tmp_path: Path) -> None:
    with pytest.raises(consist.ProgramError, match="nowhere") as caught:
        consist.run("llama-tiny", steps=2, text__files=tmp_path / "nowhere.txt", **TINY).result(120)
    assert caught.value.status != 0


class Recorder(Observer):
    """Notes the kinds of events that it is told of."""

    def __init__(self) -> None:
        self.told: List[str] = []

    def begin(self, event: events.RunStarted) -> None:
        self.told.append(f"begin {event.configuration['model']}")

    def step(self, event: events.Step) -> None:
        self.told.append(f"step {event.step}")

    def evaluated(self, event: events.Evaluation) -> None:
        self.told.append(f"evaluation {event.step}")

    def sampled(self, event: events.Sample) -> None:
        self.told.append(f"sample {event.step}")

    def checkpoint(self, event: events.Checkpoint) -> None:
        self.told.append(f"checkpoint {event.step}")

    def end(self, status: str, event: events.Event) -> None:
        self.told.append(status)


def test_observers_are_told_of_everything(tmp_path: Path) -> None:
    seen = Recorder()
    consist.run("llama-tiny", steps=2, evaluate_every=2, evaluate_sequences=2, sample_every=2, sample_prompt="A", sample_tokens=1,
                checkpoint=tmp_path / "c", observers=[seen], **TINY).result(120)
    assert seen.told == ["begin llama-tiny", "step 1", "step 2", *sorted(seen.told[3:6], key=seen.told.index), "finished"]
    assert set(seen.told[3:6]) == {"evaluation 2", "sample 2", "checkpoint 2"}


def test_observers_are_told_of_a_stop(tmp_path: Path) -> None:
    seen = Recorder()
    with consist.run("llama-tiny", steps=1_000_000, observers=[seen], **TINY) as run:
        next(event for event in run.events(timeout=120) if isinstance(event, events.Step))
    assert seen.told[-1] == "stopped"
