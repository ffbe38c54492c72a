"""Recognition: a file of one format is none of another."""
from __future__ import annotations

import json
from typing import Any, Dict, Iterator, Tuple

import pytest
from readers.reading import Reading
from readers.test_accelerate import DEEPSPEED
from readers.test_accelerate import WHOLE as ACCELERATE
from readers.test_automodel import RECIPE
from readers.test_bridge import CONTAINER, OVER_A_RECIPE
from readers.test_megatron import YAML as MEGATRON
from readers.test_primus import EXPERIMENT, TITAN
from readers.test_torchtitan import WHOLE as TORCHTITAN
from readers.test_torchtitan_dump import dump
from readers.test_trainer import ARGUMENTS, AXOLOTL

from consist.readers.formats import FORMATS
from consist.readers.syntax import parse, syntax_of

FILES: Dict[str, Tuple[str, str]] = {
    "accelerate": ("accelerate", ACCELERATE), "accelerate of DeepSpeed": ("accelerate", DEEPSPEED), "megatron": ("megatron", MEGATRON),
    "flat megatron": ("megatron", "num_layers: 4\nhidden_size: 64\nmicro_batch_size: 2\nglobal_batch_size: 8\ntrain_iters: 3\n"),
    "torchtitan": ("torchtitan", TORCHTITAN), "dump": ("torchtitan", json.dumps(dump())), "automodel": ("automodel", RECIPE),
    "bridge": ("bridge", CONTAINER), "bridge over a recipe": ("bridge", OVER_A_RECIPE),
    "bridge of old sections": ("bridge", "_target_: megatron.bridge.training.config.ConfigContainer\ntraining:\n  seed: 1\n"),
    "primus": ("primus", EXPERIMENT), "primus of torchtitan": ("primus", TITAN), "axolotl": ("axolotl", AXOLOTL),
    "arguments": ("transformers", json.dumps(ARGUMENTS)),
    "deepspeed": ("", '{"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW"}, "scheduler": {}, "train_batch_size": 8}'),
    "nothing": ("", "model: {}\noptimizer: {}\nscheduler: {}\nname: x\n"), "a training of another kind": ("", "train:\n  epochs: 3\nmodel:\n  name: x\n"),
    "modules": ("", "modules:\n  first:\n    kind: x\n"), "steps": ("", "step_scheduler:\n  gamma: 0.1\n")}


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_file_is_of_one_format(name: str) -> None:
    expected, text = FILES[name]
    tree = parse(text, syntax_of(text), name)
    recognised = {form.name for form in FORMATS if form.recognises(tree)}
    assert recognised == ({expected} if expected else set())


def leaves(tree: Dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The paths of all values."""
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key


@pytest.mark.parametrize("text", [
    RECIPE, RECIPE.replace("  sequence_parallel: false", "  pp_size: 2\n  pipeline:\n    pp_schedule: 1f1b\n    round_virtual_stages_to_pp_multiple: up\n"
                           "    layers_per_stage: 8"), CONTAINER, TORCHTITAN, AXOLOTL, ACCELERATE], ids=range(6))
def test_something_is_said_of_each_key(reading: Reading, text: str) -> None:
    said = {entry.key for entry in reading.read(text, model="llama-tiny").entries}
    for path in leaves(parse(text, syntax_of(text), "file")):
        words = path.split(".")
        assert any(".".join(words[:count]) in said for count in range(1, len(words) + 1)), path


def test_what_is_read_names_all(reading: Reading) -> None:
    reading.refused("a: 1\n", "Megatron-Bridge", "NeMo AutoModel", "Primus", "Axolotl", "torchtitan", "Accelerate", "Megatron-LM")
