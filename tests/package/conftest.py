"""What the tests of packages share."""
from __future__ import annotations

import os
import shutil
from typing import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _kept_roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """New systems are made once, and copied for each test."""
    folder = tmp_path_factory.mktemp("kept")
    os.environ["CONSIST_ROOTS"] = str(folder)
    yield
    shutil.rmtree(folder, ignore_errors=True)
