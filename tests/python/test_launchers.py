"""Jobs that other programs start, without a token that anybody set: Open MPI's mpirun on one host and on two, and ranks as torchrun starts them."""
from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Iterator

import pytest

from conftest import TINY

TRAIN = ["train", *TINY, "--from-scratch", "--dataset", "synthetic", "--strategy", "ddp", "--steps", "2", "--timeout", "30"]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]

needs_mpirun = pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun (Debian: openmpi-bin)")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def clean_environment(**more: object) -> dict[str, str]:
    """This process's environment without anything that describes a job."""
    own = {name: value for name, value in os.environ.items()
           if not name.startswith(("CONSIST_JOB", "OMPI_", "PMIX_", "SLURM_", "TORCHELASTIC_", "MASTER_"))}
    return {**own, "OMP_NUM_THREADS": "1", **{name: str(value) for name, value in more.items()}}


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def assert_trained(result: subprocess.CompletedProcess[str], archive: Path) -> None:
    assert result.returncode == 0, result.stdout + result.stderr
    assert archive.is_file(), result.stdout + result.stderr


@needs_mpirun
def test_mpirun_on_one_host(program: str, tmp_path: Path) -> None:
    archive = tmp_path / "run.h5"
    assert_trained(run([*MPIRUN, "-np", "2", program, *TRAIN, "--archive", str(archive)],
                       clean_environment(CONSIST_JOB_PORT=free_port())), archive)


def ip(*words: object) -> None:
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True, text=True, timeout=20)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Path]:
    """Two hosts, node0 and node1, in network namespaces of their own, and the program by which mpirun starts its daemon on them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces take root and ip (Debian: iproute2)")
    tag = f"cm{os.getpid() % 100000}"
    names = [f"{tag}n0", f"{tag}n1"]
    try:
        ip("link", "add", tag, "type", "bridge")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no bridge can be made here: {error.stderr.strip()}")
    try:
        ip("addr", "add", "10.87.53.254/24", "dev", tag)
        ip("link", "set", tag, "up")
        for number, name in enumerate(names):
            ip("netns", "add", name)
            ip("link", "add", f"{name}v", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{name}v", "master", tag, "up")
            ip("-n", name, "addr", "add", f"10.87.53.{number + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
        (tmp_path / "hosts").write_text("127.0.0.1 localhost\n10.87.53.1 node0\n10.87.53.2 node1\n")
        agent = tmp_path / "agent"
        agent.write_text(f"""#!/bin/sh
# HOST COMMAND...: as ssh, into the namespace of the host, which has a name and a list of hosts of its own.
host=$1
shift
exec ip netns exec {tag}n${{host#node}} unshare --uts --mount sh -c "hostname $host; mount --bind {tmp_path}/hosts /etc/hosts; $*"
""")
        agent.chmod(0o755)
        yield agent
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=20)
        subprocess.run(["ip", "link", "del", tag], capture_output=True, timeout=20)


@needs_mpirun
def test_mpirun_on_two_hosts(program: str, hosts: Path, tmp_path: Path) -> None:
    """Token and rank 0's host come by PMIx: nothing is passed on."""
    archive = tmp_path / "run.h5"
    daemons = ["--mca", "plm_rsh_agent", str(hosts), "--mca", "oob_tcp_if_include", "10.87.53.0/24"]
    result = run([*MPIRUN, *daemons, "--host", "node0:1,node1:1", "-np", "2", program, *TRAIN, "--archive", str(archive)],
                 clean_environment())
    assert_trained(result, archive)


def start_rank(program: str, words: list[str], rank: int, port: int) -> subprocess.Popen[str]:
    """Starts one of two ranks with the variables that torchrun gives its processes."""
    environment = clean_environment(RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=2, GROUP_RANK=0, ROLE_RANK=rank,
                                    ROLE_NAME="default", MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                                    TORCHELASTIC_RUN_ID="none", TORCHELASTIC_RESTART_COUNT=0, TORCHELASTIC_MAX_RESTARTS=0,
                                    TORCHELASTIC_USE_AGENT_STORE="True")
    return subprocess.Popen([program, *words], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def test_torchruns_environment_on_one_host(program: str, tmp_path: Path) -> None:
    archive = tmp_path / "run.h5"
    # The agent holds MASTER_PORT itself.
    with socket.socket() as agent:
        agent.bind(("", 0))
        agent.listen()
        ranks = [start_rank(program, [*TRAIN, "--archive", str(archive)], rank, agent.getsockname()[1])
                 for rank in (1, 0)]
        outputs = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(outputs)
    assert archive.is_file()


def test_torchrun_on_several_hosts_is_told_the_command(program: str) -> None:
    """Its store is open to everybody who reaches the port: no channel for a secret."""
    result = run([program, *TRAIN], clean_environment(RANK=0, WORLD_SIZE=2, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1, MASTER_ADDR="127.0.0.1",
                                                      MASTER_PORT=free_port(), TORCHELASTIC_RUN_ID="none"))
    assert result.returncode == 2, result.stdout + result.stderr
    assert "CONSIST_JOB_TOKEN=THAT_TEXT torchrun" in result.stderr
