"""Observers for Weights & Biases and MLflow, with the real packages: they are large, and the tests skip without them."""
from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List

import h5py
import pytest
from conftest import ROOT, TINY

import consist
from consist import events
from consist.observers import Observer, figures_of
from consist.observers.replay import events_of, replay

PACKAGE = ROOT / "launch" / "python"


def run_module(*words: object) -> "subprocess.CompletedProcess[str]":
    environment = dict(os.environ, PYTHONPATH=str(PACKAGE))
    return subprocess.run([sys.executable, "-m", "consist.observers", *map(str, words)], capture_output=True, text=True, timeout=240,
                          env=environment)


def test_an_archive_is_told_in_its_order(archive: Path) -> None:
    told = list(events_of(consist.Archive(archive)))
    assert isinstance(told[0], events.RunStarted) and told[0].configuration["strategy"] == "zero2" and told[0].ranks == 2
    steps = [event for event in told if isinstance(event, events.Step)]
    assert [event.step for event in steps] == list(range(1, 25)) and steps[0].ms is not None and steps[0].ms > 0
    kinds = [type(event) for event in told]
    after_12 = kinds.index(events.Evaluation)
    assert kinds[after_12 - 1:after_12 + 3] == [events.Step, events.Evaluation, events.Sample, events.Step]
    last = told[-1]
    assert isinstance(last, events.RunResult) and last.steps == 24 and last.loss == steps[-1].loss


def test_metrics_of_the_model_stand_beside_the_others(archive: Path, tmp_path: Path) -> None:
    """Numbers that a model or a loss reports of its own, of events as they come and of an archive."""
    data: Dict[str, Any] = {"event": "step", "step": 3, "loss": 0.5, "metrics": {"accuracy": 0.75, "nothing": None}}
    event = events.Step(data=data, step=3, loss=0.5, metrics=data["metrics"])
    assert figures_of(event) == {"loss": 0.5, "accuracy": 0.75}
    assert event.columns == {"event": "step", "step": 3, "loss": 0.5, "accuracy": 0.75, "nothing": None}
    copy = tmp_path / "own.h5"
    shutil.copy(archive, copy)
    with h5py.File(copy, "a") as file:
        rows = len(file["evaluations/step"])
        assert rows > 0
        file["evaluations"].create_dataset("accuracy", data=[0.25] * rows)
        file["steps"].create_dataset("accuracy", data=[0.5] * len(file["steps/step"]))
    told = list(events_of(consist.Archive(copy)))
    assert {figures_of(one)["accuracy"] for one in told if isinstance(one, events.Step)} == {0.5}
    evaluations = [one for one in told if isinstance(one, events.Evaluation)]
    assert len(evaluations) == rows and evaluations[0].metrics == {"accuracy": 0.25}


def test_observers_are_short() -> None:
    for name in ("wandb", "mlflow"):
        assert len((PACKAGE / "consist" / "observers" / f"{name}.py").read_text().splitlines()) < 150


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, kind in (("wandb", "WandbObserver"), ("mlflow", "MlflowObserver")):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(consist.MissingPackageError, match=rf"needs the package {name}.*pip install {name}"):
            import importlib
            getattr(importlib.import_module(f"consist.observers.{name}"), kind)()


def test_the_command_line_refuses(archive: Path) -> None:
    assert "name archives, or a run behind --" in run_module("wandb").stderr
    assert "name archives, or a run behind --" in run_module("wandb", archive, "--", "consist", "train").stderr
    refused = run_module("mlflow", "--", "consist", "compare")
    assert refused.returncode == 1 and "behind -- stands the run: consist train OPTIONS" in refused.stderr


# Weights & Biases


def log_records(data: bytes) -> Iterator[bytes]:
    """The records of a file in LevelDB's log format, behind the seven bytes by which wandb marks its own."""
    place, record, block, header = 7, b"", 32768, 7
    whole_or_last = (1, 4)
    while place + header <= len(data):
        if block - place % block < header:
            place += block - place % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        record += data[place + header:place + header + length]
        place += header + length
        if kind in whole_or_last:
            yield record
            record = b""


def read_wandb(folder: Path) -> Dict[str, List[Any]]:
    """The records of the one offline run in a folder, once its end is among them: wandb's service writes behind finish()."""
    end = time.monotonic() + 60
    while not (found := wandb_records(folder))["exit"] and time.monotonic() < end:
        time.sleep(0.05)
    return found


def wandb_records(folder: Path) -> Dict[str, List[Any]]:
    """The records so far: configuration, history, summary, exit."""
    from wandb.proto import wandb_internal_pb2
    [file] = (folder / "wandb").glob("offline-run-*/run-*.wandb")
    found: Dict[str, List[Any]] = {"config": [], "history": [], "summary": [], "exit": []}

    def items(record: Any) -> Dict[str, Any]:
        return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record}

    for data in log_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found["config"].append(items(record.run.config.update))
        elif kind == "history":
            found["history"].append(items(record.history.item))
        elif kind == "summary":
            found["summary"].append(items(record.summary.update))
        elif kind == "exit":
            found["exit"].append(record.exit.exit_code)
    return found


def check_wandb(folder: Path, archive: consist.Archive) -> None:
    found = read_wandb(folder)
    assert found["config"][0]["strategy"] == "zero2"
    losses = {entry["_step"]: entry["loss"] for entry in found["history"] if "loss" in entry}
    assert losses == pytest.approx(dict(archive.steps.loss))
    evaluated = {entry["_step"]: entry["evaluation/loss"] for entry in found["history"] if "evaluation/loss" in entry}
    assert evaluated == pytest.approx(dict(archive.evaluations.loss))
    assert {entry["_step"]: entry["sample"] for entry in found["history"] if "sample" in entry} == dict(
        zip(archive.samples.step, archive.samples.text))
    assert found["exit"] == [0] and {"status": "finished"}.items() <= {key: value for part in found["summary"] for key, value in part.items()}.items()


@pytest.mark.filterwarnings("default")
def test_wandb_of_an_archive(archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from consist.observers.wandb import WandbObserver
    observer = WandbObserver(tmp_path)
    replay(consist.Archive(archive), observer)
    assert observer.path is not None and Path(observer.path).parent == tmp_path / "wandb"
    check_wandb(tmp_path, consist.Archive(archive))


@pytest.mark.filterwarnings("default")
def test_wandb_on_a_command_line(archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    result = run_module("wandb", archive, "--folder", tmp_path, "--name", "x")
    assert result.returncode == 0, result.stderr
    check_wandb(tmp_path, consist.Archive(archive))


# MLflow


def check_mlflow(store: Path, archive: consist.Archive, status: str = "FINISHED") -> None:
    from mlflow.tracking import MlflowClient
    client = MlflowClient(tracking_uri=f"file://{store}")
    experiment = client.get_experiment_by_name("consist")
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.status == status and run.data.params["strategy"] == "zero2" and run.data.params["ranks"] == "2"
    assert {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "loss")} == pytest.approx(
        dict(archive.steps.loss))
    assert {metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "evaluation_loss")} == pytest.approx(
        dict(archive.evaluations.loss))
    names = [file.path for file in client.list_artifacts(run.info.run_id, "samples")]
    assert names == [f"samples/step_{step:09d}.txt" for step in archive.samples.step]


@pytest.mark.filterwarnings("default")
def test_mlflow_of_an_archive(archive: Path, tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    from consist.observers.mlflow import MlflowObserver
    observer = MlflowObserver(str(tmp_path / "runs"), name="x")
    replay(consist.Archive(archive), observer)
    assert observer.run_id is not None
    check_mlflow(tmp_path / "runs", consist.Archive(archive))


# Live


def live_words(path: Path) -> List[object]:
    return [*TINY, "--strategy", "zero2", "--ranks", 2, "--steps", 8, "--evaluate-every", 4, "--evaluate-sequences", 4, "--sample-every",
            4, "--sample-prompt", "The", "--sample-tokens", 2, "--archive", path]


@pytest.mark.filterwarnings("default")
def test_wandb_live(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    result = run_module("wandb", "--folder", tmp_path, "--", "consist", "train", *live_words(tmp_path / "run.h5"))
    assert result.returncode == 0, result.stderr
    check_wandb(tmp_path, consist.Archive(tmp_path / "run.h5"))


@pytest.mark.filterwarnings("default")
def test_mlflow_live(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    result = run_module("mlflow", "--folder", tmp_path / "runs", "--", "consist", "train", *live_words(tmp_path / "run.h5"))
    assert result.returncode == 0, result.stderr
    check_mlflow(tmp_path / "runs", consist.Archive(tmp_path / "run.h5"))


class Recorder(Observer):
    """Notes the kinds of events that it is told of."""

    def __init__(self) -> None:
        self.told: List[str] = []

    def begin(self, event: events.RunStarted) -> None:
        self.told.append("begin")

    def step(self, event: events.Step) -> None:
        self.told.append(f"step {event.step}")

    def evaluated(self, event: events.Evaluation) -> None:
        self.told.append(f"evaluation {event.step}")

    def sampled(self, event: events.Sample) -> None:
        self.told.append(f"sample {event.step}")

    def checkpoint(self, event: events.Checkpoint) -> None:
        self.told.append(f"checkpoint {event.step} {event.path}")

    def end(self, status: str, event: events.Event) -> None:
        self.told.append(status)
