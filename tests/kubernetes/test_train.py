"""consist train --on kubernetes on a stand-in for kubectl: what it shows of the job, and how it ends. No real cluster has run this."""
from __future__ import annotations

import os
import re
import signal
import subprocess
import time

import pytest
from hosts import wait_for
from kubernetes_cluster import Cluster
from training import TINY, losses_of

pytest.importorskip("yaml", reason="PyYAML, which the stand-in reads with, is not installed (tests/requirements.txt)")

LONG = [*TINY[:-4], "--steps", "100000", "--device", "cpu"]


def everything_is_deleted(cluster: Cluster) -> None:
    assert cluster.deleted() and re.match(r"job,service,configmap,secret --selector=consist-job=consist-train-", cluster.deleted()[-1])
    wait_for(lambda: not cluster.ranks(), 20, "the end of all ranks")


def test_a_run_is_followed_and_brings_its_archive(cluster: Cluster) -> None:
    run = cluster.start(*TINY, "--archive", "run.h5")
    output, errors = run.communicate(timeout=90)
    assert run.returncode == 0, output + errors
    assert "runs on host0, host1" in errors and re.search(r"^step +3/3 ", errors, re.M), errors
    assert "tokens/s" in output and "step " not in output.split("tokens/s")[0].split("\n")[0] and "consist-has-ended" not in output
    assert f"is {cluster.folder}/run.h5" in errors and len(losses_of(cluster.folder / "run.h5")) == 3
    whole = subprocess.run([cluster.program, "train", *TINY, "--ranks", "4", "--archive", "whole.h5"], cwd=cluster.folder, env=cluster.environment,
                           capture_output=True, timeout=90, check=True)
    assert whole.returncode == 0 and losses_of(cluster.folder / "run.h5") == losses_of(cluster.folder / "whole.h5")
    everything_is_deleted(cluster)


def test_a_log_whose_connection_breaks_is_read_on(cluster: Cluster) -> None:
    (cluster.state / "cut").write_text("3")
    run = cluster.start(*["20" if word == "3" else word for word in TINY], "--json")
    output, errors = run.communicate(timeout=90)
    assert run.returncode == 0, output + errors
    assert not (cluster.state / "cut").exists()
    assert re.findall(r'"step": ?(\d+)', output) == [str(step) for step in range(1, 21)], output


def test_ctrl_c_ends_the_run_in_good_order(cluster: Cluster) -> None:
    run = cluster.start(*LONG, "--archive", "run.h5", "--checkpoint", "checkpoints")
    cluster.trains()
    run.send_signal(signal.SIGINT)
    output, errors = run.communicate(timeout=60)
    assert run.returncode == 130, output + errors
    assert re.match(r"job consist-train-\S+ --wait=false --ignore-not-found$", cluster.deleted()[0])
    assert list((cluster.folder / "checkpoints").iterdir()) and losses_of(cluster.folder / "run.h5")
    everything_is_deleted(cluster)


def test_a_second_ctrl_c_ends_it_at_once(cluster: Cluster) -> None:
    run = cluster.start(*LONG)
    cluster.trains()
    for rank in cluster.ranks():
        os.kill(rank, signal.SIGSTOP)
    run.send_signal(signal.SIGINT)
    time.sleep(1.5)
    run.send_signal(signal.SIGINT)
    output, errors = run.communicate(timeout=40)
    assert run.returncode == 130, output + errors
    assert any("--grace-period=0 --force" in line for line in cluster.deleted())
    everything_is_deleted(cluster)


def test_a_rank_that_is_killed_gives_the_status_and_with_restarts_is_replaced(cluster: Cluster) -> None:
    run = cluster.start(*["60" if word == "3" else word for word in TINY], "--archive", "run.h5", "--max-restarts", 1, "--snapshot-every", 5)
    cluster.trains()
    os.kill(cluster.ranks()[-1], signal.SIGKILL)
    output, errors = run.communicate(timeout=90)
    assert run.returncode == 0, output + errors
    assert "all ranks are started anew, restart 1 of 1" in errors and len(losses_of(cluster.folder / "run.h5")) == 60


def test_a_rank_that_is_killed_gives_the_status(cluster: Cluster) -> None:
    run = cluster.start(*LONG, "--archive", "run.h5")
    cluster.trains()
    os.kill(cluster.ranks()[-1], signal.SIGKILL)
    output, errors = run.communicate(timeout=90)
    assert run.returncode == 128 + signal.SIGKILL, output + errors
    assert losses_of(cluster.folder / "run.h5")
    everything_is_deleted(cluster)


def test_pods_that_wait_are_said_to_and_a_refusal_is_kubernetes_own(cluster: Cluster) -> None:
    (cluster.state / "pending").write_text("0/4 nodes are available: 4 Insufficient nvidia.com/gpu.")
    run = cluster.start(*TINY)
    assert run.stderr
    lines = [run.stderr.readline() for _ in range(2)]
    assert "waits: 0/4 nodes are available: 4 Insufficient nvidia.com/gpu." in lines[1], lines
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=30)
    assert run.returncode == 130, errors
    (cluster.state / "refuse").write_text('namespaces "train" not found')
    run = cluster.start(*TINY)
    _, errors = run.communicate(timeout=30)
    assert run.returncode == 2 and 'Kubernetes refuses the job: error: namespaces "train" not found. The job is made from' in errors, errors


def test_without_kubectl_the_error_says_so(cluster: Cluster) -> None:
    cluster.environment["PATH"] = "/nowhere"
    run = cluster.start(*TINY)
    _, errors = run.communicate(timeout=30)
    assert run.returncode == 2 and "--on kubernetes: there is no kubectl in PATH" in errors, errors
