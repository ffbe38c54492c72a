"""consist reproduce: a published number is held against the prediction of its recipe."""
from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Dict

import pytest
from test_json import check

import consist

RECIPE = """[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
[activation_checkpoint]
mode = "full"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "llama3_8b.toml"
    path.write_text(RECIPE)
    return path


def reproduce(program: str, path: Path, published: str, *words: object, status: int, ranks: int = 8) -> "subprocess.CompletedProcess[str]":
    line = [program, "reproduce", path, "--published", published, "--ranks", str(ranks), "--advise-seconds", "1", *map(str, words)]
    result = subprocess.run(line,
                            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240, env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert result.returncode == status, result.stdout + result.stderr
    return result


def answer(program: str, path: Path, published: str, *words: object, status: int, machine: str = "h100", ranks: int = 8) -> Dict[str, Any]:
    line = ["--machine", machine, "--json", *words]
    document: Dict[str, Any] = json.loads(reproduce(program, path, published, *line, status=status, ranks=ranks).stdout)
    check("reproduce", document)
    return document


def test_the_prediction_itself_is_explained_and_what_is_outside_its_interval_not(program: str, recipe: Path) -> None:
    first = answer(program, recipe, "100", status=1)
    predicted = first["predicted"]
    assert first["outcome"] == "not explained" and first["gap"] < 0 and not first["missing"]["advice"]
    assert predicted["low"] < predicted["tokens_per_second_per_gpu"] < predicted["high"] and predicted["unmeasured_kinds"] == []
    for rate, status in ((predicted["low"] * 1.001, 0), (predicted["low"] * 0.999, 1), (predicted["high"] * 0.999, 0)):
        assert answer(program, recipe, str(rate), status=status)["published"]["tokens_per_second_per_gpu"] == pytest.approx(rate)


def test_a_number_out_of_reach_says_what_is_missing(program: str, recipe: Path) -> None:
    document = answer(program, recipe, "30000", status=1)
    missing, predicted = document["missing"], document["predicted"]["tokens_per_second_per_gpu"]
    assert document["outcome"] == "not explained" and document["gap"] == pytest.approx(30000 / predicted - 1)
    assert any("exposed communication" in part["name"] for part in missing["parts"])
    without = document["predicted"]["step_seconds"] - sum(part["seconds"] for part in missing["parts"])
    assert missing["tokens_per_second_per_gpu_without_waiting"] == pytest.approx(8192 / without, rel=1e-4)
    needed = missing["needed_products_share_of_peak"]
    assert needed is None or needed > missing["best_products_share_of_peak"] > missing["products_share_of_peak"] > 0.4
    assert any("--recompute none" in one["options"] or "recompute" in one["options"] for one in missing["advice"]), "full recomputation costs a third"
    text = reproduce(program, recipe, "30000", "--machine", "h100", status=1).stdout
    assert "NOT EXPLAINED" in text and "it thinks that impossible" in text and "of what is missing" in text


def test_the_needed_share_is_that_of_products_in_the_time_that_is_left(program: str, recipe: Path) -> None:
    found = answer(program, recipe, "5000", status=1)
    line = [program, "predict", "--from", str(recipe), "--ranks", "8", "--machine", "h100", "--json"]
    step = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
    products, seconds = step["seconds"]["products"], step["step_seconds"]["value"]
    left = products + 8192 / 5000 - seconds
    missing = found["missing"]
    assert missing["needed_products_share_of_peak"] == pytest.approx(missing["products_share_of_peak"] * products / left, rel=1e-3)


def test_flops_mean_other_tokens_by_each_counting(program: str, recipe: Path) -> None:
    rate = answer(program, recipe, "100", status=1)["predicted"]["tokens_per_second_per_gpu"]
    parameters, attention = 8.030e9 - 128256 * 4096, 32 * 32 * 128 * 8192  # of products; half of the square, forward, over 2 FLOPs
    full = 6 * parameters + 12 * attention
    words = ["--counting", "full"]
    document = answer(program, recipe, f"{rate * full / 1e12}T", *words, status=0)
    by = {one["counting"]: one for one in document["published"]["by_counting"]}
    assert by["full"]["flops_per_token"] == pytest.approx(full, rel=1e-3)
    assert by["causal"]["flops_per_token"] == pytest.approx(6 * parameters + 6 * attention, rel=1e-3)
    assert by["causal-body"]["flops_per_token"] == pytest.approx(6 * (parameters - 128256 * 4096) + 6 * attention, rel=1e-3)
    assert document["published"]["tokens_per_second_per_gpu"] == pytest.approx(rate, rel=1e-3)
    assert answer(program, recipe, f"{rate * full / 1e12}T", status=1)["gap"] == pytest.approx(
        full / by["causal"]["flops_per_token"] - 1, rel=1e-2)
    step = answer(program, recipe, "2s", status=1)["published"]
    assert step["unit"] == "step_seconds" and step["tokens_per_second_per_gpu"] == pytest.approx(4096)


def test_the_contract_names_what_is_taken_for_granted(program: str, recipe: Path) -> None:
    contract = {term["what"]: term for term in answer(program, recipe, "100", status=1)["contract"]}
    assert {"FLOPs", "batch", "data", "clock and power", "network", "step", "versions"} == set(contract)
    assert "8 sequences of 8192 tokens" in contract["batch"]["words"] and contract["batch"]["source"] == "recipe"
    assert "700 W" in contract["clock and power"]["words"] and contract["clock and power"]["source"] == "machine"


def test_what_no_step_was_measured_of_cannot_be_told(program: str, recipe: Path) -> None:
    document = answer(program, recipe, "30000", machine="a100,capacity=8.39e10", status=3)
    assert document["outcome"] == "cannot be told" and document["predicted"]["low"] is None and document["predicted"]["unmeasured_kinds"]


def test_within_what_was_measured_is_explained_though_between_nodes_nothing_was(program: str, recipe: Path) -> None:
    far = answer(program, recipe, "30000", ranks=16, status=3)["predicted"]
    assert any("between nodes" in kind for kind in far["unmeasured_kinds"]) and far["low"] < far["tokens_per_second_per_gpu"]
    assert answer(program, recipe, str(far["low"] * 1.001), ranks=16, status=0)["outcome"] == "explained"


def test_python_asks_and_holds_it_true_or_false(recipe: Path) -> None:
    found = consist.reproduce(recipe, "744T", counting="full", ranks=8, machine="h100", advise_seconds=1, time_limit=200)
    assert not found and found.outcome == "not explained" and found.published["counting"] == "full"
    assert "versions" in list(found.table.what) and "exposed communication" in str(found)
    with pytest.raises(consist.UsageError, match="no published speed"):
        consist.reproduce(recipe, "fast", ranks=8)


@pytest.mark.parametrize("published, words, said", [
    ("0", [], "is no published speed"), ("12X", [], "is no published speed"), ("nan", [], "is no published speed"),
    ("1e3", ["--counting", "mine"], "counting"), ("1e3", ["--from", "x.toml"], "is given beside the file"),
    ("1e3", ["--machine", "h1000"], "h1000")])
def test_misuse_has_its_status(program: str, recipe: Path, published: str, words: "list[str]", said: str) -> None:
    assert said in reproduce(program, recipe, published, *words, status=2).stderr


def test_a_file_that_cannot_be_read_is_misuse(program: str, tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[model\n")
    for name in ("broken.toml", "missing.toml"):
        reproduce(program, tmp_path / name, "1e3", status=2)


def test_a_plan_that_does_not_fit_is_not_explained(program: str, recipe: Path) -> None:
    document = answer(program, recipe, "5000", machine="h100,capacity=8e9", status=1)
    assert document["outcome"] == "not explained" and not document["predicted"]["fits"]
