"""Options of the program from arguments of Python."""
from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from consist._options import option_name, option_text, words


@pytest.mark.parametrize("keyword, option", [
    ("steps", "steps"), ("global_batch", "global-batch"), ("zero2__reduce_bucket_size", "zero2.reduce-bucket-size"),
    ("zero3_offload__offload_optimizer__device", "zero3-offload.offload-optimizer.device"), ("from_", "from"),
    ("from_set", "from-set"), ("tp_sp__gather_again", "tp-sp.gather-again")])
def test_names(keyword: str, option: str) -> None:
    assert option_name(keyword) == option


@pytest.mark.parametrize("value, text", [
    ("bf16", "bf16"), (3, "3"), (3e-4, "0.0003"), (5e7, "50000000.0"), (Path("a/b"), "a/b"), (True, "true"), (False, "false"),
    (np.int64(7), "7"), (np.float32(0.5), "0.5"), (np.True_, "true"), (["a", 1, Path("c")], "a,1,c"), ((1, 2), "1,2"), (range(3), "0,1,2"),
    ({"hidden_size": 8}, '{"hidden_size": 8}')])
def test_values(value: Any, text: str) -> None:
    assert option_text(value) == text


def test_a_value_that_is_none() -> None:
    with pytest.raises(TypeError, match="of type object cannot be the value of an option"):
        words({"steps": object()})


@pytest.mark.parametrize("keywords, sweeps, line", [
    ({"steps": 5, "machine": None, "profile": True}, False, ["--steps", "5", "--profile"]),
    ({"zero2__overlap_comm": False}, False, ["--zero2.overlap-comm=false"]),
    ({"learning_rate": -1.0, "sample_prompt": "--x", "price": ""}, False, ["--learning-rate=-1.0", "--sample-prompt=--x", "--price="]),
    ({"freeze": ["*norm*", "lm_head*"]}, False, ["--freeze", "*norm*,lm_head*"]),
    ({"plugin": ["a.so", Path("b.so")], "from_set": "k=v"}, False, ["--plugin", "a.so", "--plugin", "b.so", "--from-set", "k=v"]),
    ({"precision": ["fp32", "bf16"], "ranks": [1, 2]}, True, ["--precision", "fp32,bf16", "--ranks", "1,2"]),
    ({"freeze": [["a", "b"], "none"]}, True, ["--freeze", "[a,b],[none]"]),
    ({"text__files": ["a.txt", "b.txt"], "zero2__stage": [1, 2]}, True, ["--text.files", "[a.txt],[b.txt]", "--zero2.stage", "1,2"])])
def test_words(keywords: Dict[str, Any], sweeps: bool, line: List[str]) -> None:
    assert words(keywords, sweeps=sweeps) == line


def test_options_as_the_program_spells_them() -> None:
    assert words({"steps": 5}, {"zero2.stage": 1, "--pack": False}) == ["--steps", "5", "--zero2.stage", "1", "--pack=false"]
    with pytest.raises(TypeError, match="'global-batch' is given as a keyword, too"):
        words({"global_batch": 1}, {"global-batch": 2})
