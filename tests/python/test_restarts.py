"""Runs that go on after a failure of a rank: a short part of tests/faults/restart_campaign.py, at moments that are certain."""
from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("h5py")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))
restart_campaign: Any = pytest.importorskip("restart_campaign")
launched_nodes: Any = pytest.importorskip("launched_nodes")

OPTIONS = argparse.Namespace(steps=150, every=10, timeout=2, most=60)  # tests run beside one another


@pytest.mark.parametrize("strategy, victim, how", [("zero2", 1, "kill"), ("ep", 0, "kill"), ("tp-sp", 1, "stop")])
def test_goes_on_from_the_snapshot(program: str, tmp_path: Path, strategy: str, victim: int, how: str) -> None:
    expected, _ = restart_campaign.undisturbed(program, strategy, str(tmp_path), OPTIONS)
    job = restart_campaign.start(program, strategy, str(tmp_path), OPTIONS)
    try:
        job.wait_for_step(25)
        restart_campaign.wait_for_snapshot(job)
        at, memory = restart_campaign.hit(job, victim, how)
        what, seconds = restart_campaign.judge(job, str(tmp_path), expected, victim, at, memory, how, OPTIONS)
    finally:
        job.wait(0)
    assert "from the snapshot in memory" in what
    assert seconds is not None
    assert job.runs[1][1] >= 10, "it begins anew"
    event, = restart_campaign.restarts_of(str(tmp_path / "run.h5"))
    assert event["restart"] == 1 and event["of"] == 3 and event["step"] == job.runs[1][1] and event["seconds_lost"] > 0


@pytest.mark.parametrize("victim", [0, 1])
def test_names_a_rank_that_stops_before_it_joined(program: str, tmp_path: Path, victim: int) -> None:
    """The others wait for it, or for the job of rank 0, and say whom they waited for."""
    job = restart_campaign.start(program, "ddp", str(tmp_path), OPTIONS)
    try:
        restart_campaign.hit(job, victim, "stop")
        assert job.wait(60) == 0, job.text()
    finally:
        job.wait(0)
    event, = restart_campaign.restarts_of(str(tmp_path / "run.h5"))
    assert event["rank"] == victim and event["what"] == f"rank {victim} did not go on before its first step"


def words(program: str, folder: Path, *more: str, steps: int = 40) -> list[str]:
    return [program, "train", "--model", "llama-tiny", "--device", "cpu", "--batch", "1", "--sequence", "32", "--steps", str(steps),
            "--ranks", "2", "--strategy", "zero2", "--archive", str(folder / "run.h5"), *more]


def test_goes_on_from_the_checkpoint_without_snapshots(program: str, tmp_path: Path) -> None:
    command = words(program, tmp_path, "--json", "--max-restarts", "1", "--snapshot-every", "0", "--checkpoint",
                    str(tmp_path / "saved"), "--checkpoint-every", "10")
    job = restart_campaign.Job(command, str(tmp_path / "log"))
    try:
        job.wait_for_step(25)
        _, memory = restart_campaign.hit(job, 1, "kill")
        assert job.wait(120) == 0, job.text()
    finally:
        job.wait(0)
    assert memory == ""
    assert job.runs[1][1] in (10, 20), job.text()
    assert f"from the checkpoint in {tmp_path / 'saved'}" in job.text()
    steps, _, status = restart_campaign.read_losses(str(tmp_path / "run.h5"))
    assert status == "finished" and steps == list(range(1, 41))


def test_an_error_that_repeats_ends_the_job(program: str, tmp_path: Path) -> None:
    """The loss diverges in the same step again."""
    command = words(program, tmp_path, "--max-restarts", "5", "--learning-rate", "1e6", "--clip", "0", "--optimizer", "sgd")
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert "training has diverged" in result.stderr
    assert result.stderr.count("all ranks are started anew, restart") == 1
    assert "the same happened before restart 1, and would happen again" in result.stderr


def test_a_refusal_is_not_repeated(program: str, tmp_path: Path) -> None:
    command = words(program, tmp_path, "--max-restarts", "5", "--memory-limit", "1Mi")
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert "started anew, restart" not in result.stderr
    assert "what was refused would be refused again" in result.stderr


def test_the_launcher_leaves_nothing_in_memory(program: str, tmp_path: Path) -> None:
    """Even if it is killed."""
    job = restart_campaign.Job(words(program, tmp_path, "--json", "--max-restarts", "1", steps=100000), str(tmp_path / "log"))
    try:
        job.wait_for_step(5)
        process = restart_campaign.rank_processes(job.process.pid)[0]
        memory = restart_campaign.memory_of(process)
        assert os.stat(memory).st_mode & 0o777 == 0o700
        os.kill(job.process.pid, signal.SIGKILL)
    finally:
        job.wait(0)
    deadline = time.monotonic() + 10
    while os.path.exists(memory) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(memory)


def test_needs_a_launcher_of_its_own(program: str, tmp_path: Path) -> None:
    environment = dict(os.environ, RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", CONSIST_JOB_TOKEN="0" * 32)
    result = subprocess.run(words(program, tmp_path, "--max-restarts", "1"), capture_output=True, text=True, timeout=60,
                            env=environment)
    assert result.returncode == 2
    assert "another launcher than Consist's has started this rank" in result.stderr


class Machine:
    """The launcher of one of two machines, which here are one."""

    def __init__(self, program: str, folder: Path, node: int, port: int, number: int = 0) -> None:
        train = words(program, folder, "--json", "--max-restarts", "3", "--snapshot-every", "10", "--timeout", "5", "--checkpoint",
                      str(folder / "saved"), "--checkpoint-every", "20")
        self.job = launched_nodes.start_node(train, node, 2, port,
                                             folder / f"log{node}-{number}")


@pytest.mark.parametrize("lost", ["rank", "machine"])
def test_several_machines_go_on(program: str, tmp_path: Path, lost: str) -> None:
    port = launched_nodes.free_port()
    machines = [Machine(program, tmp_path, node, port) for node in range(2)]
    try:
        machines[0].job.wait_for_step(25)
        if lost == "rank":
            restart_campaign.hit(machines[1].job, 1, "kill")
        else:  # its rank goes with it
            os.kill(machines[1].job.process.pid, signal.SIGKILL)
            machines[1].job.wait(10)
            machines.append(Machine(program, tmp_path, 1, port, 1))
        texts = [machine.job.text() for machine in machines]
        assert machines[0].job.wait(120) == 0, "\n".join(texts)
        assert machines[-1].job.wait(30) == 0, machines[-1].job.text()
    finally:
        for machine in machines:
            machine.job.wait(0)
    steps, _, status = restart_campaign.read_losses(str(tmp_path / "run.h5"))
    assert status == "finished" and steps == list(range(1, 41))
    event, = restart_campaign.restarts_of(str(tmp_path / "run.h5"))
    if lost == "rank":
        assert event["rank"] == 1 and event["from"] == "the snapshot in memory" and event["step"] in (10, 20), event
    else:
        assert event["what"] == "node 1 of the job is lost" and event["from"] == "the snapshot in memory" and event["step"] in (10, 20), event
