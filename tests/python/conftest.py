"""Fixtures of the Python package's tests."""
from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Callable

import pytest
from program import ROOT as ROOT
from program import program as program  # a fixture

TINY = ["--model", "llama-tiny", "--batch", "1", "--sequence", "32", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _program_of_package(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the package start the program under test, with one thread a rank: tests run beside one another."""
    monkeypatch.setenv("CONSIST_PROGRAM", program)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")


Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def consist_command(program: str) -> Command:
    """Runs `consist WORDS...` to its end, which must be good."""

    def run(*words: object) -> "subprocess.CompletedProcess[str]":
        environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
        result = subprocess.run([program, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240,
                                env=environment)
        assert result.returncode == 0, f"{words}\n{result.stdout}\n{result.stderr}"
        return result

    return run


@pytest.fixture(scope="session")
def archive(consist_command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a run of 24 steps on two ranks, with evaluations, samples and a profile."""
    path = tmp_path_factory.mktemp("archive") / "run.h5"
    consist_command("train", *TINY, "--strategy", "zero2", "--ranks", 2, "--steps", 24, "--evaluate-every", 12,
                    "--evaluate-sequences", 4, "--sample-every", 12, "--sample-prompt", "The", "--sample-tokens", 4, "--profile",
                    "--archive", path)
    return path


@pytest.fixture(scope="session")
def comparison(consist_command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a comparison of two precisions, each run twice."""
    path = tmp_path_factory.mktemp("comparison") / "folder"
    consist_command("compare", *TINY, "--precision", "fp32,bf16", "--steps", 12, "--repeats", 2, "--output", path)
    return path
