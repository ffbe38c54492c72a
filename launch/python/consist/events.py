"""Events of commands as they come, typed. ``data`` of each has all that the program said."""
from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Dict, Mapping, Optional, Sequence, Type


@dataclass(frozen=True)
class Event:
    """Something that happened; of a kind that this version does not know if it has no class of its own."""

    data: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """The program's name of the event."""
        return str(self.data.get("event", ""))

    @property
    def columns(self) -> Dict[str, Any]:
        """The data, with the numbers that the model or the loss reports of its own beside the others."""
        own = self.data.get("metrics") or {}
        return {**{name: value for name, value in self.data.items() if name != "metrics"}, **own}


# Training


@dataclass(frozen=True)
class RunStarted(Event):
    """The first event of a run: its resolved configuration."""

    configuration: Mapping[str, Any] = field(default_factory=dict)
    ranks: int = 1
    archive: Optional[str] = None
    first_step: int = 0
    steps: Optional[int] = None
    loss_unit: Optional[str] = None
    description: str = ""


@dataclass(frozen=True)
class Step(Event):
    """A finished optimizer step, over all ranks. docs/metrics.md defines the figures."""

    step: int = 0
    loss: float = float("nan")
    grad_norm: Optional[float] = None
    learning_rate: Optional[float] = None
    ms: Optional[float] = None
    data_ms: Optional[float] = None
    tokens: Optional[int] = None
    sequences: Optional[int] = None
    tokens_per_second: Optional[float] = None
    aux_loss: Optional[float] = None
    expert_load: Optional[float] = None
    metrics: Mapping[str, Optional[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation(Event):
    """An evaluation after a step: mean loss over all tokens of its sequences."""

    step: int = 0
    loss: float = float("nan")
    sequences: Optional[int] = None
    metrics: Mapping[str, Optional[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample(Event):
    """A text that the model wrote after a step."""

    step: int = 0
    text: str = ""


@dataclass(frozen=True)
class Checkpoint(Event):
    """A checkpoint that was written."""

    step: int = 0
    path: str = ""


@dataclass(frozen=True)
class RunResult(Event):
    """The last event of a run that ended in good order: ``status`` is finished or stopped. Rates are medians."""

    status: str = "finished"
    reason: str = ""
    steps: int = 0
    loss: Optional[float] = None
    ms: Optional[float] = None
    tokens_per_second: Optional[float] = None
    mfu: Optional[float] = None
    share_of_bound: Optional[float] = None
    evaluation_loss: Optional[float] = None
    planned_bytes: Optional[int] = None
    measured_peak_bytes: Optional[int] = None
    total_seconds: Optional[float] = None


@dataclass(frozen=True)
class Failure(Event):
    """The last event of a command that failed."""

    message: str = ""
    status: int = 1


# Comparisons


@dataclass(frozen=True)
class ComparisonStarted(Event):
    """The first event of a comparison: its rows, with the options in which they differ, and the folder of the runs."""

    rows: Sequence[Mapping[str, Any]] = ()
    output: Optional[str] = None


@dataclass(frozen=True)
class RunOfRow(Event):
    """A run of a comparison's row; ``state`` is started, finished, failed, refused or interrupted."""

    row: int = 0
    repeat: int = 0
    state: str = ""
    archive: Optional[str] = None
    ms: Optional[float] = None
    tokens_per_second: Optional[float] = None
    loss: Optional[float] = None
    message: Optional[str] = None


@dataclass(frozen=True)
class ComparisonResult(Event):
    """The last event of a comparison: the rows of its table, and by model the fastest one (None: it cannot be told)."""

    rows: Sequence[Mapping[str, Any]] = ()
    winners: Any = None
    archive: Optional[str] = None


# Searches


@dataclass(frozen=True)
class SearchStarted(Event):
    """The first event of a search."""

    machine: Optional[str] = None
    ranks: Optional[int] = None
    global_batch: Optional[int] = None
    sequence: Optional[int] = None


@dataclass(frozen=True)
class Progress(Event):
    """How far a search is, in words."""

    text: str = ""


@dataclass(frozen=True)
class SearchResult(Event):
    """The last event of a search: the best configurations, and the index of the winner."""

    rows: Sequence[Mapping[str, Any]] = ()
    winner: Optional[int] = None
    estimated: Optional[int] = None
    simulated: Optional[int] = None
    seconds: Optional[float] = None
    converged: Optional[bool] = None


TRAIN: Dict[str, Type[Event]] = {"run": RunStarted, "step": Step, "evaluation": Evaluation, "sample": Sample,
                                 "checkpoint": Checkpoint, "result": RunResult, "error": Failure}
COMPARE: Dict[str, Type[Event]] = {"comparison": ComparisonStarted, "run": RunOfRow, "result": ComparisonResult,
                                   "error": Failure}
TUNE: Dict[str, Type[Event]] = {"search": SearchStarted, "progress": Progress, "result": SearchResult,
                                "error": Failure}


def event_of(data: Mapping[str, Any], kinds: Mapping[str, Type[Event]]) -> Event:
    """Returns the event that a line of a command is. Keys without an attribute stay in ``data``."""
    kind = kinds.get(str(data.get("event")), Event)
    known = {attribute.name for attribute in fields(kind)} - {"data"}
    return kind(data=data, **{key: value for key, value in data.items() if key in known})
