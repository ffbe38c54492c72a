"""Observer for Weights & Biases: a run in its offline format. Nothing is sent; ``wandb sync FOLDER`` does that."""
from __future__ import annotations

import os
from typing import Any, Optional, Union

from ..errors import missing_package
from ..events import Checkpoint, Evaluation, Event, RunStarted, Sample, Step
from . import Observer, figures_of, flat_configuration

EXIT_CODES = {"finished": 0, "stopped": 0}


class WandbObserver(Observer):
    """Writes ``FOLDER/wandb/offline-run-...``, by the package wandb.

    Steps are those of the run; evaluations are under ``evaluation/``, samples under ``sample``. With ``mode="online"``
    the package sends them as they come, to where its settings say.
    """

    def __init__(self, folder: Union[str, "os.PathLike[str]"] = ".", project: str = "consist",
                 name: Optional[str] = None, mode: str = "offline") -> None:
        try:
            import wandb
        except ImportError:
            raise missing_package("wandb", "the observer of Weights & Biases") from None
        self._wandb: Any = wandb
        self._folder, self._project, self._name, self._mode = os.fspath(folder), project, name, mode
        self._run: Any = None

    @property
    def path(self) -> Optional[str]:
        """The folder of the run, once it has begun: what ``wandb sync`` takes."""
        return None if self._run is None else os.path.dirname(str(self._run.dir))

    def begin(self, event: RunStarted) -> None:
        """Starts the run with the configuration."""
        os.makedirs(self._folder, exist_ok=True)
        settings = self._wandb.Settings(silent=True, console="off")  # the notebook's output stays its own
        self._run = self._wandb.init(dir=self._folder, project=self._project, name=self._name, mode=self._mode,
                                     config=flat_configuration(event), reinit="create_new", settings=settings)

    def step(self, event: Step) -> None:
        """Logs the step's figures."""
        self._run.log(figures_of(event), step=event.step)

    def evaluated(self, event: Evaluation) -> None:
        """Logs the evaluation beside its step."""
        self._run.log({f"evaluation/{name}": value for name, value in figures_of(event).items()}, step=event.step)

    def sampled(self, event: Sample) -> None:
        """Logs the text beside its step."""
        self._run.log({"sample": event.text}, step=event.step)

    def checkpoint(self, event: Checkpoint) -> None:
        """Notes the newest checkpoint in the summary."""
        self._run.summary["checkpoint"] = event.path
        self._run.summary["checkpoint_step"] = event.step

    def end(self, status: str, event: Event) -> None:
        """Writes totals into the summary and closes the run."""
        if self._run is None:
            return
        self._run.summary["status"] = status
        self._run.summary.update({f"total/{name}": value for name, value in figures_of(event).items()})
        self._run.finish(exit_code=EXIT_CODES.get(status, 1))
