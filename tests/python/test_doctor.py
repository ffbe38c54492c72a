"""What `consist doctor` says of this machine, held against its schema and its documents."""
from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import jsonschema

from conftest import ROOT

SCHEMA = ROOT / "docs" / "json" / "doctor.schema.json"


def run(program: str, *words: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program, "doctor", *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=10)


def test_json_is_as_its_schema_says(program: str, tmp_path: Path) -> None:
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text()))
    result = run(program, "--json", "--archive", tmp_path, "--expect", "efa=100000")
    assert result.returncode == 1, result.stderr
    document = json.loads(result.stdout)
    validator.validate(document)
    checks = document["checks"]
    assert checks[0]["status"] == "wrong"
    expected, = [check for check in checks if check["check"] == "expect-efa"]
    assert expected["status"] == "wrong" and "instead of 100000" in expected["found"]
    assert sum(document["counts"].values()) == len(checks)
    refused = run(program, "--json", "--expect", "tpus=8")
    assert refused.returncode == 2
    validator.validate(json.loads(refused.stdout))


def test_every_check_is_documented(program: str) -> None:
    named = set(re.findall(r"`([a-z-]+)`", (ROOT / "docs" / "doctor.md").read_text()))
    missing = {check["check"] for check in json.loads(run(program, "--json").stdout)["checks"]} - named
    assert not missing, f"docs/doctor.md does not name {missing}"


def test_a_table_lists_all_where_it_is_asked_to(program: str) -> None:
    short, long = run(program), run(program, "--all")
    assert short.stdout.splitlines()[-1].endswith("(--all lists them).")
    assert long.stdout.count("expected: ") > 20 and "expected: " not in short.stdout
