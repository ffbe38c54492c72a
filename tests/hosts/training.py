"""The run that all tests make, and what its archives hold."""
from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import List

import h5py  # type: ignore[import-untyped]

TINY = ["--model", "qwen3-tiny", "--strategy", "zero2", "--batch", "1", "--sequence", "32", "--steps", "3", "--device", "cpu"]


def losses_of(archive: Path) -> List[float]:
    with h5py.File(archive) as file:
        return [float(loss) for loss in file["steps"]["loss"][:]]


def steps_in(archive: Path) -> int:
    """Steps of a run that goes on."""
    try:
        with h5py.File(archive) as file:
            return len(file["steps"]["loss"])
    except (OSError, KeyError):  # it is being written
        return 0


def local_losses(program: str, folder: Path) -> List[float]:
    """Losses of the same run with four ranks on this machine."""
    archive = folder / "local.h5"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    run = subprocess.run([program, "train", *TINY, "--ranks", "4", "--archive", str(archive)], stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, timeout=120, env=environment)
    assert run.returncode == 0, run.stdout + run.stderr
    return losses_of(archive)


def write_cluster(folder: Path, *lines: str, kind: str = "slurm") -> None:
    (folder / "cluster.toml").write_text("\n".join([f"[{kind}]", *lines, ""]))


def documented_commands(kind: str, folder: Path) -> List[List[str]]:
    """The commands of docs/clusters.md for a kind of cluster, each with --dry-run; its tables become the folder's cluster.toml."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "clusters.md").read_text()
    (folder / "cluster.toml").write_text("\n".join(re.findall(r"```toml\n(.*?)```", text, re.S)))
    commands = [shlex.split(line) for line in re.findall(rf"^consist (.*--on {kind} .*)$", text, re.M)]
    return [[*words, *([] if "--dry-run" in words else ["--dry-run"])] for words in commands]
