"""Jobs that go on with fewer nodes when one is lost, and with all of them when it is back: a short part of
tests/faults/host_campaign.py --fewer."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import pytest

h5py: Any = pytest.importorskip("h5py")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))
restart_campaign: Any = pytest.importorskip("restart_campaign")
launched_nodes: Any = pytest.importorskip("launched_nodes")

NODES, STEPS = 3, 60
SHAPE = ("--batch", "2", "--accumulation", "3", "--sequence", "32")
LAYOUT_TOLERANCE = 1e-5  # of losses in fp32 in another layout: tests/parity/tolerances.h
SECONDS = 120


def words(program: str, archive: Path, strategy: str, *more: str) -> List[str]:
    return [program, "train", "--model", restart_campaign.MODEL, "--from-scratch", "--device", "cpu", "--cpu.threads", "1", "--dataset", "synthetic",
            "--steps", str(STEPS), "--strategy", strategy, "--archive", str(archive), *more]


def events_of(archive: Path, kind: str) -> List[Dict[str, Any]]:
    with h5py.File(archive, "r") as file:
        return [json.loads(text) for of, text in zip(file["events/kind"][:], file["events/text"][:]) if of == kind.encode()]


class Nodes:
    """Launchers of a job, each with so many ranks."""

    def __init__(self, program: str, folder: Path, strategy: str, ranks: int = 1, shape: Sequence[str] = SHAPE) -> None:
        self.folder, self.ranks, self.port = folder, ranks, launched_nodes.free_port()
        self.jobs: List[Any] = []
        self.words = words(program, folder / "run.h5", strategy, "--json", "--max-restarts", "3", "--snapshot-every", "10", "--timeout", "20",
                           *shape)
        self.whole = words(program, folder / "whole.h5", strategy, "--ranks", str(ranks * NODES), *shape)
        for node in range(NODES):
            self.start(node)

    def start(self, node: int) -> None:
        log = self.folder / f"log{len(self.jobs)}"
        self.jobs.append(launched_nodes.start_node(self.words, node, f"1:{NODES}", self.port, log, self.ranks, "--node-wait", "1"))

    def lose(self, number: int) -> None:
        """With its ranks: the system ends these with their launcher."""
        os.kill(self.jobs[number].process.pid, signal.SIGKILL)
        self.jobs[number].wait(10)

    def texts(self) -> str:
        return "\n".join(job.text() for job in self.jobs)

    def wait_until(self, condition: Callable[[Any], bool], what: str) -> None:
        end = time.monotonic() + SECONDS
        while not condition(self.jobs[0]):
            assert time.monotonic() < end and self.jobs[0].process.poll() is None, f"{what}\n{self.texts()}"
            time.sleep(0.01)

    def end(self) -> None:
        for job in self.jobs:
            job.wait(0)

    def check_record(self) -> None:
        """All have ended well, and each step is recorded once with the loss of the undisturbed run."""
        assert self.jobs[0].wait(SECONDS) == 0, self.texts()
        assert all(job.wait(30) in (0, -signal.SIGKILL) for job in self.jobs), self.texts()
        subprocess.run(self.whole, check=True, capture_output=True, timeout=SECONDS)
        _, expected, _ = restart_campaign.read_losses(str(self.folder / "whole.h5"))
        steps, losses, status = restart_campaign.read_losses(str(self.folder / "run.h5"))
        assert status == "finished" and steps == list(range(1, STEPS + 1))
        assert losses == pytest.approx(expected, rel=LAYOUT_TOLERANCE)


@pytest.mark.parametrize("strategy, ranks", [("ddp", 1), ("zero3-offload", 1), ("tp-sp=2+zero2", 2)])
def test_goes_on_without_a_lost_node(program: str, tmp_path: Path, strategy: str, ranks: int) -> None:
    nodes = Nodes(program, tmp_path, strategy, ranks)
    try:
        nodes.jobs[0].wait_for_step(25)
        nodes.lose(1)
        nodes.check_record()
    finally:
        nodes.end()
    event, = events_of(tmp_path / "run.h5", "nodes")
    assert event == {"step": event["step"], "left_out": "1", "came": "", "ranks_before": 3 * ranks, "ranks": 2 * ranks}
    assert event["step"] in (10, 20, 30), "from a snapshot, and no later step than the one that it was lost in"
    restart, = events_of(tmp_path / "run.h5", "restart")
    assert restart["from"] == "the snapshot in memory" and restart["step"] == event["step"]


def test_grows_again_at_the_next_step(program: str, tmp_path: Path) -> None:
    nodes = Nodes(program, tmp_path, "zero2")
    try:
        nodes.jobs[0].wait_for_step(15)
        nodes.lose(2)
        nodes.wait_until(lambda job: len(job.runs) == 2, "nobody goes on without the lost node")
        nodes.start(2)
        nodes.check_record()
    finally:
        nodes.end()
    left, came = events_of(tmp_path / "run.h5", "nodes")
    assert left["left_out"] == "2" and left["ranks"] == 2
    assert came["came"] == "2" and came["ranks_before"] == 2 and came["ranks"] == 3
    assert came["step"] >= left["step"], "no step is lost"
    assert len(events_of(tmp_path / "run.h5", "restart")) == 1, "to grow is no restart"


def test_two_may_be_lost_one_after_the_other(program: str, tmp_path: Path) -> None:
    nodes = Nodes(program, tmp_path, "ddp")
    try:
        nodes.jobs[0].wait_for_step(15)
        nodes.lose(1)
        nodes.wait_until(lambda job: len(job.runs) == 2, "nobody goes on without the first one")
        nodes.lose(2)
        nodes.check_record()
    finally:
        nodes.end()
    assert [event["ranks"] for event in events_of(tmp_path / "run.h5", "nodes")] == [2, 1]


def test_waits_where_fewer_lack_the_memory(program: str, tmp_path: Path) -> None:
    """Three ranks plan 548 KiB, two 627 KiB: their shards are larger."""
    nodes = Nodes(program, tmp_path, "zero2", 1, ("--batch", "1", "--accumulation", "6", "--sequence", "8", "--memory-limit", "590Ki"))
    try:
        nodes.jobs[0].wait_for_step(15)
        nodes.lose(1)
        nodes.wait_until(lambda job: "restart 2 of 3" in job.text(), "two ranks are not refused")
        nodes.start(1)
        nodes.check_record()
    finally:
        nodes.end()
    assert "--memory-limit" in nodes.jobs[0].text(), nodes.texts()


def launch(program: str, nodes: str, *more: str) -> "subprocess.CompletedProcess[str]":
    command = [program, "launch", "--nproc", "1", "--nnodes", nodes, "--node-rank", "1", "--master", "127.0.0.1:9", "--", "train", "--model",
               "llama-tiny", "--device", "cpu", "--batch", "2", *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=dict(os.environ, CONSIST_JOB_TOKEN=launched_nodes.TOKEN))


@pytest.mark.parametrize("nodes, options, message", [
    ("3:4", ["--max-restarts", "1"], "a global batch of 8 sequences cannot be divided over the 3 replicas on 3 of 4 ranks"),
    ("3:4", ["--max-restarts", "1", "--strategy", "tp-sp=4"], "--strategy tp-sp=4 has no layout for 3 of 4 ranks"),
    ("3:4", [], "needs --max-restarts K"),
    ("5:4", ["--max-restarts", "1"], "--nnodes is '5:4'"),
])
def test_refuses_what_cannot_go_on(program: str, nodes: str, options: List[str], message: str) -> None:
    result = launch(program, nodes, *options)
    assert result.returncode == 2 and message in result.stderr, result.stderr
