"""A rank that is slowed while its run goes on is named, by its own work and not by the waiting of the others."""
from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

h5py = pytest.importorskip("h5py")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "faults"))
restart_campaign: Any = pytest.importorskip("restart_campaign")


def test_is_named(program: str, tmp_path: Path) -> None:
    archive = tmp_path / "run.h5"
    job = restart_campaign.Job([program, "train", "--model", "llama-tiny", "--device", "cpu", "--cpu.threads", "1", "--batch", "1", "--sequence",
                                "64", "--steps", "1000000", "--ranks", "2", "--strategy", "zero2", "--archive", str(archive), "--json"],
                               str(tmp_path / "log"))
    over = threading.Event()

    def slow(process: int) -> None:
        """Stands still for two thirds of the time."""
        while not over.is_set():
            os.kill(process, signal.SIGSTOP)
            time.sleep(0.02)
            os.kill(process, signal.SIGCONT)
            time.sleep(0.01)

    try:
        job.wait_for_step(5)
        process = restart_campaign.rank_processes(job.process.pid)[1]
        slowing = threading.Thread(target=slow, args=(process,))
        slowing.start()
        end = time.monotonic() + 90
        while "works" not in job.text() and time.monotonic() < end and job.process.poll() is None:
            time.sleep(0.1)
        over.set()
        slowing.join()
        job.process.send_signal(signal.SIGINT)
        assert job.wait(60) == 130, job.text()
    finally:
        over.set()
        job.wait(0)
    said, = re.findall(r"step (\d+): rank 1 on host (\S+) works (\d+)% longer than the other ranks do", job.text())
    assert int(said[2]) > 15
    with h5py.File(archive) as file:
        events = [json.loads(text) for kind, text in zip(file["events/kind"][:], file["events/text"][:]) if kind == b"slow_rank"]
    assert [event["rank"] for event in events] == [1] and events[0]["step"] == int(said[0]) and events[0]["host"] == said[1]
