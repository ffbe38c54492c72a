"""Archives as frames: what real runs wrote, runs that go on, and files that are none or lead elsewhere."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Callable

import h5py
import numpy as np
import pandas as pd
import pytest
from conftest import TINY, Command

import consist
from consist import ArchiveError
from consist._frames import named


def test_the_configuration_and_its_surroundings(archive: Path) -> None:
    run = consist.open(archive)
    assert isinstance(run, consist.Archive)
    assert run.status == "finished" and run.reason == "" and run.name == "run"
    assert run.configuration["strategy"] == "zero2" and run.configuration["steps"] == 24
    assert run.environment["device_kind"] == "cpu"
    assert run.topology["axes"][0]["transport"] == "socket"
    assert run.program["parameters"] == 2418080
    assert run.start["weights"] > 0
    assert run.result["steps"] == 24
    assert run.communication["steps"] == 24
    assert run.programs[0].startswith("program data=2")


def test_steps_and_evaluations(archive: Path) -> None:
    run = consist.open(archive)
    assert list(run.steps.index) == list(range(1, 25)) and run.steps.index.name == "step"
    assert run.steps.loss.iloc[-1] == run.result["final_loss"]
    assert run.steps.attrs["units"]["loss"] == "nat/token"
    assert (run.steps.tokens / run.steps.seconds - run.steps.tokens_per_second).abs().max() < 1e-6 * run.steps.tokens_per_second.max()
    assert list(run.evaluations.index) == [12, 24]
    assert run.evaluations.loss.iloc[-1] == run.result["evaluation_loss"]
    assert str(run.evaluations.time.dt.tz) == "UTC"
    assert abs(run.evaluations.time.iloc[-1].timestamp() - time.time()) < 3600


def test_samples_and_events(archive: Path) -> None:
    run = consist.open(archive)
    assert list(run.samples.step) == [12, 24] and all(run.samples.text.str.len() > 0)
    assert list(run.events.kind) == ["sample", "sample"]


def test_profile_timeline_and_memory(archive: Path) -> None:
    run = consist.open(archive)
    assert {"op", "seconds", "queue", "layer"} <= set(run.profile.columns) and run.profile.seconds.sum() > 0
    timeline = run.timeline
    assert set(timeline["rank"]) == {0} and set(timeline["ranks"]) == {2}
    assert {"begin_seconds", "seconds", "exposed_seconds"} <= set(timeline.columns)
    assert "attention" in set(timeline.op) and "reduce_scatter" in set(timeline.op)
    parts = run.parts.set_index("part")
    with h5py.File(archive) as file:
        stored = json.loads(file["timeline"][:].tobytes())["classes"][0]
    assert parts.seconds.sum() == pytest.approx(stored["step_seconds"], rel=1e-3), "the parts sum to the step"
    assert parts.seconds["exposed_communication data"] == stored["parts"]["exposed_communication"]["data"]
    memory = run.memory
    assert memory.total_bytes.max() <= run.result["planned_bytes"]
    assert (memory.parameter_bytes > 0).all()


def test_experts_and_stages(consist_command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    consist_command("train", "--model", "mixtral-tiny", "--batch", 1, "--accumulation", 2, "--sequence", 16, "--ranks", 2,
                    "--strategy", "pipeline=2", "--steps", 10, "--archive", path)
    run = consist.open(path)
    assert run.expert_load.shape == (10, 4) and (run.expert_load >= 1).all().all()
    assert set(run.parts["rank"]) == {0, 1} and "bubble" in set(run.parts.part)
    assert set(run.programs) == {0, 1}


def test_a_comparison(comparison: Path) -> None:
    for place in (comparison, comparison / "comparison.h5"):
        rows = consist.open(place)
        assert isinstance(rows, consist.Archives)
        assert list(rows.table.index) == ["llama-tiny_fp32", "llama-tiny_bf16"]
        assert list(rows.table.precision) == ["fp32", "bf16"]
        assert (rows.table.tokens_per_second > 0).all()
        assert {"llama-tiny_fp32", "llama-tiny_fp32.repeat2", "llama-tiny_bf16"} <= set(rows)
        assert rows["llama-tiny_bf16"].configuration["precision"] == "bf16"
        steps = rows.steps
        assert list(steps.columns[:2]) == ["run", "step"] and len(steps) == 12 * len(rows)
        assert set(rows.parts.run) == set(rows) and len(rows.memory) > 0 and len(rows.evaluations) == 0
        assert "llama-tiny_fp32.repeat2" in str(rows) and "<td>bf16</td>" in rows._repr_html_()


def test_a_comparison_without_some_of_its_runs(comparison: Path, tmp_path: Path) -> None:
    shutil.copytree(comparison, tmp_path / "moved")
    (tmp_path / "moved" / "llama-tiny_fp32.h5").unlink()
    rows = consist.open(tmp_path / "moved")
    assert len(rows.table) == 2 and "llama-tiny_fp32" not in rows


def test_several_files_and_a_folder(archive: Path, tmp_path: Path) -> None:
    shutil.copy(archive, tmp_path / "run.h5")
    shutil.copy(archive, tmp_path / "other.h5")
    with h5py.File(tmp_path / "unrelated.h5", "w") as file:
        file["x"] = 1
    named_twice = consist.open(archive, tmp_path / "run.h5")
    assert list(named_twice) == ["run", "run (2)"] and list(named_twice.table.index) == ["run", "run (2)"]
    folder = consist.open(tmp_path)
    assert list(folder) == ["other", "run"]
    assert folder.samples.run.value_counts().to_dict() == {"other": 2, "run": 2}
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArchiveError, match="has no archive"):
        consist.open(tmp_path / "empty")


def test_a_run_that_goes_on(program: str, tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    process = subprocess.Popen([program, "train", *TINY, "--steps", "100000", "--archive", str(path)], stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        run = wait_for(lambda: consist.open(path) if path.exists() else None)
        before = len(wait_for(lambda: run.steps if len(run.steps) else None))
        assert wait_for(lambda: len(run.steps) if len(run.steps) > before else None) > before
        assert wait_for(lambda: run.status) == "running"
        with pytest.raises(ArchiveError, match="its run has not written it yet, or was cut off"):
            wait_for(lambda: run.timeline)
    finally:
        process.terminate()
        process.wait(60)
    assert run.status == "stopped" and len(run.steps) == run.result["steps"]
    assert (run.steps.index == np.arange(1, len(run.steps) + 1)).all()


def wait_for(look: Callable[[], Any], seconds: float = 60) -> Any:
    """What `look` returns once it is not None, and was not read while the run wrote it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            found = look()
        except ArchiveError as error:
            if "try once more" not in str(error):
                raise
            found = None
        if found is not None:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"nothing came within {seconds} s")


def test_a_row_that_was_never_written(archive: Path, tmp_path: Path) -> None:
    shutil.copy(archive, tmp_path / "cut.h5")
    with h5py.File(tmp_path / "cut.h5", "r+") as file:
        columns = {name: column[:] for name, column in file["steps"].items()}
        del file["steps"]
        for name, column in columns.items():
            file.create_dataset(f"steps/{name}", data=np.append(column, -1 if name == "step" else 0).astype(column.dtype))
        values = file["steps/loss"][:]
        del file["steps/loss"]
        file["steps/loss"] = np.append(values, 5.0)
    assert len(consist.open(tmp_path / "cut.h5").steps) == 24


def test_what_a_run_does_not_have(consist_command: Command, tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    consist_command("train", *TINY, "--steps", 3, "--archive", path)
    run = consist.open(path)
    assert len(run.evaluations) == 0 and len(run.samples) == 0 and len(run.events) == 0
    with pytest.raises(ArchiveError, match="train with profile=True"):
        _ = run.profile
    with pytest.raises(ArchiveError, match="the model has no experts"):
        _ = run.expert_load
    with pytest.raises(ArchiveError, match="of a run that trains"):
        _ = run.evaluation


def test_files_that_are_no_archives(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="there is no such file"):
        consist.open(tmp_path / "none.h5")
    (tmp_path / "text.h5").write_text("text")
    with pytest.raises(ArchiveError, match="cannot be read as HDF5"):
        consist.open(tmp_path / "text.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    with pytest.raises(ArchiveError, match="an HDF5 file, but no archive of Consist"):
        consist.open(tmp_path / "other.h5")
    with h5py.File(tmp_path / "newer.h5", "w") as file:
        file.attrs["consist_archive_version"] = np.int32(3)
    with pytest.raises(ArchiveError, match="of version 3; this package reads versions 1 to 2"):
        consist.open(tmp_path / "newer.h5")
    with pytest.raises(ArchiveError, match="no archive is named"):
        consist.open()


@pytest.fixture
def hostile(archive: Path, tmp_path: Path) -> Path:
    """A copy of an archive beside a file with a secret."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["text"] = '{"secret": 1}'
        file["numbers"] = np.arange(24.0)
    shutil.copy(archive, tmp_path / "hostile.h5")
    return tmp_path / "hostile.h5"


def test_links_lead_nowhere(hostile: Path) -> None:
    with h5py.File(hostile, "r+") as file:
        for name, link in (("config", h5py.ExternalLink("secret.h5", "/text")), ("start", h5py.SoftLink("/config"))):
            del file[name]
            file[name] = link
        del file["steps/loss"]
        file["steps/loss"] = h5py.ExternalLink("secret.h5", "/numbers")
    run = consist.open(hostile)
    for read in (lambda: run.configuration, lambda: run.start, lambda: run.steps):
        with pytest.raises(ArchiveError, match="is a link to elsewhere"):
            read()


def test_data_of_other_files_are_not_read(hostile: Path, tmp_path: Path) -> None:
    (tmp_path / "raw").write_bytes(b"secret" * 40)
    with h5py.File(hostile, "r+") as file:
        del file["steps/loss"], file["timeline"]
        file.create_dataset("steps/loss", (24,), "f8", external=[(str(tmp_path / "raw"), 0, 192)])
        layout = h5py.VirtualLayout((24,), "f8")
        layout[:] = h5py.VirtualSource(str(tmp_path / "secret.h5"), "numbers", (24,))
        file.create_virtual_dataset("timeline", layout)
    run = consist.open(hostile)
    with pytest.raises(ArchiveError, match="/steps/loss lie in another file"):
        _ = run.steps
    with pytest.raises(ArchiveError, match="/timeline lie in another file"):
        _ = run.timeline


def test_values_of_other_types(hostile: Path) -> None:
    with h5py.File(hostile, "r+") as file:
        del file["config"], file["result"], file["start"], file["profile"]
        file["config"] = "[1]"
        file["result"] = "[" * 100_000
        file["start"] = 7.0
        file.create_dataset("profile", (1 << 30,), "i8", chunks=(1 << 20,), compression="gzip")
    run = consist.open(hostile)
    for read, message in ((lambda: run.configuration, "not an object of JSON"), (lambda: run.result, "is no JSON"),
                          (lambda: run.start, "is no text"), (lambda: run.profile, "claims more than")):
        with pytest.raises(ArchiveError, match=message):
            read()


def test_other_filters_are_refused(hostile: Path) -> None:
    with h5py.File(hostile, "r+") as file:
        del file["steps/loss"]
        file.create_dataset("steps/loss", data=np.zeros(24), chunks=(24,), compression="lzf")
    with pytest.raises(ArchiveError, match="has a filter that archives do not have"):
        _ = consist.open(hostile).steps


def test_a_comparison_names_archives_of_its_folder_alone(tmp_path: Path, archive: Path) -> None:
    with h5py.File(tmp_path / "comparison.h5", "w") as file:
        file.attrs["consist_comparison_version"] = np.int32(1)
        file.create_group("summary")
        file["runs/a"] = h5py.ExternalLink(str(archive), "/")
    with pytest.raises(ArchiveError, match="does not name an archive of the same folder"):
        consist.open(tmp_path)


@pytest.mark.parametrize("column, unit, name", [
    ("seconds", "s", "seconds"), ("time", "s", "time"), ("device_power", "W", "device_power_watts"),
    ("device_memory_used", "B", "device_memory_used_bytes"), ("planned_bytes", "B", "planned_bytes"),
    ("device_temperature", "degC", "device_temperature_celsius"), ("device_sm_clock", "Hz", "device_sm_clock_hz"),
    ("device_pcie_sent", "B/s", "device_pcie_sent_bytes_per_second"), ("tokens_per_second", "1/s", "tokens_per_second"),
    ("loss", "nat/token", "loss"), ("loss", "nat/pair", "loss"), ("final_loss", "nat/pair", "final_loss"),
    ("speed", "m/s", "speed [m/s]"), ("joules_per_billion_tokens", "J", "joules_per_billion_tokens")])
def test_units_are_in_names(column: str, unit: str, name: str) -> None:
    assert named(column, unit) == name


def test_an_archive_shows_itself(archive: Path) -> None:
    run = consist.open(archive)
    assert repr(run) == f"Archive({os.fspath(archive)!r})"
    assert "tokens_per_second" in str(run) and "MiB" in str(run)
    assert "<table>" in run._repr_html_() and "zero2" in run._repr_html_()
    assert isinstance(consist.open(archive, archive).table, pd.DataFrame)
