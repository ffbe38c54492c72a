"""Recognises a file of another trainer by its content and reads it into the options of a run."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional

from . import (accelerate, automodel, axolotl, bridge, deepspeed, megatron, megatron_script, primus, torchtitan,
               torchtitan_dump, training_arguments)
from .messages import DataError, UsageError, in_quotes
from .rules import replace_values
from .syntax import parse, read_text, syntax_of
from .target import Context, Source, Target

Tree = Dict[str, Any]
WHAT_IS_READ = ("a torchtitan TOML, a script or file of Megatron-LM's arguments, an Accelerate YAML, Hugging Face's "
                "TrainingArguments, a YAML of Axolotl, Megatron-Bridge, NeMo AutoModel or Primus, or a DeepSpeed JSON "
                "(docs/readers.md)")


@dataclass(frozen=True)
class Format:
    """A format whose files are trees of keys."""

    name: str  # the first word of notes
    trainer: str  # whose defaults absent keys have
    example: str  # of a replacement
    recognises: Callable[[Tree], bool]
    read: Callable[[Tree, Target], None]
    prepare: Optional[Callable[[Tree, Target], Tree]] = None  # makes of the file's tree the one that is read


_MEGATRON = Format("megatron", "Megatron-LM", "num-layers=4", megatron_script.is_config, megatron.read,
                   megatron_script.arguments_of_tree)
# Ways out where a configuration is code: by what the code names, and for all other code.
_WAYS_OUT = {"megatron.bridge": "Megatron-Bridge writes the configuration that a recipe makes as YAML, which is read: "
                                "by cfg.to_yaml(FILE), and as run_config.yaml into each checkpoint (docs/readers.md)",
             "nemo_automodel": "Give the recipe's YAML (docs/readers.md)"}
_WAY_OUT = ("Give its values as options, or write them into a TOML of torchtitan's layout before February 2026 "
            "([model], [training], [parallelism], ...; docs/readers.md)")
# The first that recognises a tree reads it.
FORMATS: List[Format] = [
    Format("accelerate", "Accelerate", "fsdp_config.fsdp_offload_params=true", accelerate.is_config, accelerate.read),
    _MEGATRON,
    Format("torchtitan", "torchtitan", "parallelism.tensor_parallel_degree=2", torchtitan_dump.is_config,
           torchtitan_dump.read),
    Format("torchtitan", "torchtitan", "parallelism.tensor_parallel_degree=2", torchtitan.is_config, torchtitan.read),
    Format("automodel", "NeMo AutoModel", "distributed.tp_size=2", automodel.is_config, automodel.read),
    Format("bridge", "Megatron-Bridge", "train.micro_batch_size=2", bridge.is_config, bridge.read),
    Format("primus", "Primus", "train_iters=10", primus.is_config, primus.read, primus.prepare),
    Format("axolotl", "Axolotl", "micro_batch_size=2", axolotl.is_config, axolotl.read),
    Format("transformers", "Hugging Face's Trainer", "per_device_train_batch_size=2", training_arguments.is_config,
           training_arguments.read),
]


def read_file(path: str, context: Context) -> Target:
    """Reads the file into a target.

    Raises UsageError for keys that ask for something that is not done here or are unknown, and for a file of no known
    kind; DataError for one that cannot be read, is larger than 1 MiB, or is not what it looks like.
    """
    text = read_text(path)
    syntax = "python" if path.endswith(".py") else syntax_of(text)
    name = f"--from {path}"
    if syntax == "python":
        raise UsageError(f"{name} is Python code, which is not run here. "
                         + next((way for mark, way in _WAYS_OUT.items() if mark in text), _WAY_OUT))
    if not syntax:
        raise UsageError(f"{name} is of no format that is read here; it may be {WHAT_IS_READ}")
    if syntax == "script":
        return _read(_MEGATRON, path, context, lambda target: megatron_script.arguments_of_script(text, target))
    tree = parse(text, syntax, name)
    if not isinstance(tree, dict):
        raise DataError(f"{name} holds no table of keys")
    for form in FORMATS:
        if form.recognises(tree):
            prepare = form.prepare
            return _read(form, path, context, lambda target: prepare(tree, target) if prepare else tree)
    if syntax == "json" and deepspeed.is_config(tree):
        return _deepspeed(path, context)
    first = min(tree, default="")
    raise UsageError(f"{name} has keys of no format that is read here (the first is {in_quotes(first)}); it may be "
                     + WHAT_IS_READ)


def _read(form: Format, path: str, context: Context, tree_for: Callable[[Target], Tree]) -> Target:
    target = Target(Source(path, form.name, form.trainer, form.example), context)
    tree = tree_for(target)
    replace_values(context.replacements, tree, target)
    form.read(tree, target)
    return target


def _deepspeed(path: str, context: Context) -> Target:
    example = "zero_optimization.sub_group_size=1e9"
    target = Target(Source(path, "deepspeed", "DeepSpeed", example), context)
    target.set("deepspeed-config", path)
    return target
