"""docs/notebook.ipynb, executed cell by cell with short runs."""
from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from conftest import ROOT
from nbclient import NotebookClient

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def test_it_is_stored_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
    assert NOTEBOOK.stat().st_size < 40_000


@pytest.mark.filterwarnings("default")
def test_every_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "launch" / "python"))
    monkeypatch.setenv("CONSIST_NOTEBOOK_STEPS", "6")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=240, startup_timeout=120, kernel_name="python3", resources={"metadata": {"path": os.fspath(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in shown) == 3, "losses, parts of the step, memory"
    tables = [output["data"]["text/html"] for output in shown if "text/html" in output.get("data", {})]
    assert any("bf16" in table and "tokens" in table for table in tables), "the comparison"
    assert any("tp-sp=8" in table for table in tables), "predictions"
    text = "".join(output.get("text", "") for output in shown)
    assert text.count("tokens/s") >= 4 and "on text that is not trained on" in text
