"""consist doctor --on kubernetes on the stand-in for kubectl, whose pods are processes of this machine. No real cluster has run this."""
from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest
from kubernetes_cluster import Cluster

pytest.importorskip("yaml", reason="PyYAML, which the stand-in reads with, is not installed (tests/requirements.txt)")

ROOT = Path(__file__).resolve().parents[2]


def test_the_pods_are_looked_at_and_deleted(cluster: Cluster) -> None:
    run = subprocess.run([cluster.program, "doctor", "--on", "kubernetes", "--json"], cwd=cluster.folder, env=cluster.environment,
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stdout + run.stderr
    document = json.loads(run.stdout)
    jsonschema.Draft202012Validator(json.loads((ROOT / "docs" / "json" / "doctor.schema.json").read_text())).validate(document)
    assert [(host["host"], host["ranks"]) for host in document["hosts"]] == [("host0", [0, 1]), ("host1", [2, 3])], "names of nodes, not of pods"
    assert document["keep"] == ["host0", "host1"] and document["kubernetes"] is None
    assert any("consist-job=" in words for words in cluster.deleted())
