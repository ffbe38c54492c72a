"""Ranks that srun starts, one on each of four nodes."""
from __future__ import annotations

from pathlib import Path

from slurm_cluster import Slurm
from training import TINY, local_losses, losses_of


def test_zero2_over_four_nodes_has_the_losses_of_four_ranks_here(slurm: Slurm, program: str, tmp_path: Path) -> None:
    words = [program, "train", *TINY, "--transport", "socket", "--archive", tmp_path / "run.h5"]
    run = slurm.run(["srun", "--nodes=4", "--ntasks-per-node=1", *words], tmp_path, CONSIST_JOB_TOKEN="of-this-test-alone")
    assert run.returncode == 0, run.stdout + run.stderr
    losses = losses_of(tmp_path / "run.h5")
    assert len(losses) == 3
    assert losses == local_losses(program, tmp_path)
