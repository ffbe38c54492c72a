"""Residuals: the command's JSON on a real archive, and the package's object."""
from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

import consist
from conftest import ROOT

SCHEMA = ROOT / "docs" / "json" / "residual.schema.json"


def run(program: str, *words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program, "residual", *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def test_json_is_as_its_schema_says(program: str, comparison: Path) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    fp32, = comparison.glob("*fp32.h5")
    result = run(program, fp32.with_suffix(""), "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    validator.validate(document)
    difference = document["measured_seconds"] - document["predicted_seconds"]
    assert sum(term["seconds"] for term in document["terms"]) == pytest.approx(difference, rel=1e-2, abs=1e-9)
    refused = run(program, comparison / "none.h5", "--json")
    assert refused.returncode == 2
    validator.validate(json.loads(refused.stdout))


def test_the_package_has_it_as_an_object(comparison: Path) -> None:
    fp32, = comparison.glob("*fp32.h5")
    residual = consist.residual(fp32)
    assert residual.machine == "cpu" and residual.predicted_seconds > 0
    assert list(residual.table.columns) == ["part", "cause", "seconds", "text"]
    assert residual.cause is None or residual.cause == residual.causes[0]["cause"]
    assert "terms" in str(residual)
