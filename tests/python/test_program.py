"""The search for the executable, its environment, and the command that becomes it."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

from consist import ProgramNotFoundError, _program

PACKAGE = ROOT / "launch" / "python"


def executable(path: Path, text: str = "\x7fELF\x02") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package folder in a checkout without builds, PATH without the program, nothing in the environment."""
    folder = tmp_path / "checkout" / "launch" / "python" / "consist"
    folder.mkdir(parents=True)
    (tmp_path / "checkout" / "launch" / "main.cpp").touch()
    monkeypatch.setattr(_program, "_PACKAGE", str(folder))
    monkeypatch.delenv("CONSIST_PROGRAM")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return folder


def test_the_environment_variable_is_first(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(package / "_native" / "bin" / "consist")
    mine = executable(tmp_path / "mine")
    monkeypatch.setenv("CONSIST_PROGRAM", str(mine))
    assert _program.find() == str(mine)


def test_a_variable_that_names_no_program_is_an_error(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(package / "_native" / "bin" / "consist")
    monkeypatch.setenv("CONSIST_PROGRAM", "/nowhere/consist")
    with pytest.raises(ProgramNotFoundError, match="CONSIST_PROGRAM is '/nowhere/consist', which is not an executable file"):
        _program.find()


def test_the_wheel_is_before_builds_and_builds_before_path(package: Path, tmp_path: Path) -> None:
    on_path = executable(tmp_path / "path" / "consist")
    assert _program.find() == str(on_path)
    built = executable(tmp_path / "checkout" / "build" / "bin" / "consist")
    assert _program.find() == str(built)
    preset = executable(tmp_path / "checkout" / "build" / "cpu" / "bin" / "consist")
    os.utime(built, (1, 1))
    assert _program.find() == str(preset), "the newest of several builds"
    wheel = executable(package / "_native" / "bin" / "consist")
    assert _program.find() == str(wheel)


def test_an_installation(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_program, "_PACKAGE", str(tmp_path / "usr" / "lib" / "consist" / "python" / "consist"))
    executable(tmp_path / "path" / "consist")
    installed = executable(tmp_path / "usr" / "bin" / "consist")
    assert _program.find() == str(installed)


def test_the_command_of_an_environment_is_not_the_program(package: Path, tmp_path: Path) -> None:
    executable(tmp_path / "path" / "consist", "#!/usr/bin/python3\n")
    with pytest.raises(ProgramNotFoundError, match="was not found") as caught:
        _program.find()
    assert str(package) in str(caught.value) and "CONSIST_PROGRAM" in str(caught.value)


def test_a_folder_that_is_no_checkout_has_no_builds(package: Path, tmp_path: Path) -> None:
    (tmp_path / "checkout" / "launch" / "main.cpp").unlink()
    executable(tmp_path / "checkout" / "build" / "bin" / "consist")
    with pytest.raises(ProgramNotFoundError):
        _program.find()


def test_the_command_becomes_the_program(program: str) -> None:
    words = [sys.executable, "-m", "consist._program"]
    environment = dict(os.environ, PYTHONPATH=str(PACKAGE))
    result = subprocess.run([*words, "--version"], env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and result.stdout.startswith("consist ")
    refused = subprocess.run([*words, "train"], env=environment, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2, "the exit status is the program's"
    environment["CONSIST_PROGRAM"] = "/nowhere"
    missing = subprocess.run([*words, "--version"], env=environment, capture_output=True, text=True, timeout=60)
    assert missing.returncode == 127 and missing.stderr.startswith("consist: CONSIST_PROGRAM is '/nowhere'")


def test_the_command_imports_little() -> None:
    """A command of the wheel starts Python first; what it imports is time of every command."""
    script = "import sys; before = set(sys.modules); import consist._program; print(*sorted(set(sys.modules) - before))"
    result = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(PACKAGE)!r}); {script}"],
                            capture_output=True, text=True, timeout=60, check=True)
    assert not {"dataclasses", "inspect", "json", "pandas", "h5py", "subprocess"} & set(result.stdout.split())


def test_python_3_9_imports_every_module() -> None:
    python = shutil.which("python3.9")
    if python is None or subprocess.run([python, "--version"], capture_output=True, timeout=60).returncode != 0:
        pytest.skip("no python3.9 on PATH")
    names = sorted(".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in (PACKAGE / "consist").rglob("*.py"))
    script = "import importlib, sys; sys.path.insert(0, sys.argv[1])\nfor name in sys.argv[2:]: importlib.import_module(name)"
    names = [name for name in names if not name.endswith("__main__")]
    result = subprocess.run([python, "-c", script, str(PACKAGE), *names], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
