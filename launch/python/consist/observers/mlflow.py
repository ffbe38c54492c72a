"""Observer for MLflow: a run in a store of files, or in any store that MLflow knows."""
from __future__ import annotations

import os
import time
from typing import Any, Mapping, Optional

from ..errors import missing_package
from ..events import Checkpoint, Evaluation, Event, RunStarted, Sample, Step
from . import Observer, figures_of, flat_configuration

STATES = {"finished": "FINISHED", "stopped": "KILLED"}
LONGEST_VALUE = 500  # of a parameter, in characters


class MlflowObserver(Observer):
    """Writes a run into ``store``, by the package mlflow (or mlflow-skinny).

    ``store`` is a folder, as ``mlruns``, or a URI of MLflow's (``sqlite:///mlflow.db``, ``https://...``). Steps are
    those of the run; metrics of evaluations begin with ``evaluation_``. Samples are artifacts.
    """

    def __init__(self, store: str = "mlruns", experiment: str = "consist", name: Optional[str] = None) -> None:
        is_folder = "://" not in store and not store.startswith("file:")
        if is_folder or store.startswith("file:"):
            # MLflow 3 asks for this word where it is given a store of files, which gets no new features.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        try:
            from mlflow.entities import Metric
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise missing_package("mlflow", "the observer of MLflow") from None
        self._metric: Any = Metric
        self._client: Any = MlflowClient(tracking_uri=f"file://{os.path.abspath(store)}" if is_folder else store)
        self._experiment, self._name = experiment, name
        self._run: Optional[str] = None
        self._milliseconds = 0

    @property
    def run_id(self) -> Optional[str]:
        """MLflow's name of the run, once it has begun."""
        return self._run

    def begin(self, event: RunStarted) -> None:
        """Makes the run, with the configuration as its parameters."""
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(self._experiment)
        run = self._client.create_run(experiment, run_name=self._name)
        self._run, self._milliseconds = run.info.run_id, run.info.start_time
        for name, value in flat_configuration(event).items():
            self._client.log_param(self._run, name, str(value)[:LONGEST_VALUE])

    def step(self, event: Step) -> None:
        """Logs the step's figures."""
        self._log(figures_of(event), event.step)

    def evaluated(self, event: Evaluation) -> None:
        """Logs the evaluation beside its step."""
        self._log({f"evaluation_{name}": value for name, value in figures_of(event).items()}, event.step)

    def sampled(self, event: Sample) -> None:
        """Stores the text as an artifact."""
        self._client.log_text(self._run, event.text, f"samples/step_{event.step:09d}.txt")

    def checkpoint(self, event: Checkpoint) -> None:
        """Notes the newest checkpoint as a tag."""
        self._client.set_tag(self._run, "checkpoint", event.path)
        self._client.set_tag(self._run, "checkpoint_step", event.step)

    def end(self, status: str, event: Event) -> None:
        """Logs totals and closes the run."""
        if self._run is None:
            return
        self._log({f"total_{name}": value for name, value in figures_of(event).items()}, 0)
        self._client.set_terminated(self._run, STATES.get(status, "FAILED"))

    def _log(self, figures: Mapping[str, float], step: int) -> None:
        now = max(int(time.time() * 1000), self._milliseconds)
        metrics = [self._metric(name, value, now, step) for name, value in figures.items()]
        self._client.log_batch(self._run, metrics=metrics)
