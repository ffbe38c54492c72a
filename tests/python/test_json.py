"""What commands print with --json, held against the schemas in docs/json."""
from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import jsonschema
import pytest

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "json"
TINY = ["--model", "llama-tiny", "--batch", "1", "--sequence", "32", "--dataset", "synthetic", "--device", "cpu"]


def run(program: str, *words: object, timeout: float = 240) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([program, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
                          env=dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive"))


def check(command: str, value: Any) -> None:
    schema = json.loads((SCHEMAS / f"{command}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(value)


def lines_of(program: str, command: str, *words: object, status: int = 0) -> List[Dict[str, Any]]:
    result = run(program, command, *words, "--json")
    assert result.returncode == status, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    for line in lines:
        check(command, line)
    return lines


def test_train_tells_of_all_that_happens(program: str, tmp_path: Path) -> None:
    lines = lines_of(program, "train", *TINY, "--ranks", 2, "--steps", 4, "--evaluate-every", 2, "--evaluate-sequences", 2,
                     "--checkpoint", tmp_path / "c", "--archive", tmp_path / "run.h5")
    assert [line["event"] for line in lines] == ["run", "step", "step", "evaluation", "step", "step", "evaluation", "checkpoint",
                                                 "result"]
    assert lines[0]["ranks"] == 2 and lines[0]["archive"] == str(tmp_path / "run.h5")
    assert [line["step"] for line in lines if line["event"] == "step"] == [1, 2, 3, 4]
    assert lines[-1]["steps"] == 4 and lines[-1]["loss"] == lines[5]["loss"] and lines[-1]["ms"] > 0


def test_train_tells_samples(program: str) -> None:
    lines = lines_of(program, "train", "--model", "llama-tiny", "--batch", 1, "--sequence", 32, "--dataset", "text", "--steps", 2,
                     "--sample-every", 2, "--sample-prompt", "The", "--sample-tokens", 4, "--device", "cpu")
    sample, = [line for line in lines if line["event"] == "sample"]
    assert sample["step"] == 2 and sample["text"]


def test_a_run_with_nothing_left_has_a_result(program: str, tmp_path: Path) -> None:
    words = [*TINY, "--steps", 2, "--checkpoint", tmp_path / "c"]
    lines_of(program, "train", *words)
    lines = lines_of(program, "train", *words, "--resume")
    assert [line["event"] for line in lines] == ["result"] and lines[0]["steps"] == 0


@pytest.mark.parametrize("command", ["train", "explain", "tune"])
def test_what_is_refused_is_an_event(program: str, command: str) -> None:
    line = lines_of(program, command, "--model", "no-such-model", "--ranks", 2, "--global-batch", 2, "--modell", "x", status=2)[-1]
    assert line["event"] == "error" and line["status"] == 2 and "--modell" in line["message"]


def test_a_failing_run_ends_with_its_error_once(program: str) -> None:
    lines = lines_of(program, "train", *TINY, "--ranks", 2, "--steps", 30, "--learning-rate", "1e6", "--clip", 0, status=1)
    assert [line["event"] for line in lines].count("error") == 1 and "diverged" in lines[-1]["message"]


def test_compare_tells_runs_and_table(program: str, tmp_path: Path) -> None:
    lines = lines_of(program, "compare", *TINY, "--precision", "fp32,bf16,fp9", "--steps", 12, "--repeats", 1, "--output",
                     tmp_path / "c", status=2)
    rows = lines[0]["rows"]
    assert [row["options"]["precision"] for row in rows] == ["fp32", "bf16", "fp9"]
    assert [(line["row"], line["state"]) for line in lines if line["event"] == "run"] == [
        (0, "started"), (0, "finished"), (1, "started"), (1, "finished")]
    result = lines[-1]
    assert [row["status"] for row in result["rows"]] == ["finished", "finished", "refused"]
    assert all(Path(archive).is_file() for row in result["rows"] for archive in row["archives"])
    assert result["rows"][0]["tokens_per_second"] > 0 and result["rows"][2]["tokens_per_second"] is None


def test_compare_predicts(program: str) -> None:
    lines = lines_of(program, "compare", "--model", "llama-3.2-1b", "--strategy", "ddp,zero2", "--ranks", 8, "--precision", "bf16",
                     "--machine", "h100", "--predict")
    assert [line["event"] for line in lines] == ["comparison", "result"]
    assert lines[0]["output"] is None
    for row in lines[-1]["rows"]:
        assert row["ms"] > 0 and row["loss"] is None and row["archives"] == []


def test_tune_gives_commands(program: str) -> None:
    lines = lines_of(program, "tune", "--model", "llama-tiny", "--ranks", 2, "--global-batch", 4, "--sequence", 64, "--machine",
                     "h100", "--measure", 0, "--search-seconds", 20)
    assert lines[0]["event"] == "search" and lines[-1]["event"] == "result"
    best = lines[-1]["rows"][lines[-1]["winner"]]
    assert "--json" not in best["command"]
    assert best["predicted_low_ms"] < best["predicted_ms"] < best["predicted_high_ms"] and best["on_frontier"]
    assert "strategy" in [option["option"] for option in lines[-1]["around"]]
    assert {other["change"] for other in lines[-1]["other_rates"]} == {f"{what} 5% {how}" for what in ("links", "clock")
                                                                       for how in ("slower", "faster")}
    explained = run(program, "explain", *best["command"].split()[2:], "--summary")
    assert explained.returncode == 0, explained.stderr


def test_explain_has_every_stage(program: str) -> None:
    result = run(program, "explain", "--model", "llama-tiny", "--strategy", "pipeline=2", "--ranks", 2, "--accumulation", 2,
                 "--machine", "h100", "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    check("explain", document)
    assert [stage["layers"] for stage in document["stages"]] == ["0-2", "2-3"]
    parts = document["step"]["seconds"]
    assert 0 < parts["products"] < document["step"]["ms"] / 1e3


def test_prove_shows_its_statements(program: str) -> None:
    result = run(program, "prove", "--model", "llama-tiny", "--strategy", "pipeline=2+zero2", "--ranks", 4, "--accumulation", 2,
                 "--batch", 1, "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    check("prove", document)
    assert document["equal"] and document["first_difference"] is None
    assert [one["name"] for one in document["statements"]] == ["training", "evaluation", "checkpoint", "other layout", "order",
                                                                "full size"]
    assert "pipeline=2+zero3-offload=2 on 4 ranks" in document["statements"][3]["text"]
    refused = run(program, "prove", "--model", "llama-tiny", "--strategy", "pipeline=9", "--ranks", 9, "--json")
    assert refused.returncode == 2
    check("prove", json.loads(refused.stdout))


def test_plugins_have_their_options(program: str) -> None:
    result = run(program, "plugins", "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    check("plugins", document)
    zero2, = [one for one in document["plugins"] if (one["kind"], one["name"]) == ("strategy", "zero2")]
    assert "reduce-bucket-size" in {option["name"] for option in zero2["options"]}
    assert zero2["built_for"]["fingerprint"].startswith("headers-") and zero2["built_for"]["changed"] == []
    llama, = [one for one in document["plugins"] if (one["kind"], one["name"]) == ("model", "llama")]
    assert "llama-tiny" in {preset["name"] for preset in llama["presets"]}
    one = json.loads(run(program, "plugins", "zero2", "--json").stdout)
    assert [row["name"] for row in one["plugins"]] == ["zero2"]
