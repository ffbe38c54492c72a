"""consist train --on mpi: Open MPI's mpirun, whose daemons ssh starts on the hosts."""
from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import List, Union

import pytest
from hosts import wait_for
from ssh_hosts import SshNetwork, SshPorts, processes_with
from training import TINY, local_losses, losses_of, steps_in, write_cluster

Place = Union[SshNetwork, SshPorts]
LONG = [*TINY[:-4], "--steps", "100000", "--device", "cpu"]

needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun (Debian: openmpi-bin)")


@pytest.fixture
def network(hosts: Place, program: str, tmp_path: Path) -> SshNetwork:
    """Two hosts of two ranks each."""
    if not isinstance(hosts, SshNetwork):
        pytest.skip("mpirun takes names, not ports; hosts of their own need root")
    options = ["--allow-run-as-root", "--mca", "plm_rsh_args", f"-F {hosts.folder}/ssh_config", "--mca", "btl_tcp_if_include", "inner", "--mca",
               "oob_tcp_if_exclude", "lo"]
    write_cluster(tmp_path, 'hosts = ["node1", "node2"]', "ranks-per-host = 2", f'folder = "{tmp_path}/shared"', f'consist = "{program}"',
                  "options = [" + ", ".join(f'"{option}"' for option in options) + "]", kind="mpi")
    return hosts


def ranks_of(network: SshNetwork, node: str, folder: Path) -> List[int]:
    found = []
    for process in network.processes_of(node, "train --config"):
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        if words[1] == b"train" and str(folder).encode() in words[3]:
            found.append(process)
    return found


def nothing_is_left(folder: Path) -> None:
    wait_for(lambda: not processes_with(str(folder / "shared")), 20, "the end of all processes")


@needs_mpirun
def test_a_run_on_two_hosts_is_followed_and_brings_its_archive(network: SshNetwork, program: str, tmp_path: Path) -> None:
    run = network.run([program, "train", "--on", "mpi", *TINY, "--archive", "run.h5"], tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"^step +3/3 ", run.stderr, re.M) and "tokens/s" in run.stdout, run.stdout + run.stderr
    assert losses_of(tmp_path / "run.h5") == local_losses(program, tmp_path)
    assert not (tmp_path / "shared" / "train-1" / "token").exists()
    nothing_is_left(tmp_path)


@needs_mpirun
def test_ctrl_c_ends_it_in_good_order(network: SshNetwork, program: str, tmp_path: Path) -> None:
    run = network.start([program, "train", "--on", "mpi", *LONG, "--archive", "run.h5", "--checkpoint", "checkpoints"], tmp_path)
    wait_for(lambda: steps_in(tmp_path / "shared" / "train-1" / "run.h5") > 1, 40, "two steps")
    assert [len(ranks_of(network, node, tmp_path)) for node in network.hosts] == [2, 2]
    network.interrupt(run)
    output, errors = run.communicate(timeout=60)
    assert run.returncode == 130, output + errors
    assert losses_of(tmp_path / "run.h5") and list((tmp_path / "checkpoints").iterdir())
    nothing_is_left(tmp_path)


@needs_mpirun
def test_a_second_ctrl_c_ends_it_at_once(network: SshNetwork, program: str, tmp_path: Path) -> None:
    run = network.start([program, "train", "--on", "mpi", *LONG, "--archive", "run.h5"], tmp_path)
    wait_for(lambda: steps_in(tmp_path / "shared" / "train-1" / "run.h5") > 1, 40, "two steps")
    for node in network.hosts:
        for rank in ranks_of(network, node, tmp_path):
            os.kill(rank, signal.SIGSTOP)  # it does not end by itself
    network.interrupt(run)
    time.sleep(1)
    network.interrupt(run)
    output, errors = run.communicate(timeout=20)
    assert run.returncode == 130 and "was ended before its ranks had ended by themselves" in errors, output + errors
    nothing_is_left(tmp_path)


@needs_mpirun
def test_nothing_is_left_when_the_command_is_killed(network: SshNetwork, program: str, tmp_path: Path) -> None:
    run = network.start([program, "train", "--on", "mpi", *LONG, "--archive", "run.h5"], tmp_path)
    wait_for(lambda: steps_in(tmp_path / "shared" / "train-1" / "run.h5") > 1, 40, "two steps")
    network.signal(run, signal.SIGKILL)
    run.communicate(timeout=20)
    nothing_is_left(tmp_path)


@needs_mpirun
def test_a_rank_that_is_killed_is_replaced(network: SshNetwork, program: str, tmp_path: Path) -> None:
    words = ["60" if word == "3" else word for word in TINY]
    run = network.start([program, "train", "--on", "mpi", *words, "--archive", "run.h5", "--max-restarts", 2, "--snapshot-every", 5], tmp_path)
    wait_for(lambda: steps_in(tmp_path / "shared" / "train-1" / "run.h5") > 1, 40, "two steps")
    os.kill(ranks_of(network, "node2", tmp_path)[0], signal.SIGKILL)
    output, errors = run.communicate(timeout=90)
    assert run.returncode == 0, output + errors
    assert "all ranks are started anew, restart 1 of 2" in errors
    whole = network.run([program, "train", *words, "--ranks", 4, "--archive", "whole.h5"], tmp_path, timeout=90)
    assert whole.returncode == 0 and losses_of(tmp_path / "run.h5") == losses_of(tmp_path / "whole.h5")


@needs_mpirun
def test_a_rank_that_is_killed_ends_the_job(network: SshNetwork, program: str, tmp_path: Path) -> None:
    run = network.start([program, "train", "--on", "mpi", *LONG, "--archive", "run.h5"], tmp_path)
    wait_for(lambda: steps_in(tmp_path / "shared" / "train-1" / "run.h5") > 1, 40, "two steps")
    os.kill(ranks_of(network, "node2", tmp_path)[0], signal.SIGKILL)
    began = time.monotonic()
    output, errors = run.communicate(timeout=60)
    assert run.returncode == 128 + signal.SIGKILL, output + errors
    assert "Terminated" not in errors, errors
    assert time.monotonic() - began < 30
    nothing_is_left(tmp_path)


def test_the_script_is_printed_and_what_cannot_be_is_refused(program: str, tmp_path: Path) -> None:
    def consist(*words: object, path: str = "/nowhere") -> "subprocess.CompletedProcess[str]":
        return subprocess.run([program, "train", "--on", "mpi", *TINY, *map(str, words)], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, env={**os.environ, "PATH": path})

    write_cluster(tmp_path, 'hosts = ["a", "b"]', "ranks-per-host = 8", f'folder = "{tmp_path}/shared"', 'consist = "/opt/consist"', kind="mpi")
    run = consist("--dry-run")
    assert run.returncode == 0, run.stderr
    assert f"mpirun --hostfile {tmp_path}/shared/train-1/hosts -np 16 --map-by ppr:8:node --bind-to none " in run.stdout
    assert "printf '%s' 'a slots=8\nb slots=8\n' > " in run.stdout and f"\n/opt/consist train --config {tmp_path}/shared/train-1/run.toml &\n" in run.stdout
    run = consist("--dry-run", "--max-restarts", 1)
    assert " -np 2 --map-by ppr:1:node " in run.stdout and '--node-rank "$OMPI_COMM_WORLD_RANK" --master a:2' in run.stdout, run.stdout
    run = consist("--ranks", 32)
    assert run.returncode == 2 and "--ranks 32 need 4 hosts of 8 ranks" in run.stderr and "(mpi.hosts)" in run.stderr, run.stderr
    bash = tmp_path / "bin"
    bash.mkdir()
    (bash / "bash").symlink_to("/bin/bash")
    run = consist(path=str(bash))
    assert run.returncode == 2 and "there is no mpirun in PATH" in run.stderr, run.stderr
    write_cluster(tmp_path, 'hosts = ["a b"]', 'folder = "/f"', kind="mpi")
    run = consist("--dry-run")
    assert run.returncode == 2 and "'a b'; a host is a name or an address" in run.stderr, run.stderr


def test_commands_of_the_documentation_can_be_given_to_mpi(program: str, tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "clusters.md").read_text()
    (tmp_path / "cluster.toml").write_text("\n".join(re.findall(r"```toml\n(.*?)```", text, re.S)))
    words, = [shlex.split(line) for line in re.findall(r"^consist (.*--on mpi.*)$", text, re.M)]
    run = subprocess.run([program, *words, "--dry-run"], cwd=tmp_path, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert run.returncode == 0 and " -np 16 " in run.stdout, run.stderr
