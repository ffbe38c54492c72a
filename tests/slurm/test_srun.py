"""Ranks that srun starts, one on each of four nodes."""
from __future__ import annotations

from pathlib import Path

import pytest
from slurm_cluster import Slurm
from training import TINY, local_losses, losses_of


def test_zero2_over_four_nodes_has_the_losses_of_four_ranks_here(slurm: Slurm, program: str, tmp_path: Path) -> None:
    words = [program, "train", *TINY, "--transport", "socket", "--archive", tmp_path / "run.h5"]
    run = slurm.run(["srun", "--nodes=4", "--ntasks-per-node=1", *words], tmp_path, CONSIST_JOB_TOKEN="of-this-test-alone")
    assert run.returncode == 0, run.stdout + run.stderr
    losses = losses_of(tmp_path / "run.h5")
    assert len(losses) == 3
    assert losses == local_losses(program, tmp_path)


def test_ranks_agree_on_a_token_by_pmix(slurm: Slurm, program: str, tmp_path: Path) -> None:
    words = [program, "train", *TINY, "--transport", "socket", "--archive", tmp_path / "run.h5"]
    run = slurm.run(["srun", "--mpi=pmix", "--nodes=2", "--ntasks-per-node=1", *words], tmp_path)
    if "can not load PMIx library" in run.stderr:
        pytest.skip("Slurm's plugin loads the library by a name that only Debian's libpmix-dev has")
    assert run.returncode == 0, run.stdout + run.stderr
    assert len(losses_of(tmp_path / "run.h5")) == 3


def test_without_pmix_the_error_says_the_command(slurm: Slurm, program: str, tmp_path: Path) -> None:
    run = slurm.run(["srun", "--mpi=none", "--nodes=2", "--ntasks-per-node=1", program, "train", *TINY], tmp_path)
    assert run.returncode == 2, run.stdout + run.stderr
    assert "export CONSIST_JOB_TOKEN=$(openssl rand -hex 16)" in run.stderr
