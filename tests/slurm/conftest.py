"""Fixtures of the tests on a real Slurm. The environment variable CONSIST names the program; without it build/bin/consist is taken."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

import pytest
from slurm_cluster import Slurm, why_not

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def program() -> str:
    """The executable of the build under test."""
    path = os.environ.get("CONSIST", str(ROOT / "build" / "bin" / "consist"))
    assert os.access(path, os.X_OK), f"there is no program {path}: build it, or name it by the environment variable CONSIST"
    return path


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
