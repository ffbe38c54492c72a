"""Fixture of the readers' tests."""
from __future__ import annotations

from pathlib import Path

import pytest
from readers.reading import Reading


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    """Reads texts as files in a folder of their own."""
    return Reading(tmp_path)
