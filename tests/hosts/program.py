"""The program under test. The environment variable CONSIST names it; without it build/bin/consist is taken."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def program() -> str:
    """The executable of the build under test."""
    path = os.environ.get("CONSIST", str(ROOT / "build" / "bin" / "consist"))
    assert os.access(path, os.X_OK), f"there is no program {path}: build it, or name it by the environment variable CONSIST"
    return path
