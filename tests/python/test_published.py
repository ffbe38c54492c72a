"""Predictions beside published sweeps: the order of layouts, who fits, and errors are no worse than was recorded (tests/bench/published)."""
from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "bench" / "published"
# Those that take seconds together.
SWEEPS = ("SimuMax, 70b, 4,096 x 4", "SimuMax, 405b, 4,096 x 4", "torchtitan, A100 2024-04 llama-2-13b 64 4096", "nanotron, 3B, largest micro-batch")
GROUPS = ("nanotron, 3B", "out of memory, issues")


@pytest.fixture(scope="module")
def bench() -> Any:
    sys.path.insert(0, str(FOLDER))
    import predict
    import score
    import sweeps
    yield predict, score, sweeps
    sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def predicted(bench: Any, program: str) -> List[Dict[str, Any]]:
    predict, _, sweeps = bench
    rows = [row for row in sweeps.all_rows() if row["sweep"] in SWEEPS or row["group"] in GROUPS]
    answers, failed = predict.predict_all(program, rows, jobs=max(1, (os.cpu_count() or 2) // 2))
    assert not failed, failed[0]["failure"]
    return list(answers)


def test_scores_are_no_worse_than_recorded(bench: Any, predicted: List[Dict[str, Any]]) -> None:
    predict, score, _ = bench
    recorded = json.loads((FOLDER / "scores.json").read_text())
    found = predict.scores_of(predicted)
    for sweep in SWEEPS:
        assert score.kendall(found["order"][sweep]) >= score.kendall(recorded["order"][sweep]), f"{sweep}: {found['order'][sweep]}"
        assert found["regret"][sweep] <= recorded["regret"][sweep] + 0.005, f"{sweep}: another layout is predicted to be the fastest"
    for group, error in found["mean_error"].items():
        if group in GROUPS:
            assert error <= recorded["mean_error"][group] + 0.02, f"{group}: a mean error of {error:.1%}"


def test_what_fits_is_what_was_recorded(predicted: List[Dict[str, Any]]) -> None:
    recorded = json.loads((FOLDER / "scores.json").read_text())["misjudged"]
    misjudged = [f"{row['group']}: {row['layout']}" for row in predicted if row["fits"] != (row["outcome"] == "ran")]
    assert set(misjudged) <= set(recorded), "predicted to fit though it did not, or the other way"


def test_every_row_has_a_source_a_date_and_an_outcome(bench: Any) -> None:
    for row in bench[2].all_rows():
        assert row["source"] and row["date"] and row["layout"] and row["outcome"] in ("ran", "oom"), row
        assert bool(row["tokens_per_second_per_gpu"]) <= (row["outcome"] == "ran"), "a speed of what ran out of memory"


def test_scores_of_known_orders(bench: Any) -> None:
    score = bench[1]

    def rows(*pairs: "tuple[float, float]") -> List[Dict[str, Any]]:
        return [{"published": p, "predicted": q, "outcome": "ran", "fits": True} for p, q in pairs]

    assert score.order(rows((1, 2), (2, 3), (3, 9))) == (3, 0, 0) and score.regret(rows((1, 2), (2, 3), (3, 9))) == 0
    assert score.order(rows((1, 3), (2, 2), (3, 1))) == (0, 3, 0) and score.regret(rows((1, 3), (2, 2), (4, 1))) == 0.75
    assert score.order(rows((1, 1), (1.01, 2), (2, 2))) == (1, 0, 1), "1 and 1.01 are too close to count"
    assert score.regret(rows((1, 5), (4, 5))) == 0.75, "of what is predicted alike the slowest is taken"
    assert score.kendall((3, 1, 0)) == 0.5 and score.kendall((0, 0, 0)) is None
