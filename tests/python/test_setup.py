"""launch/setup.sh: what it would install on each distribution that it knows, and what it says where it cannot."""
from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
from pathlib import Path
from typing import Dict, List

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUP = ROOT / "launch" / "setup.sh"
TABLES = [ROOT / "launch" / "packages.txt", ROOT / "tests" / "packages.txt"]


def rows(path: Path) -> List[List[str]]:
    """The fields of each line of a table."""
    return [line.split() for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]


SYSTEMS = [row[0] for row in rows(ROOT / "launch" / "systems.txt")]


def setup(*words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Runs setup.sh with these words."""
    return subprocess.run(["bash", str(SETUP), *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, env=dict(os.environ, **environment))


def listed(system: str, *tables: Path) -> List[str]:
    """The packages that a dry run prints for a system."""
    answer = setup("--dry-run", "--system", system, *map(str, tables))
    assert answer.returncode == 0, answer.stderr
    return [line for line in answer.stdout.splitlines() if not line.startswith("#")]


def test_tables_have_their_columns() -> None:
    for path in TABLES:
        for row in rows(path):
            assert len(row) == 7, f"{path.name}: {row}"
            assert row[2] in ("tool", "build", "optional"), f"{path.name}: {row}"
            assert row[6] == "-" or set(row[6].split(",")) <= set(SYSTEMS), f"{path.name}: {row}"
            assert row[3] != "-" or row[4] == "-", f"{path.name} pins a package without a name: {row}"
    parts = [row[0] for path in TABLES for row in rows(path)]
    assert len(parts) == len(set(parts))


@pytest.mark.parametrize("system", SYSTEMS)
def test_dry_run_lists_the_packages_of_each_system(system: str) -> None:
    packages = listed(system, TABLES[1])
    names = [package.split("=")[0] for package in packages]
    assert len(names) == len(set(names))
    manager = next(row[1] for row in rows(ROOT / "launch" / "systems.txt") if row[0] == system)
    column = {"apt": 3, "dnf": 5}[manager]
    known = {row[column] for path in TABLES for row in rows(path)} - {"-"}
    lacking = {row[column] for path in TABLES for row in rows(path) if system in row[6].split(",")}
    assert set(names) == known - lacking
    assert {"cmake", "ninja-build"} <= set(names)
    # Pins are for CI alone.
    assert all(("=" in package) == (system == "debian-12") for package in packages)


def test_dry_run_says_what_was_not_tried_and_what_is_not_there() -> None:
    answer = setup("--dry-run", "--system", "all").stdout
    for row in rows(ROOT / "launch" / "systems.txt"):
        line = next(line for line in answer.splitlines() if line.startswith(f"# {row[0]}:"))
        assert ("NOT TRIED" in line) == (row[2] == "untried")
    assert "toml++" in setup("--dry-run", "--system", "ubuntu-22.04").stdout
    assert "toml++" not in setup("--dry-run", "--system", "debian-13").stdout


@pytest.mark.parametrize("words", [["--dry-run"], []])
def test_unknown_system_is_an_error_that_says_what_to_do(words: List[str]) -> None:
    answer = setup(*words, "--system", "plan9")
    assert answer.returncode == 2 and not answer.stdout
    assert "plan9" in answer.stderr and "--system NAME" in answer.stderr
    assert all(system in answer.stderr for system in SYSTEMS)


@pytest.mark.parametrize("release, system", [
    ("ID=debian\nVERSION_ID=\"13\"", "debian-13"),
    ("ID=ubuntu\nVERSION_ID=\"24.04\"\nUBUNTU_CODENAME=noble", "ubuntu-24.04"),
    ("ID=linuxmint\nVERSION_ID=\"21.3\"\nUBUNTU_CODENAME=jammy", "ubuntu-22.04"),
    ("ID=fedora\nVERSION_ID=43", "fedora"),
    ("ID=\"rocky\"\nVERSION_ID=\"9.5\"", "rhel-9"),
    ("ID=\"amzn\"\nVERSION_ID=\"2023\"", "amazon-2023"),
])
def test_system_is_known_by_its_os_release(release: str, system: str, tmp_path: Path) -> None:
    path = tmp_path / "os-release"
    path.write_text(release + "\n")
    assert setup("--dry-run", CONSIST_OS_RELEASE=str(path)).stdout.startswith(f"# {system}:")


def test_wrong_words_are_errors() -> None:
    assert "unknown option --dry" in setup("--dry").stderr
    assert "no table nowhere.txt" in setup("nowhere.txt").stderr
    assert "--dry-run" in setup("--system", "all").stderr


def stubs(folder: Path, programs: Dict[str, str]) -> str:
    """PATH with shell scripts of these names before the real programs."""
    folder.mkdir()
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_who_is_not_root_is_told_what_root_runs(tmp_path: Path) -> None:
    path = stubs(tmp_path / "bin", {"id": "echo 1000", "dpkg-query": "exit 1"})
    answer = setup("--system", "debian-13", PATH=path, CONSIST_BUILD=str(tmp_path))
    assert answer.returncode == 2
    assert f"bash {SETUP} --system debian-13" in answer.stderr
    command = next(line for line in answer.stderr.splitlines() if "which runs: apt-get" in line).split()
    assert "libhdf5-dev" in command
    # These come from PyPI, or are done without.
    assert not {"cmake", "ninja-build", "libfabric-dev"} & set(command)


def test_tools_come_from_pypi_where_cmake_is_too_old(tmp_path: Path) -> None:
    path = stubs(tmp_path / "bin", {
        "id": "echo 1000", "dpkg-query": "echo 'ii  1.0'", "cmake": "echo cmake version 3.18.4",
        # Instead of a virtual environment with PyPI's packages: one whose pip writes down what it was asked for.
        "python3": """mkdir -p "$4/bin"
printf '#!/bin/sh\\necho "$@" > %s\\n' "$4/asked" > "$4/bin/pip"
chmod +x "$4/bin/pip\"""",
    })
    answer = setup("--system", "debian-13", PATH=path, CONSIST_BUILD=str(tmp_path / "build"))
    assert answer.returncode == 0, answer.stderr
    tools = tmp_path / "build" / "tools"
    assert str(ROOT / "launch" / "requirements.txt") in (tools / "venv" / "asked").read_text()
    assert os.readlink(tools / "bin" / "cmake") == "../venv/bin/cmake"
    assert f"export PATH={tools}/bin" in answer.stderr


def test_debian_12_has_each_package_in_its_pinned_version() -> None:
    release = Path("/etc/os-release").read_text().splitlines()
    if "VERSION_CODENAME=bookworm" not in release or shutil.which("apt-cache") is None:
        pytest.skip("this is no Debian 12")
    packages = [package.split("=") for package in listed("debian-12", TABLES[1])]
    answer = subprocess.run(["apt-cache", "madison", *(name for name, _ in packages)], capture_output=True, text=True,
                            timeout=120)
    there: Dict[str, List[str]] = {}
    for line in answer.stdout.splitlines():
        name, version = (field.strip() for field in line.split("|")[:2])
        there.setdefault(name, []).append(version)
    if "g++" not in there:
        pytest.skip("apt has no lists of packages: apt-get update")
    wrong = [f"{name}={pin}: {there.get(name)}" for name, pin in packages
             if not any(fnmatch.fnmatchcase(version, pin) for version in there.get(name, []))]
    assert not wrong
