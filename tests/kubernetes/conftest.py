"""Fixtures of the tests on a stand-in for kubectl."""
from __future__ import annotations

from pathlib import Path

import pytest
from kubernetes_cluster import Cluster
from program import program as program  # a fixture


@pytest.fixture
def cluster(program: str, tmp_path: Path) -> Cluster:
    """Two pods of two ranks, which are not made yet."""
    return Cluster(program, tmp_path)
