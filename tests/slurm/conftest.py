"""Fixtures of the tests on a real Slurm."""
from __future__ import annotations

from typing import Iterator

import pytest
from program import program as program  # a fixture
from slurm_cluster import Slurm, why_not


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Four nodes, for all tests."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    made = Slurm(tmp_path_factory.mktemp("slurm"))
    yield made
    made.end()


@pytest.fixture
def slurm(cluster: Slurm) -> Slurm:
    """The four nodes, idle."""
    cluster.wait_until_idle()
    return cluster
