"""consist compare --on slurm: rows as jobs."""
from __future__ import annotations

import json
import re
import time
from pathlib import Path

from hosts import wait_for
from slurm_cluster import Slurm
from training import TINY, losses_of, steps_in, write_cluster

ROWS = [word if word != "zero2" else "ddp,zero2" for word in TINY]


def test_rows_run_beside_one_another_and_make_the_table(slurm: Slurm, program: str, tmp_path: Path) -> None:
    write_cluster(tmp_path, f'folder = "{tmp_path}/shared"', f'consist = "{program}"', "nodes = 2")
    words = [program, "compare", "--on", "slurm", *ROWS, "--repeats", 1, "--output", "rows", "--report", "report.html"]
    run = slurm.run(words, tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    at = [run.stderr.index(text) for text in ("ddp: job", "zero2: job", "tokens/s")]
    assert at == sorted(at), "both are submitted before one has ended\n" + run.stderr
    assert len(re.findall(r"^ *\*? *qwen3-tiny +(?:ddp|zero2) ", run.stdout, re.M)) >= 2, run.stdout
    for name in ("ddp", "zero2"):
        archive, = (tmp_path / "rows").glob(f"*{name}*.h5")
        assert len(losses_of(archive)) == 3
        assert archive.with_suffix(".log").read_text() and archive.with_suffix(".toml").exists()
    assert (tmp_path / "rows" / "comparison.h5").exists() and (tmp_path / "report.html").exists()
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == ["compare-1", "compare-2"]

    began = time.monotonic()
    again = slurm.run([word for word in words if word not in ("--report", "report.html")], tmp_path)
    assert again.returncode == 0 and again.stderr.count("done before") == 2, again.stderr
    assert time.monotonic() - began < 20 and len(list((tmp_path / "shared").iterdir())) == 2


def test_rows_that_cannot_be_are_in_the_table_with_their_reason(slurm: Slurm, program: str, tmp_path: Path) -> None:
    write_cluster(tmp_path, f'folder = "{tmp_path}/shared"', f'consist = "{program}"', "ranks-per-node = 2", "max-jobs = 1", "exclusive = false")
    words = [word if word != "zero2" else "ddp" for word in TINY]
    run = slurm.run([program, "compare", "--on", "slurm", *words, "--ranks", "2,3", "--repeats", 1, "--output", "rows"], tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "--ranks 3 do not fill nodes of 2 ranks (./cluster.toml: ranks-per-node)".replace("./", "") in run.stdout, run.stdout
    assert len(list((tmp_path / "rows").glob("*.h5"))) == 2, "one row and comparison.h5"


def test_a_row_that_is_cancelled_does_not_stop_the_rest_and_ctrl_c_does(slurm: Slurm, program: str, tmp_path: Path) -> None:
    write_cluster(tmp_path, f'folder = "{tmp_path}/shared"', f'consist = "{program}"', "nodes = 2")
    words = ["100000" if word == "3" else word for word in ROWS]
    run = slurm.start([program, "compare", "--on", "slurm", *words, "--repeats", 1, "--output", "rows", "--json"], tmp_path)
    archives = [tmp_path / "shared" / f"compare-{n}" / "run.h5" for n in (1, 2)]
    wait_for(lambda: all(steps_in(archive) > 1 for archive in archives), 40, "two steps of both rows")
    first, second = sorted(slurm.run(["squeue", "-h", "-o", "%A"]).stdout.split(), key=int)
    slurm.run(["scancel", first])
    logs = tmp_path / "rows"
    wait_for(lambda: any("was cancelled" in log.read_text() for log in logs.glob("*.log")), 20, "the end of the first row")
    assert slurm.run(["squeue", "-h", "-o", "%A"]).stdout.split() == [second]
    slurm.interrupt(run)
    output, errors = run.communicate(timeout=30)
    assert run.returncode == 130, output + errors
    assert f"failed: job {first} was cancelled, not by this command" in errors
    assert "interrupted: by SIGINT (Ctrl-C) after step" in errors
    ends = [json.loads(line) for line in output.splitlines()]
    assert [event["state"] for event in ends if event["event"] == "run" and event["state"] != "started"] == ["failed", "interrupted"], output
    assert slurm.run(["squeue", "-h"]).stdout == ""


def test_tune_measures_its_best_by_jobs(slurm: Slurm, program: str, tmp_path: Path) -> None:
    """The place where the command is given has no such machine: its jobs have."""
    write_cluster(tmp_path, f'folder = "{tmp_path}/shared"', f'consist = "{program}"', "nodes = 2")
    words = ["--model", "qwen3-tiny", "--sequence", "32", "--global-batch", "4", "--device", "cpu", "--machine", "cpu"]
    run = slurm.run([program, "tune", "--on", "slurm", *words, "--measure", 2, "--search-seconds", 5, "--json"], tmp_path, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads(run.stdout.splitlines()[-1])
    measured = [row for row in result["rows"] if row["measured_ms"]]
    assert sorted(row["measured_steps"] for row in measured) == [10, 30], result["rows"]
    assert measured[0]["command"].startswith("consist train --on slurm "), measured[0]["command"]
    assert all("--ranks" not in row["command"] for row in measured), "the file says how many"
    names = sorted(path.name for path in (tmp_path / "shared").iterdir())
    assert names == ["tune-1", "tune-2", "tune-3"], "two of 10 steps, the better one of 30"
