"""consist train --on slurm: the job that it makes, what it shows of it, and how it ends."""
from __future__ import annotations

import json
import os
import re
import signal
import stat
from pathlib import Path
from typing import List

import h5py  # type: ignore[import-untyped]
import pytest
from hosts import wait_for
from slurm_cluster import Slurm
from training import TINY, local_losses, losses_of, steps_in, write_cluster

LONG = [*TINY[:-4], "--steps", "100000", "--device", "cpu"]


@pytest.fixture
def shared(tmp_path: Path, program: str) -> Path:
    """The folder that all nodes see; the cluster's file beside it names it."""
    folder = tmp_path / "shared"
    write_cluster(tmp_path, f'folder = "{folder}"', f'consist = "{program}"', "nodes = 4")
    return folder


def jobs_in_queue(slurm: Slurm) -> List[str]:
    return slurm.run(["squeue", "-h", "-o", "%A %T"]).stdout.split("\n")[:-1]


def running(slurm: Slurm, archive: Path) -> str:
    """Waits until the ranks of the only job have trained for two steps; its number."""
    wait_for(lambda: steps_in(archive) > 1, 40, "two steps")
    number, state = slurm.run(["squeue", "-h", "-o", "%A %T"]).stdout.split()
    assert state == "RUNNING"
    return number


def ranks_of(slurm: Slurm, node: str) -> List[int]:
    """Ranks that a launcher has started there."""
    return [process for process in slurm.processes_of(node, "train --config")
            if Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[1] == b"train"]


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_run_over_four_nodes_is_followed_and_brings_its_archive(slurm: Slurm, program: str, tmp_path: Path, shared: Path) -> None:
    run = slurm.run([program, "train", "--on", "slurm", *TINY, "--archive", "run.h5"], tmp_path, CONSIST_JOB_TOKEN="of another job")
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"^consist: job (\d+), 4 ranks; its files are in .*/train-1$", run.stderr, re.M)
    assert f"the archive of job {re.findall(r'job ([0-9]+)', run.stderr)[0]} is {tmp_path}/run.h5" in run.stderr
    assert re.search(r"^step +3/3 ", run.stderr, re.M), run.stderr
    assert "tokens/s" in run.stdout, "what rank 0 says in the end"
    assert losses_of(tmp_path / "run.h5") == local_losses(program, tmp_path)
    assert "runs on node[1-4]" in run.stderr
    assert not (shared / "train-1" / "token").exists()


def test_events_are_those_of_rank_0(slurm: Slurm, program: str, tmp_path: Path, shared: Path) -> None:
    words = ["ddp" if word == "zero2" else word for word in TINY]
    write_cluster(tmp_path, f'folder = "{shared}"', f'consist = "{program}"', "nodes = 4", "ranks-per-node = 2")
    run = slurm.run([program, "train", "--on", "slurm", *words, "--ranks", 2, "--json"], tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    events = [json.loads(line) for line in run.stdout.splitlines()]
    assert [event["step"] for event in events if event["event"] == "step"] == [1, 2, 3]
    assert "--nodes=1\n#SBATCH --ntasks-per-node=2\n" in (shared / "train-1" / "job.sbatch").read_text()


def test_ctrl_c_ends_the_job_after_its_step(slurm: Slurm, program: str, tmp_path: Path, shared: Path) -> None:
    shared.mkdir()
    words = [program, "train", "--on", "slurm", *LONG, "--archive", shared / "mine.h5", "--checkpoint", "checkpoints"]
    run = slurm.start(words, tmp_path)
    number = running(slurm, shared / "mine.h5")
    token = shared / "train-1" / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    secret = token.read_text()
    assert not any(secret in text_of(path) for path in Path("/proc").glob("[0-9]*/cmdline"))
    slurm.interrupt(run)
    output, errors = run.communicate(timeout=30)
    assert run.returncode == 130, output + errors
    assert "SIGINT (Ctrl-C): asking the job for its end" in errors and f"the archive of job {number} is {shared}/mine.h5" in errors
    assert list((tmp_path / "checkpoints").iterdir()), "a run that is stopped saves its work"
    assert losses_of(shared / "mine.h5") and not token.exists()
    assert jobs_in_queue(slurm) == []


def test_ctrl_c_takes_a_job_that_waits_out_of_the_queue(slurm: Slurm, program: str, tmp_path: Path, shared: Path) -> None:
    blocker = slurm.start(["srun", "--nodes=4", "--exclusive", "sleep", "60"])
    wait_for(lambda: jobs_in_queue(slurm), 10, "a job that is in the way")
    run = slurm.start([program, "train", "--on", "slurm", *TINY], tmp_path)
    assert run.stderr
    wait_for(lambda: len(jobs_in_queue(slurm)) == 2, 20, "the job")
    lines = [run.stderr.readline() for _ in range(2)]
    assert re.match(r"consist: job \d+ waits(: Resources|: Priority| for its turn)", lines[1]), lines
    slurm.interrupt(run)
    _, errors = run.communicate(timeout=30)
    assert run.returncode == 130, errors
    assert len(jobs_in_queue(slurm)) == 1
    slurm.run(["scancel", "--me"])
    blocker.communicate(timeout=20)


def test_a_job_that_others_cancel_is_said_to_be(slurm: Slurm, program: str, tmp_path: Path, shared: Path) -> None:
    run = slurm.start([program, "train", "--on", "slurm", *LONG, "--archive", "run.h5"], tmp_path)
    number = running(slurm, shared / "train-1" / "run.h5")
    slurm.run(["scancel", number])
    output, errors = run.communicate(timeout=30)
    assert run.returncode == 130, "the ranks are stopped in good order\n" + output + errors
    assert f"consist: job {number} was cancelled, not by this command" in errors.splitlines()[-1]


def test_a_node_that_vanishes_is_named(slurm: Slurm, program: str, tmp_path: Path, shared: Path) -> None:
    run = slurm.start([program, "train", "--on", "slurm", *LONG, "--archive", "run.h5", "--timeout", 5], tmp_path)
    number = running(slurm, shared / "train-1" / "run.h5")
    slurm.lose_node("node3")
    try:
        output, errors = run.communicate(timeout=60)
        assert run.returncode == 1, output + errors
        assert re.search(rf"^consist: job {number} lost a node: node3 \(Not responding\)", errors, re.M), errors
        assert re.search(r"rank 2 .*node3", errors), "the ranks notice it, too"
        assert losses_of(tmp_path / "run.h5"), "what was trained is kept"
    finally:
        slurm.start_node("node3")


def test_a_rank_that_is_killed_is_named_and_gives_the_status(slurm: Slurm, program: str, tmp_path: Path, shared: Path) -> None:
    run = slurm.start([program, "train", "--on", "slurm", *LONG, "--archive", "run.h5"], tmp_path)
    running(slurm, shared / "train-1" / "run.h5")
    rank, = slurm.processes_of("node3", f"{program} train --config")
    os.kill(rank, signal.SIGKILL)
    output, errors = run.communicate(timeout=30)
    assert run.returncode == 128 + signal.SIGKILL, output + errors
    assert re.search("rank 2 on host node3 .*died", errors), errors
    with h5py.File(tmp_path / "run.h5") as archive:
        assert archive.attrs["status"] == b"failed" and b"rank 2 on host node3" in archive.attrs["reason"], "rank 0 has ended by itself"


def test_a_rank_that_is_killed_is_replaced(slurm: Slurm, program: str, tmp_path: Path, shared: Path) -> None:
    write_cluster(tmp_path, f'folder = "{shared}"', f'consist = "{program}"', "nodes = 2", "ranks-per-node = 2")
    words = ["60" if word == "3" else word for word in TINY]
    run = slurm.start([program, "train", "--on", "slurm", *words, "--archive", "run.h5", "--max-restarts", 2, "--snapshot-every", 5], tmp_path)
    running(slurm, shared / "train-1" / "run.h5")
    os.kill(ranks_of(slurm, "node2")[0], signal.SIGKILL)
    output, errors = run.communicate(timeout=90)
    assert run.returncode == 0, output + errors
    assert re.search(r"rank [23] was ended by signal 9 .*; all ranks are started anew, restart 1 of 2", errors), errors
    assert "tokens/s" in output and "goes on after step" in output + errors
    whole = slurm.run([program, "train", *words, "--ranks", 4, "--archive", "whole.h5"], tmp_path, timeout=90)
    assert whole.returncode == 0, whole.stderr
    assert len(losses_of(tmp_path / "run.h5")) == 60 and losses_of(tmp_path / "run.h5") == losses_of(tmp_path / "whole.h5")
    assert not (shared / "train-1" / "token").exists() and jobs_in_queue(slurm) == []


def test_a_rank_that_dies_too_often_ends_the_job_with_its_status(slurm: Slurm, program: str, tmp_path: Path, shared: Path) -> None:
    write_cluster(tmp_path, f'folder = "{shared}"', f'consist = "{program}"', "nodes = 2", "ranks-per-node = 2")
    run = slurm.start([program, "train", "--on", "slurm", *LONG, "--archive", "run.h5", "--max-restarts", 1, "--snapshot-every", 5], tmp_path)
    running(slurm, shared / "train-1" / "run.h5")
    first = ranks_of(slurm, "node2")
    os.kill(first[0], signal.SIGKILL)
    wait_for(lambda: len(ranks_of(slurm, "node2")) == 2 and not set(ranks_of(slurm, "node2")) & set(first), 30, "new ranks")
    before = len(losses_of(shared / "train-1" / "run.h5")) if steps_in(shared / "train-1" / "run.h5") else 0
    wait_for(lambda: steps_in(shared / "train-1" / "run.h5") > before + 2, 40, "steps of the new ranks")
    os.kill(ranks_of(slurm, "node2")[1], signal.SIGKILL)
    output, errors = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGKILL, output + errors
    assert "the one restart of --max-restarts is used up" in errors, errors


def test_ctrl_c_ends_a_job_whose_ranks_would_be_replaced(slurm: Slurm, program: str, tmp_path: Path, shared: Path) -> None:
    write_cluster(tmp_path, f'folder = "{shared}"', f'consist = "{program}"', "nodes = 2", "ranks-per-node = 2")
    run = slurm.start([program, "train", "--on", "slurm", *LONG, "--archive", "run.h5", "--max-restarts", 1], tmp_path)
    running(slurm, shared / "train-1" / "run.h5")
    slurm.interrupt(run)
    output, errors = run.communicate(timeout=40)
    assert run.returncode == 130, output + errors
    assert losses_of(tmp_path / "run.h5") and jobs_in_queue(slurm) == []


def test_a_run_that_its_ranks_refuse_gives_their_status(slurm: Slurm, program: str, tmp_path: Path, shared: Path) -> None:
    run = slurm.run([program, "train", "--on", "slurm", *TINY, "--trace", "/proc/no/trace.json"], tmp_path)
    assert run.returncode == 2, run.stdout + run.stderr
    assert "/proc/no" in run.stderr


def test_a_partition_that_is_not_there_is_refused_with_those_that_are(slurm: Slurm, program: str, tmp_path: Path, shared: Path) -> None:
    write_cluster(tmp_path, f'folder = "{shared}"', 'partition = "gpu"')
    run = slurm.run([program, "train", "--on", "slurm", *TINY], tmp_path)
    assert run.returncode == 2, run.stdout + run.stderr
    assert "Slurm refuses the job: invalid partition specified: gpu; " in run.stderr and "Partitions here: main." in run.stderr
    assert not list(shared.iterdir()) and jobs_in_queue(slurm) == []
