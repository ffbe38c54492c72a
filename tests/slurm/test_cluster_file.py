"""The cluster's file, and what would be submitted: no Slurm is needed for either."""
from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from training import TINY, documented_commands, write_cluster

GOLDEN = """\
# FOLDER/train-1/job.sbatch
#!/usr/bin/env bash
#SBATCH --job-name=consist-train-1
#SBATCH --partition=gpu
#SBATCH --account=llm
#SBATCH --time=1-02:00:00
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=6
#SBATCH --exclusive
#SBATCH --no-requeue
#SBATCH --output=FOLDER/train-1/out
#SBATCH --error=FOLDER/train-1/err
#SBATCH --constraint=h100
cd -- HERE || exit 1

# sbatch passes the submitting shell's environment on, which may describe another job.
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT CONSIST_JOB_PORT CONSIST_JOB_TOKEN
unset JOB_COMPLETION_INDEX OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE
export CONSIST_JOB_TOKEN_FILE=FOLDER/train-1/token
export NCCL_SOCKET_IFNAME=ens5
export WHO='it'\\''s me'
module load cuda
# NICs pin memory; the ranks inherit this limit.
ulimit -l unlimited 2> /dev/null || echo "consist: the limit of pinned memory stays at $(ulimit -l) KiB" >&2

# Ranks that are asked for their end take time for it; this shell waits to say how they ended.
trap : TERM
# The end of one rank ends the others through the job, with their messages; --wait is for those that it cannot.
srun --kill-on-bad-exit=0 --wait=60 --cpus-per-task=6 \\
  /opt/consist/bin/consist train --config FOLDER/train-1/run.toml
status=$?
rm -f -- "$CONSIST_JOB_TOKEN_FILE"
echo "$status" > FOLDER/train-1/status.new && mv -- FOLDER/train-1/status.new FOLDER/train-1/status
exit "$status"

# FOLDER/train-1/run.toml
model = "qwen3-tiny"
"""


def consist(program: str, folder: Path, *words: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program, *map(str, words)], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=60, env={**os.environ, "HOME": str(folder / "home"), "XDG_CONFIG_HOME": "", **environment})


def test_dry_run_prints_the_job_and_makes_nothing(program: str, tmp_path: Path) -> None:
    write_cluster(tmp_path, 'partition = "gpu"', 'account = "llm"', 'time = "1-02:00:00"', "nodes = 2", "gpus-per-node = 8", "cpus-per-rank = 6",
                  'folder = "/no/such/shared/"', 'consist = "/opt/consist/bin/consist"', 'lines = ["--constraint=h100"]', 'before = "module load cuda"',
                  "[slurm.environment]", 'NCCL_SOCKET_IFNAME = "ens5"', "WHO = \"it's me\"")
    run = consist(program, tmp_path, "train", "--on", "slurm", "--dry-run", *TINY, "--archive", "run.h5", "--global-batch", 16)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(GOLDEN.replace("FOLDER", "/no/such/shared").replace("HERE", str(tmp_path))), run.stdout
    config = run.stdout[run.stdout.index("\nmodel = "):]
    assert "\nranks = 16\n" in config and '\narchive = "/no/such/shared/train-1/run.h5"\n' in config
    assert "TOKEN" not in config and sorted(path.name for path in tmp_path.iterdir()) == ["cluster.toml"]


def test_the_file_is_found_beside_the_command_and_at_home(program: str, tmp_path: Path) -> None:
    run = consist(program, tmp_path, "train", "--on", "slurm", "--dry-run", *TINY)
    assert run.returncode == 2 and f"neither ./cluster.toml nor {tmp_path}/home/.config/consist/cluster.toml" in run.stderr
    home = tmp_path / "home" / ".config" / "consist"
    home.mkdir(parents=True)
    write_cluster(home, 'folder = "/home-s"')
    assert "/home-s/train-1" in consist(program, tmp_path, "train", "--on", "slurm", "--dry-run", *TINY).stdout
    write_cluster(tmp_path, 'folder = "/here-s"')
    assert "/here-s/train-1" in consist(program, tmp_path, "train", "--on", "slurm", "--dry-run", *TINY).stdout
    assert "/home-s/train-1" in consist(program, tmp_path, "train", "--on", "slurm", "--dry-run", "--cluster", home / "cluster.toml", *TINY).stdout


@pytest.mark.parametrize("line,message", [
    ('partitoin = "gpu"', "cluster.toml, line 3: slurm.partitoin is no key of a cluster's file.* Did you mean 'slurm.partition'?"),
    ('nodes = "two"', "cluster.toml, line 3: slurm.nodes"),
    ("nodes = 0", "cluster.toml, line 3: slurm.nodes is '0'; it must be from 1 to 65536"),
    ('partition = "gpu\\n#SBATCH --mem=0"', "cluster.toml, line 3: slurm.partition has the character"),
    ('account = ""', "slurm.account is empty"),
    ('lines = ["mem=0"]', "has 'mem=0'; its lines are options of sbatch"),
    ('lines = ["--nodes=9"]', "has '--nodes=9', which follows from"),
    ('environment.CONSIST_JOB_TOKEN = "x"', "is made anew for each job, and others could read it here"),
    ('environment."A B" = "x"', "is no name of an environment variable"),
    ("[lsf]\nimage = 1", "line 4: lsf.image is no key"),
    ("nodes = ", "cluster.toml, line 3"),
])
def test_a_wrong_line_is_named(program: str, tmp_path: Path, line: str, message: str) -> None:
    write_cluster(tmp_path, 'folder = "/shared"', line)
    run = consist(program, tmp_path, "train", "--on", "slurm", "--dry-run", *TINY)
    assert run.returncode in (1, 2) and re.search(message, run.stderr), run.stderr
    assert run.stdout == ""


def test_what_cannot_be_is_refused_before_a_job_is_made(program: str, tmp_path: Path) -> None:
    def refused(message: str, *words: object, strategy: str = "zero2") -> None:
        tiny = [strategy if word == "zero2" else word for word in TINY]
        run = consist(program, tmp_path, "train", *tiny, *words, PATH="/nowhere")
        assert run.returncode == 2 and message in run.stderr, run.stderr
        assert not (tmp_path / "shared").exists() or not list((tmp_path / "shared").iterdir())

    write_cluster(tmp_path, "nodes = 2")
    refused("cluster.toml has no slurm.folder", "--on", "slurm")
    write_cluster(tmp_path, 'folder = "shared"')
    refused("it must begin with /", "--on", "slurm")
    write_cluster(tmp_path, f'folder = "{tmp_path}/shared"', "ranks-per-node = 2")
    refused("--dry-run is for runs on a cluster", "--dry-run")
    refused("--on is 'slrum'; it must be one of here, slurm", "--on", "slrum")
    refused("--ranks 3 do not fill nodes of 2 ranks", "--on", "slurm", "--ranks", 3)
    refused("sizes multiply to 3", "--on", "slurm", "--ranks", 2, strategy="tp-sp=3")
    refused("there is no sbatch in PATH", "--on", "slurm")
    (tmp_path / "run.h5").write_text("somebody's work")
    refused("run.h5", "--on", "slurm", "--archive", "run.h5")


def test_with_restarts_each_node_has_a_launcher(program: str, tmp_path: Path) -> None:
    write_cluster(tmp_path, "nodes = 2", "gpus-per-node = 8", "cpus-per-rank = 6", 'folder = "/shared"', 'consist = "/opt/consist"')
    run = consist(program, tmp_path, "train", "--on", "slurm", "--dry-run", *TINY, "--max-restarts", 3, "--snapshot-every", 10)
    assert run.returncode == 0, run.stderr
    assert "--ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n#SBATCH --cpus-per-task=6\n" in run.stdout
    assert ("srun --kill-on-bad-exit=0 --wait=60 --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpu-bind=none --cpus-per-task=48 \\\n"
            "  bash -c 'exec /opt/consist launch --nproc 8 --nnodes 2 --node-rank \"$SLURM_NODEID\" --master \"$CONSIST_LAUNCHER\" -- "
            "train --config /shared/train-1/run.toml --max-restarts 3 --snapshot-every 10'\n") in run.stdout, run.stdout


def test_commands_of_the_documentation_make_jobs(program: str, tmp_path: Path) -> None:
    commands = documented_commands("slurm", tmp_path)
    assert len(commands) == 3
    for words in commands:
        run = consist(program, tmp_path, *words)
        assert run.returncode == 0, run.stderr
        jobs = run.stdout.split("\n#!/usr/bin/env bash\n")[1:]
        assert len(jobs) == (2 if words[0] == "compare" else 1)
        for job in jobs:
            assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=8\n#SBATCH --gpus-per-node=8\n" in job
