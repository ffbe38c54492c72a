"""consist train --on ssh: what it starts on hosts, what it shows of it, and how it ends."""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import List, Union

import pytest
from hosts import wait_for
from ssh_hosts import SshNetwork, SshPorts, processes_with
from training import TINY, documented_commands, local_losses, losses_of, write_cluster

Place = Union[SshNetwork, SshPorts]
LONG = [*TINY[:-4], "--steps", "100000", "--device", "cpu"]


def write(place: Place, program: str, folder: Path, *lines: str) -> None:
    """The cluster's file: two ranks on each of two hosts, whose folder nobody else sees."""
    hosts = ", ".join(f'"{host}"' for host in place.hosts)
    write_cluster(folder, f"hosts = [{hosts}]", f'folder = "{folder}/on-hosts"', "ranks-per-host = 2", f'consist = "{program}"',
                  f'options = ["-F", "{place.folder}/ssh_config"]', *lines, kind="ssh")


def ranks_of(folder: Path, node: str = "") -> List[int]:
    return [process for process in processes_with("train --config", str(folder), f"run-{node}")
            if Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")[1] == b"train"]


def trains(folder: Path, run: "subprocess.Popen[str]") -> None:
    """Waits until the first steps have been said."""
    assert run.stderr
    end = time.monotonic() + 40
    said = ""
    while not re.match(r"step +[1-9]", said.split("\n")[-2] if "\n" in said else ""):
        assert time.monotonic() < end and run.poll() is None, said
        said += run.stderr.readline()
    assert len(ranks_of(folder)) == 4


def nothing_is_left(folder: Path) -> None:
    wait_for(lambda: not processes_with(str(folder / "on-hosts")), 20, f"the end of all processes: {processes_with(str(folder / 'on-hosts'))}")


def test_a_run_on_two_hosts_is_followed_and_brings_its_archive(hosts: Place, program: str, tmp_path: Path) -> None:
    write(hosts, program, tmp_path, "[ssh.environment]", 'WHO = "it\'s me"')
    run = hosts.run([program, "train", "--on", "ssh", *TINY, "--archive", "run.h5"], tmp_path, CONSIST_JOB_TOKEN="of another job")
    assert run.returncode == 0, run.stdout + run.stderr
    job, = re.findall(r"^consist: job (train-\S+), 4 ranks; its files are in ", run.stderr, re.M)
    assert f"consist: job {job} runs on {', '.join(hosts.hosts)}\n" in run.stderr
    assert re.search(r"^step +3/3 ", run.stderr, re.M), run.stderr
    assert "tokens/s" in run.stdout and "consist-is-ready" not in run.stdout, "what rank 0 says, and that alone"
    assert f"the archive of job {job} is {tmp_path}/run.h5" in run.stderr
    assert losses_of(tmp_path / "run.h5") == local_losses(program, tmp_path)
    assert not list((tmp_path / "on-hosts").iterdir()), "nothing stays on hosts"


def test_events_are_those_of_rank_0_and_one_host_is_enough_for_few(ports: SshPorts, program: str, tmp_path: Path) -> None:
    write(ports, program, tmp_path)
    words = ["ddp" if word == "zero2" else word for word in TINY]
    run = ports.run([program, "train", "--on", "ssh", *words, "--ranks", 2, "--json"], tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    events = [json.loads(line) for line in run.stdout.splitlines()]
    assert [event["step"] for event in events if event["event"] == "step"] == [1, 2, 3]
    assert f"runs on {ports.hosts[0]}\n" in run.stderr


def test_a_run_on_two_ports_goes_on_in_its_archive(ports: SshPorts, program: str, tmp_path: Path) -> None:
    write(ports, program, tmp_path)
    words = [program, "train", "--on", "ssh", *TINY, "--archive", "run.h5", "--checkpoint", tmp_path / "checkpoints", "--resume"]
    first = ports.run(["2" if word == "3" else word for word in map(str, words)], tmp_path)
    assert first.returncode == 0, first.stderr
    assert len(losses_of(tmp_path / "run.h5")) == 2
    second = ports.run(words, tmp_path)
    assert second.returncode == 0, second.stderr
    assert len(losses_of(tmp_path / "run.h5")) == 3 and not list((tmp_path / "on-hosts").iterdir())


def test_ctrl_c_ends_the_job_after_its_step_and_the_secret_is_on_no_command_line(hosts: Place, program: str, tmp_path: Path) -> None:
    write(hosts, program, tmp_path)
    run = hosts.start([program, "train", "--on", "ssh", *LONG, "--archive", "run.h5", "--checkpoint", tmp_path / "checkpoints"], tmp_path)
    trains(tmp_path, run)
    environment = Path(f"/proc/{ranks_of(tmp_path)[0]}/environ").read_bytes().split(b"\0")
    token, = [entry[18:] for entry in environment if entry.startswith(b"CONSIST_JOB_TOKEN=")]
    assert len(token) >= 16
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK) and path.exists()]
    assert not any(token in line for line in lines)
    hosts.interrupt(run)
    output, errors = run.communicate(timeout=40)
    assert run.returncode == 130, output + errors
    assert "SIGINT (Ctrl-C): asking the job for its end" in errors and f"is {tmp_path}/run.h5" in errors
    assert list((tmp_path / "checkpoints").iterdir()), "a run that is stopped saves its work"
    assert losses_of(tmp_path / "run.h5")
    nothing_is_left(tmp_path)


def test_a_second_ctrl_c_ends_it_at_once(hosts: Place, program: str, tmp_path: Path) -> None:
    write(hosts, program, tmp_path)
    run = hosts.start([program, "train", "--on", "ssh", *LONG], tmp_path)
    trains(tmp_path, run)
    for rank in ranks_of(tmp_path):
        os.kill(rank, signal.SIGSTOP)  # it does not end by itself
    hosts.interrupt(run)
    time.sleep(1)
    hosts.interrupt(run)
    output, errors = run.communicate(timeout=20)
    assert run.returncode == 130, output + errors
    assert "was ended before its ranks had ended by themselves" in errors
    nothing_is_left(tmp_path)


def test_nothing_is_left_on_hosts_when_the_command_is_killed(hosts: Place, program: str, tmp_path: Path) -> None:
    write(hosts, program, tmp_path)
    run = hosts.start([program, "train", "--on", "ssh", *LONG, "--checkpoint", tmp_path / "checkpoints"], tmp_path)
    trains(tmp_path, run)
    hosts.signal(run, signal.SIGKILL)
    run.communicate(timeout=20)
    nothing_is_left(tmp_path)
    assert list((tmp_path / "checkpoints").iterdir()), "the ranks had an orderly end"


def test_a_rank_that_is_killed_is_named_and_gives_the_status(hosts: Place, program: str, tmp_path: Path) -> None:
    write(hosts, program, tmp_path)
    run = hosts.start([program, "train", "--on", "ssh", *LONG, "--archive", "run.h5"], tmp_path)
    trains(tmp_path, run)
    os.kill(ranks_of(tmp_path, "1")[-1], signal.SIGKILL)
    output, errors = run.communicate(timeout=40)
    assert run.returncode == 128 + signal.SIGKILL, output + errors
    assert re.search(rf"^{hosts.hosts[1]}: consist launch: rank [23] \(process \d+\) was ended by signal 9", errors, re.M), errors
    assert losses_of(tmp_path / "run.h5"), "what was trained is kept"


def test_a_rank_that_is_killed_is_replaced(hosts: Place, program: str, tmp_path: Path) -> None:
    write(hosts, program, tmp_path)
    words = ["60" if word == "3" else word for word in TINY]
    run = hosts.start([program, "train", "--on", "ssh", *words, "--archive", "run.h5", "--max-restarts", 2, "--snapshot-every", 5], tmp_path)
    trains(tmp_path, run)
    os.kill(ranks_of(tmp_path, "1")[-1], signal.SIGKILL)
    output, errors = run.communicate(timeout=90)
    assert run.returncode == 0, output + errors
    assert "all ranks are started anew, restart 1 of 2" in errors
    whole = hosts.run([program, "train", *words, "--ranks", 4, "--archive", "whole.h5"], tmp_path, timeout=90)
    assert whole.returncode == 0 and losses_of(tmp_path / "run.h5") == losses_of(tmp_path / "whole.h5")


def test_a_host_that_vanishes_is_named(hosts: Place, program: str, tmp_path: Path) -> None:
    if not isinstance(hosts, SshNetwork):
        pytest.skip("a port cannot vanish as a host does; hosts of their own need root")
    write(hosts, program, tmp_path, "port = 29511")
    text = (tmp_path / "cluster.toml").read_text()
    (tmp_path / "cluster.toml").write_text(text.replace('options = [', 'options = ["-o", "ServerAliveInterval=2", '))
    run = hosts.start([program, "train", "--on", "ssh", *LONG, "--archive", "run.h5", "--timeout", 5], tmp_path)
    trains(tmp_path, run)
    began = time.monotonic()
    hosts.lose_node("node2")
    try:
        output, errors = run.communicate(timeout=150)
        assert run.returncode == 1, output + errors
        assert re.search(r"host node2 is lost", errors), errors
        assert re.search(r"rank [23] .*node2", errors), "the ranks notice it, too\n" + errors
        assert time.monotonic() - began < 120
        assert losses_of(tmp_path / "run.h5"), "what was trained is kept"
    finally:
        hosts.start_node("node2")


def test_a_host_that_vanishes_is_replaced(hosts: Place, program: str, tmp_path: Path) -> None:
    """There is no checkpoint: the run goes on from the copy of the lost host's snapshot."""
    if not isinstance(hosts, SshNetwork):
        pytest.skip("a port cannot vanish as a host does; hosts of their own need root")
    write(hosts, program, tmp_path)
    text = (tmp_path / "cluster.toml").read_text().replace('options = [', 'options = ["-o", "ServerAliveInterval=2", ')
    (tmp_path / "cluster.toml").write_text(text.replace('"node2"', f'"node2", "{hosts.spare}"'))
    words = ["150" if word == "3" else word for word in TINY]
    run = hosts.start([program, "train", "--on", "ssh", "--ranks", 4, *words, "--archive", "run.h5", "--timeout", 5, "--max-restarts", 2,
                       "--snapshot-every", 5], tmp_path)
    trains(tmp_path, run)
    time.sleep(1)  # some snapshots later
    hosts.lose_node("node2")
    try:
        output, errors = run.communicate(timeout=150)
        assert run.returncode == 0, output + errors
        assert re.search(r"has lost a host: host node2 is lost", errors) and f"goes on with {hosts.spare} in place 1" in errors, errors
        assert f"the snapshot of {hosts.spare} comes from its copy on node1" in errors, errors
        assert re.search(r"node 1 of the job is lost; the run goes on after step \d+ from the snapshot in memory", output + errors), output + errors
    finally:
        hosts.start_node("node2")
    whole = hosts.run([program, "train", *words, "--ranks", 4, "--archive", "whole.h5"], tmp_path, timeout=90)
    assert whole.returncode == 0 and losses_of(tmp_path / "run.h5") == losses_of(tmp_path / "whole.h5")


def said_until(run: "subprocess.Popen[str]", text: str, seconds: float = 60) -> str:
    """What is said until this is among it."""
    assert run.stderr
    end, said = time.monotonic() + seconds, ""
    while text not in said:
        assert time.monotonic() < end and run.poll() is None, said
        said += run.stderr.readline()
    return said


def test_a_host_that_is_lost_is_left_out_and_taken_in_again(hosts: Place, program: str, tmp_path: Path) -> None:
    if not isinstance(hosts, SshNetwork):
        pytest.skip("a port cannot vanish as a host does; hosts of their own need root")
    write(hosts, program, tmp_path, "least-hosts = 1", "host-wait = 1")
    text = (tmp_path / "cluster.toml").read_text().replace('options = [', 'options = ["-o", "ServerAliveInterval=2", ')
    (tmp_path / "cluster.toml").write_text(text)
    words = ["600" if word == "3" else word for word in TINY]
    run = hosts.start([program, "train", "--on", "ssh", *words, "--archive", "run.h5", "--timeout", 5, "--max-restarts", 2, "--snapshot-every", 5],
                      tmp_path)
    trains(tmp_path, run)
    time.sleep(1)  # some snapshots later
    hosts.lose_node("node2")
    said = said_until(run, "goes on with 1 of 2 nodes, without node 1")
    hosts.start_node("node2")
    output, errors = run.communicate(timeout=150)
    errors = said + errors
    assert run.returncode == 0, output + errors
    assert "goes on with 1 of 2 nodes, without node 1" in errors and "goes on with 2 of 2 nodes, with node 1 again" in errors, errors
    assert re.search(r"node 1 is left out; the run goes on after step \d+ with 2 ranks instead of 4", errors), errors
    assert re.search(r"node 1 has come; the run goes on after step \d+ with 4 ranks instead of 2", errors), errors
    assert len(losses_of(tmp_path / "run.h5")) == 600
    nothing_is_left(tmp_path)


def test_a_host_that_was_cut_off_does_not_end_the_others(hosts: Place, program: str, tmp_path: Path) -> None:
    """Its launcher comes back by itself, whose connection to the command is dead."""
    if not isinstance(hosts, SshNetwork):
        pytest.skip("a port cannot be cut off as a host is; hosts of their own need root")
    write(hosts, program, tmp_path, "least-hosts = 1", "host-wait = 1")
    text = (tmp_path / "cluster.toml").read_text().replace('options = [', 'options = ["-o", "ServerAliveInterval=2", ')
    (tmp_path / "cluster.toml").write_text(text)
    words = ["1500" if word == "3" else word for word in TINY]
    run = hosts.start([program, "train", "--on", "ssh", *words, "--archive", "run.h5", "--timeout", 3, "--max-restarts", 3, "--snapshot-every", 5],
                      tmp_path)
    trains(tmp_path, run)
    time.sleep(1)
    assert hosts.run(["ip", "link", "set", "node2", "down"]).returncode == 0
    said = said_until(run, "goes on with 1 of 2 nodes, without node 1")
    assert hosts.run(["ip", "link", "set", "node2", "up"]).returncode == 0
    output, errors = run.communicate(timeout=170)
    errors = said + errors
    assert run.returncode == 0, output + errors
    assert "goes on with 1 of 2 nodes, without node 1" in errors and "goes on with 2 of 2 nodes, with node 1 again" in errors, errors
    assert len(losses_of(tmp_path / "run.h5")) == 1500


@pytest.mark.parametrize("host,message", [
    ("127.0.0.1:9", r"cannot reach host 127.0.0.1:9 by ssh: .*Connection refused.*; try ssh -o BatchMode=yes"),
    ("no-such-host.invalid", "Could not resolve hostname.*name it in ssh.hosts as ssh here knows it"),
])
def test_a_host_that_cannot_be_reached_is_the_only_error(ports: SshPorts, program: str, tmp_path: Path, host: str, message: str) -> None:
    write(ports, program, tmp_path)
    text = (tmp_path / "cluster.toml").read_text()
    (tmp_path / "cluster.toml").write_text(text.replace(ports.hosts[1], host))
    run = ports.run([program, "train", "--on", "ssh", *TINY, "--archive", "run.h5"], tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    assert re.search(message, run.stderr) and run.stderr.count("consist: ") == 2, run.stderr
    nothing_is_left(tmp_path)


def test_what_a_host_lacks_is_said(ports: SshPorts, program: str, tmp_path: Path) -> None:
    def refused(message: str, *lines: str, replace: str = "") -> None:
        write(ports, program, tmp_path, *lines)
        if replace:
            text = (tmp_path / "cluster.toml").read_text()
            (tmp_path / "cluster.toml").write_text(text.replace(f'consist = "{program}"', replace))
        run = ports.run([program, "train", "--on", "ssh", *TINY], tmp_path)
        # All hosts lack it; the one that says so first is named.
        assert run.returncode == 2, run.stderr
        assert any(f"host {host} cannot take ranks: {message}" in run.stderr for host in ports.hosts), run.stderr
        nothing_is_left(tmp_path)

    refused("there is no program /no/consist", replace='consist = "/no/consist"')
    refused("/bin/false does not run", replace='consist = "/bin/false"')
    refused("there is no folder /no/where", 'working-folder = "/no/where"')


def test_keys_that_do_not_fit_are_explained(ports: SshPorts, program: str, tmp_path: Path) -> None:
    write(ports, program, tmp_path)
    text = (tmp_path / "cluster.toml").read_text()

    def refused(message: str, *options: str) -> None:
        more = "".join(f', "{option}"' for option in options)
        (tmp_path / "cluster.toml").write_text(text.replace('ssh_config"]', f'ssh_config"{more}]'))
        run = ports.run([program, "train", "--on", "ssh", *TINY], tmp_path)
        assert run.returncode == 1 and message in run.stderr, run.stderr

    (tmp_path / "nobody").write_text("")
    refused("its key is not known here: connect once by hand", "-o", f"UserKnownHostsFile={tmp_path}/nobody")
    (tmp_path / "stranger").unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "stranger"], check=True, timeout=20)
    text = text.replace(f"{ports.folder}/ssh_config", f"{tmp_path}/ssh_config")
    (tmp_path / "ssh_config").write_text((ports.folder / "ssh_config").read_text().replace(f"{ports.folder}/user_key", f"{tmp_path}/stranger"))
    refused("it must let you in without a password: a key of yours in its authorized_keys")


def test_compare_runs_rows_one_after_the_other(ports: SshPorts, program: str, tmp_path: Path) -> None:
    write(ports, program, tmp_path)
    rows = [word if word != "zero2" else "ddp,zero2" for word in TINY]
    run = ports.run([program, "compare", "--on", "ssh", *rows, "--repeats", 1, "--output", "rows"], tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert len(re.findall(r"^ *\*? *qwen3-tiny +(?:ddp|zero2) ", run.stdout, re.M)) >= 2, run.stdout
    for name in ("ddp", "zero2"):
        archive, = (tmp_path / "rows").glob(f"*{name}*.h5")
        assert len(losses_of(archive)) == 3
    assert not list((tmp_path / "on-hosts").iterdir())


def test_the_cluster_s_file_is_checked(program: str, tmp_path: Path) -> None:
    def refused(message: str, *lines: str, words: List[object] = []) -> None:
        write_cluster(tmp_path, *lines, kind="ssh")
        run = subprocess.run([program, "train", "--on", "ssh", "--dry-run", *TINY, *map(str, words)], cwd=tmp_path, capture_output=True,
                             text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert run.returncode == 2 and message in run.stderr, run.stderr

    refused("cluster.toml has no ssh.hosts: the machines on which ranks are started", 'folder = "/f"')
    refused("cluster.toml has no ssh.folder", 'hosts = ["a"]')
    refused("'a b'; a host is a name that ssh takes", 'folder = "/f"', 'hosts = ["a b"]')
    refused("'-oProxyCommand=x'; a host is a name", 'folder = "/f"', 'hosts = ["-oProxyCommand=x"]')
    refused("'a:0'; a host is a name", 'folder = "/f"', 'hosts = ["a:0"]')
    refused("ssh.gpus", 'folder = "/f"', 'hosts = ["a"]', "gpus = 0")
    refused("do not fill nodes of 2 ranks (cluster.toml: ranks-per-host)", 'folder = "/f"', 'hosts = ["a", "b"]', "ranks-per-host = 2", words=["--ranks", 3])
    refused("--ranks 8 need 4 hosts of 2 ranks, and cluster.toml has 2", 'folder = "/f"', 'hosts = ["a", "b"]', "ranks-per-host = 2", words=["--ranks", 8])
    refused("ssh.partition is no key of a cluster's file; [ssh] and [ssh.environment]", 'folder = "/f"', 'partition = "x"')


def test_dry_run_prints_what_would_be_run_and_starts_nothing(program: str, tmp_path: Path) -> None:
    write_cluster(tmp_path, 'hosts = ["me@node07", "node08:2222"]', "gpus = [0, 2]", 'folder = "/data/consist"', 'master = "10.1.2.3"', "port = 29500",
                  'consist = "/opt/consist"', 'before = ["module load cuda"]', kind="ssh")
    run = subprocess.run([program, "train", "--on", "ssh", "--dry-run", *TINY, "--archive", "run.h5", "--max-restarts", "3"], cwd=tmp_path,
                         capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, env={**os.environ, "PATH": "/nowhere"})
    assert run.returncode == 0, run.stderr
    assert "\nssh -T -o BatchMode=yes " in run.stdout and "ServerAliveCountMax=3 -- me@node07 'exec bash -c SCRIPT consist 0'\n" in run.stdout
    assert "\nssh -T -p 2222 -o " in run.stdout and "ServerAliveCountMax=3 -- node08 'exec bash -c SCRIPT consist 1'\n" in run.stdout
    assert "export CUDA_VISIBLE_DEVICES=0,2\nmodule load cuda\n" in run.stdout
    assert re.search(r'^/opt/consist launch --nproc 2 --nnodes 2 --node-rank "\$node" --master 10.1.2.3:29500 -- train --config "\$config" '
                     r'--max-restarts 3 3<&- &$', run.stdout, re.M), run.stdout
    assert re.search(r'^archive = "/data/consist/train-[0-9]+-[0-9]+-[0-9a-f]{6}/run.h5"$', run.stdout, re.M)


def test_commands_of_the_documentation_can_be_given(program: str, tmp_path: Path) -> None:
    commands = documented_commands("ssh", tmp_path)
    assert len(commands) == 2
    for words in commands:
        run = subprocess.run([program, *words], cwd=tmp_path, capture_output=True, text=True,
                             timeout=60, stdin=subprocess.DEVNULL)
        assert run.returncode == 0, run.stderr
        assert "launch --nproc 8 --nnodes 2 --node-rank \"$node\" --master node07:2" in run.stdout
