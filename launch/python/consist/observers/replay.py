"""The events of a run that has ended, from its archive, for observers."""
from __future__ import annotations

from typing import Any, Dict, Iterator, List, Tuple

from ..archive import Archive
from ..events import Evaluation, Event, Failure, RunResult, RunStarted, Sample, Step
from . import Observer, listener_of

_MILLISECONDS = {"seconds": "ms", "data_seconds": "data_ms"}
_OF_EVALUATIONS = ("loss", "sequences", "seconds", "time")  # columns that all archives have
_FIRST, _SECOND, _THIRD = 0, 1, 2  # behind a step come its evaluation, then its sample


def replay(archive: Archive, observer: Observer) -> None:
    """Tells the observer of everything that the archive's run did, in its order."""
    tell = listener_of(observer)
    for event in events_of(archive):
        tell(event)


def events_of(archive: Archive) -> Iterator[Event]:
    """Yields the events that a run had while it went on; checkpoints are not in an archive as events."""
    configuration = archive.configuration
    yield RunStarted(data={"event": "run"}, configuration=configuration, ranks=int(configuration.get("ranks", 1)),
                     archive=archive.path)
    events: List[Tuple[int, int, Event]] = []
    for step, row in zip(archive.steps.index, archive.steps.to_dict("records")):
        figures: Dict[str, Any] = {"event": "step", "step": int(step)}
        for name, value in row.items():
            if value == value:
                milliseconds = _MILLISECONDS.get(str(name))
                figures[milliseconds or str(name)] = 1000 * value if milliseconds else value
        known = {name: value for name, value in figures.items() if name in Step.__dataclass_fields__}
        events.append((int(step), _FIRST, Step(data=figures, **known)))
    for step, row in zip(archive.evaluations.index, archive.evaluations.to_dict("records")):
        loss, sequences = float(row["loss"]), int(row["sequences"])
        own = {str(name): float(value) for name, value in row.items() if name not in _OF_EVALUATIONS and value == value}
        data = {"event": "evaluation", "step": int(step), "loss": loss, "sequences": sequences, "metrics": own}
        events.append((int(step), _SECOND, Evaluation(data=data, step=int(step), loss=loss, sequences=sequences,
                                                      metrics=own)))
    samples = archive.samples
    for step, text in zip(samples["step"], samples["text"]):
        events.append((int(step), _THIRD, Sample(data={"event": "sample"}, step=int(step), text=str(text))))
    yield from (event for _, _, event in sorted(events, key=lambda entry: entry[:2]))
    yield _last_event(archive)


def _last_event(archive: Archive) -> Event:
    status = archive.status
    if status in ("finished", "stopped"):
        result = archive.result
        data = {"event": "result", "status": status, **{name: value for name, value in result.items()
                                                        if isinstance(value, (int, float))}}
        return RunResult(data=data, steps=int(result["steps"]), loss=result["final_loss"],
                         tokens_per_second=result["tokens_per_second"], mfu=result["mfu"])
    reason = archive.reason or "its archive ends without a result"
    return Failure(data={"event": "error", "message": reason}, message=reason, status=1)
