"""consist doctor --on slurm: the nodes of a job, of which one has a slow network."""
from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Iterator

import jsonschema
import pytest
from slurm_cluster import Slurm
from training import write_cluster

ROOT = Path(__file__).resolve().parents[2]
VALIDATOR = jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "json" / "doctor.schema.json").read_text()))


@pytest.fixture(autouse=True)
def file(tmp_path: Path, program: str) -> None:
    write_cluster(tmp_path, f'folder = "{tmp_path}/shared"', f'consist = "{program}"', "nodes = 4")


@pytest.fixture
def slow(slurm: Slurm) -> Iterator[str]:
    """A node to which bytes go slowly."""
    made = slurm.run(["tc", "qdisc", "add", "dev", "node3", "root", "tbf", "rate", "400mbit", "burst", "64kbit", "latency", "400ms"])
    if made.returncode != 0:
        pytest.skip("the kernel shapes no traffic: " + made.stderr)
    yield "node3"
    slurm.run(["tc", "qdisc", "del", "dev", "node3", "root"])


def test_four_nodes_are_looked_at(slurm: Slurm, program: str, tmp_path: Path) -> None:
    run = slurm.run([program, "doctor", "--on", "slurm", "--json"], tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    document = json.loads(run.stdout)
    VALIDATOR.validate(document)
    assert [(host["host"], host["ranks"]) for host in document["hosts"]] == [(f"node{n + 1}", [n]) for n in range(4)]
    assert document["slurm"] == {"nodelist": "node1,node2,node3,node4", "exclude": ""} and document["leave_out"] == []
    assert re.search(r"^consist: job (\d+), 4 ranks; its files are in .*/doctor-1$", run.stderr, re.M)


def test_the_node_with_a_slow_network_is_left_out(slurm: Slurm, program: str, tmp_path: Path, slow: str) -> None:
    words = ["--model", "llama-tiny", "--strategy", "ddp", "--batch", "4", "--sequence", "128", "--device", "cpu", "--machine", "cpu", "--transport", "socket"]
    run = slurm.run([program, "doctor", "--on", "slurm", *words, "--json"], tmp_path, timeout=200)
    document = json.loads(run.stdout)
    VALIDATOR.validate(document)
    check, = [check for check in document["checks"] if check["check"] == "network-links-alike"]
    assert check["status"] == "wrong" and run.returncode == 1, check
    assert f"all links of host {slow} to other hosts are slow" in check["found"]
    assert re.search(rf"; costs [0-9.]+% of this step \([0-9.]+ ms\), without host {slow} ", check["found"]), check["found"]
    assert check["cost"]["without_fraction"] < check["cost"]["fraction"]
    assert slow in document["leave_out"] and slow not in document["keep"]
    assert slow in document["slurm"]["exclude"].split(",") and slow not in document["slurm"]["nodelist"].split(",")
