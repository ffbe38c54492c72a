"""consist doctor --on ssh, --on mpi: hosts beside one another, and what is measured between them."""
from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any, Dict, Union

import jsonschema
import pytest
from ssh_hosts import SshNetwork, SshPorts, processes_with
from test_mpi import needs_mpirun
from test_mpi import network as network  # a fixture
from training import write_cluster

ROOT = Path(__file__).resolve().parents[2]
VALIDATOR = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "json" / "doctor.schema.json").read_text()))
Place = Union[SshNetwork, SshPorts]


def write(place: Place, program: str, folder: Path, *lines: str) -> None:
    """The cluster's file: two hosts of one rank each."""
    hosts = ", ".join(f'"{host}"' for host in place.hosts)
    write_cluster(folder, f"hosts = [{hosts}]", f'folder = "{folder}/on-hosts"', f'consist = "{program}"',
                  f'options = ["-F", "{place.folder}/ssh_config"]', *lines, kind="ssh")


def by_name(document: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    return {check["check"]: check for check in document["checks"]}


def test_two_hosts_are_looked_at_beside_one_another(hosts: Place, program: str, tmp_path: Path) -> None:
    write(hosts, program, tmp_path)
    run = hosts.run([program, "doctor", "--on", "ssh", "--json"], tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    document = json.loads(run.stdout)
    VALIDATOR.validate(document)
    checks = by_name(document)
    assert checks["plugins"]["found"].startswith("all hosts: ") or not isinstance(hosts, SshNetwork)
    assert document["measured"] is None and document["leave_out"] == [] and document["cluster"] == "ssh"
    if isinstance(hosts, SshNetwork):
        assert [(host["host"], host["ranks"]) for host in document["hosts"]] == [("node1", [0]), ("node2", [1])]
        assert checks["hosts-alike"]["status"] == "ok" and checks["host-clocks"]["status"] == "ok"
        assert abs(document["hosts"][1]["clock_seconds"]) < 0.1, "they have one clock"
        assert document["keep"] == ["node1", "node2"]
    assert not list((tmp_path / "on-hosts").iterdir()) and not processes_with("examine", str(tmp_path))


def test_a_host_that_differs_is_named(hosts: Place, program: str, tmp_path: Path) -> None:
    if not isinstance(hosts, SshNetwork):
        pytest.skip("hosts of their own need root")
    if os.cpu_count() == 1:
        pytest.skip("a host of this machine cannot have fewer processors")
    write(hosts, program, tmp_path, 'before = ["if [ $node = 1 ]; then taskset -cp 0 $$ > /dev/null; fi"]')
    run = hosts.run([program, "doctor", "--on", "ssh"], tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert re.search(r"^warning +hosts-alike +processors (1 on node2, \d+ on node1|\d+ on node1, 1 on node2)$", run.stdout, re.M), run.stdout
    assert "do: give all hosts the same driver" in run.stdout


def test_a_host_on_which_something_is_wrong_is_left_out(hosts: Place, program: str, tmp_path: Path) -> None:
    if not isinstance(hosts, SshNetwork):
        pytest.skip("hosts of their own need root")
    # A program that plays nvidia-smi: node2 has a GPU whose memory fails.
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    values = {"index": "0", "uuid": "GPU-1", "name": "H100", "driver_version": "580.1", "ecc.errors.uncorrected.volatile.total": "7"}
    smi.write_text("#!/bin/sh\nfor column in $(echo \"$1\" | sed 's/.*=//; s/,/ /g'); do case $column in\n" +
                   "".join(f"{name}) printf '%s, ' '{value}';;\n" for name, value in values.items()) + "*) printf '[N/A], ';; esac; done | sed 's/, $//'\necho\n")
    smi.chmod(0o755)
    write(hosts, program, tmp_path, f'before = ["if [ $node = 1 ]; then PATH={smi.parent}:$PATH; fi"]')
    run = hosts.run([program, "doctor", "--on", "ssh", "--json"], tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    document = json.loads(run.stdout)
    VALIDATOR.validate(document)
    wrong, = [check for check in document["checks"] if check["check"] == "gpu-ecc" and check["status"] == "wrong"]
    assert wrong["found"] == "node2: GPU 0 has 7 uncorrected errors of its memory"
    assert document["keep"] == ["node1"] and document["leave_out"] == ["node2"]
    text = hosts.run([program, "doctor", "--on", "ssh"], tmp_path).stdout
    assert re.search(r"\nLeave out: node2 \((?:gpu-driver-version, )?gpu-ecc\)\n", text), text  # a build with CUDA wants a driver, too
    assert 'cluster.toml: hosts = ["node1"]\n' in text, text


def test_links_between_hosts_are_measured_and_judged_by_a_job(hosts: Place, program: str, tmp_path: Path) -> None:
    write(hosts, program, tmp_path)
    words = ["--model", "llama-tiny", "--strategy", "ddp", "--batch", "4", "--sequence", "128", "--device", "cpu", "--machine", "cpu,socket-network=1e14",
             "--slower", "1%", "--json"]
    run = hosts.run([program, "doctor", "--on", "ssh", *words], tmp_path, timeout=120)
    document = json.loads(run.stdout)
    VALIDATOR.validate(document)
    assert document["step"]["job"] == "llama-tiny, ddp, 2 ranks, fp32"
    if not isinstance(hosts, SshNetwork):
        return
    assert document["measured"]["network"]["transport"] == "socket" and document["measured"]["node"] is None
    assert [rank["host"] for rank in document["measured"]["ranks"]] == ["node1", "node2"]
    assert [link["across_nodes"] for link in document["measured"]["links"]] == [True]
    check = by_name(document)["network-links"]
    assert check["status"] == "wrong" and run.returncode == 1 and "10.78.0." in check["found"]
    assert re.search(r"; costs [0-9.]+% of this step", check["found"]) and "NCCL_SOCKET_IFNAME" in check["remedy"]


def test_ranks_of_a_host_have_links_of_both_kinds(hosts: Place, program: str, tmp_path: Path) -> None:
    if not isinstance(hosts, SshNetwork):
        pytest.skip("hosts of their own need root")
    write(hosts, program, tmp_path, "ranks-per-host = 2")
    run = hosts.run([program, "doctor", "--on", "ssh", "--measure", "--device", "cpu", "--json"], tmp_path, timeout=120)
    document = json.loads(run.stdout)
    VALIDATOR.validate(document)
    measured = document["measured"]
    assert [(rank["rank"], rank["host"]) for rank in measured["ranks"]] == [(0, "node1"), (1, "node1"), (2, "node2"), (3, "node2")]
    assert [(link["ranks"], link["across_nodes"]) for link in measured["links"]] == [([0, 1], False), ([0, 2], True), ([1, 3], True), ([2, 3], False)]
    assert measured["node"]["transport"] == measured["network"]["transport"] == "socket"
    assert document["step"] is None and "measurement" not in by_name(document)


@needs_mpirun
def test_two_hosts_are_looked_at_by_mpirun(network: SshNetwork, program: str, tmp_path: Path) -> None:
    run = network.run([program, "doctor", "--on", "mpi", "--json"], tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    document = json.loads(run.stdout)
    VALIDATOR.validate(document)
    assert [(host["host"], host["ranks"]) for host in document["hosts"]] == [("node1", [0, 1]), ("node2", [2, 3])]
    assert document["keep"] == ["node1", "node2"] and document["cluster"] == "mpi"


def test_a_host_that_is_not_there_is_named(hosts: Place, program: str, tmp_path: Path) -> None:
    write(hosts, program, tmp_path)
    file = tmp_path / "cluster.toml"
    file.write_text(file.read_text().replace(f'"{hosts.hosts[1]}"', '"nobody@127.0.0.1:9"'))
    run = hosts.run([program, "doctor", "--on", "ssh", "--json"], tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    error = json.loads(run.stdout)
    VALIDATOR.validate(error)
    assert "nobody@127.0.0.1:9" in error["message"]


def test_dry_run_shows_what_hosts_would_run(program: str, tmp_path: Path, ports: SshPorts) -> None:
    write(ports, program, tmp_path)
    run = ports.run([program, "doctor", "--on", "ssh", "--measure", "--dry-run"], tmp_path)
    assert run.returncode == 0 and " examine --look --measure" in run.stdout, run.stdout + run.stderr
    for words, complaint in ((["--expect", "gpus=1", "--on", "ssh"], "--expect is for one machine"), (["--dry-run"], "give --on slurm")):
        refused = ports.run([program, "doctor", *words], tmp_path)
        assert refused.returncode == 2 and complaint in refused.stderr, refused.stderr
