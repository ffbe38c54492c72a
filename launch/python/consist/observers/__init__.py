"""Observers: objects that are told of a run's events, live or from its archive.

``consist.run(..., observers=[WandbObserver("runs")])``, or on a command line
``python -m consist.observers wandb --folder runs -- consist train ...``.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict

from ..events import Checkpoint, Evaluation, Event, Failure, RunResult, RunStarted, Sample, Step

if TYPE_CHECKING:
    from .mlflow import MlflowObserver as MlflowObserver
    from .wandb import WandbObserver as WandbObserver


class Observer:
    """A base class whose methods do nothing. They are called in the order of the events, in one thread."""

    def begin(self, event: RunStarted) -> None:
        """Takes the run's configuration, before its first step."""

    def step(self, event: Step) -> None:
        """Takes a finished step."""

    def evaluated(self, event: Evaluation) -> None:
        """Takes an evaluation."""

    def sampled(self, event: Sample) -> None:
        """Takes a sample of text."""

    def checkpoint(self, event: Checkpoint) -> None:
        """Takes a checkpoint that was written."""

    def end(self, status: str, event: Event) -> None:
        """Takes the end: ``finished``, ``stopped`` or ``failed``, and the RunResult or the Failure."""


STATUS_STOPPED = 130


def listener_of(observer: Observer) -> Callable[[Event], None]:
    """Returns the function that calls the observer's methods."""
    return _Listener(observer)


def flat_configuration(event: RunStarted) -> Dict[str, Any]:
    """Returns the configuration without tables in it: options of plugins as ``zero2.stage``."""
    flat = {name: value for name, value in event.configuration.items() if not isinstance(value, dict)}
    for plugin, options in event.configuration.get("plugin_options", {}).items():
        flat.update({f"{plugin}.{name}": value for name, value in options.items()})
    return flat


def figures_of(event: Event) -> Dict[str, float]:
    """Returns the numbers that an event has, but for its step."""
    return {name: float(value) for name, value in event.columns.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in ("step", "version")}


class _Listener:
    """Calls the method for an event. One that fails is named by its observer."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer

    def __call__(self, event: Event) -> None:
        if isinstance(event, RunStarted):
            self.observer.begin(event)
        elif isinstance(event, Step):
            self.observer.step(event)
        elif isinstance(event, Evaluation):
            self.observer.evaluated(event)
        elif isinstance(event, Sample):
            self.observer.sampled(event)
        elif isinstance(event, Checkpoint):
            self.observer.checkpoint(event)
        elif isinstance(event, RunResult):
            self.observer.end(str(event.data.get("status", "finished")), event)
        elif isinstance(event, Failure):
            self.observer.end("stopped" if event.status == STATUS_STOPPED else "failed", event)

    def __repr__(self) -> str:
        return f"the observer {type(self.observer).__name__}"


def __getattr__(name: str) -> Any:
    if name == "WandbObserver":
        from .wandb import WandbObserver
        return WandbObserver
    if name == "MlflowObserver":
        from .mlflow import MlflowObserver
        return MlflowObserver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
