"""What an executable says of itself and of its installation."""
from __future__ import annotations

import json
import re
import subprocess


def run(program: str, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def test_version_has_the_builds_facts(program: str) -> None:
    facts = json.loads(run(program, "--version", "--json").stdout)
    lines = run(program, "--version").stdout.splitlines()
    assert lines[0] == f"consist {facts['version']}, plugin API {facts['plugin_api']}, {facts['fingerprint']}"
    said = dict(line.strip().split(maxsplit=1) for line in lines[1:])
    assert said == {name: value for name, value in facts.items() if name not in ("version", "plugin_api", "fingerprint")}
    assert {"compiler", "HDF5", "Boost", "spdlog", "oneDNN", "CUDA"} <= set(said)
    assert re.fullmatch(r"[0-9a-f]{12,}(-dirty)?", said.get("commit", "0" * 12))


def test_a_build_folder_has_no_sdk(program: str) -> None:
    result = run(program, "sdk", "--prefix")
    assert result.returncode == 2 and "cmake --install" in result.stderr and result.stdout == ""
