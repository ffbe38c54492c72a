"""Reads YAML of NVIDIA NeMo Megatron-Bridge: a whole ConfigContainer (run_config.yaml), or values over a recipe."""
from __future__ import annotations

from typing import Any, Dict

from .adapters import GIVE_LORA
from .megatron_fields import FieldReader, expect_object, plain
from .messages import in_quotes, listed, shown
from .rules import (EVALUATES, KEEPS_LOG, SAYS_CHECKPOINTS, SAYS_DATA, STATES_PROFILE, find_value, group, no_effect,
                    off, own, table)
from .target import Target

_FP8 = {"bf16": True, "fp8": "hybrid"}
# Names of mixed_precision, and what they set (src/megatron/bridge/training/mixed_precision.py at 067f987).
_PRECISIONS: Dict[str, Dict[str, Any]] = {
    "bf16_mixed": {"bf16": True},
    "fp16_mixed": {"fp16": True},
    "bf16_with_fp8_delayed_scaling_mixed": {**_FP8, "fp8_recipe": "delayed", "fp8_amax_history_len": 1024,
                                            "fp8_amax_compute_algo": "max", "fp8_param_gather": True},
    "bf16_with_fp8_current_scaling_mixed": {**_FP8, "fp8_recipe": "tensorwise", "fp8_param_gather": True,
                                            "first_last_layers_bf16": True, "num_layers_at_start_in_bf16": 1,
                                            "num_layers_at_end_in_bf16": 1},
    "bf16_with_fp8_subchannel_scaling_mixed": {**_FP8, "fp8_recipe": "blockwise"},
}
# What recipes for pretraining set unless they say otherwise (src/megatron/bridge/recipes/common.py and
# recipes/utils/optimizer_utils.py at 067f987).
_OF_RECIPES: Dict[str, Dict[str, Any]] = {
    "train": {"train_iters": 300_000, "global_batch_size": 32, "micro_batch_size": 2},
    "optimizer": {"lr": 3e-4, "min_lr": 3e-5, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-8,
                  "clip_grad": 1.0},
    "scheduler": {"lr_warmup_iters": 500, "lr_decay_style": "cosine", "start_weight_decay": 0.033,
                  "end_weight_decay": 0.033},
    "ddp": {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True,
            "grad_reduce_in_fp32": True, "data_parallel_sharding_strategy": "optim_grads_params"},
    "dataset": {"seq_length": 4096}, "rng": {"seed": 1234}}

RULES = table(
    group("train model optimizer scheduler ddp dist mixed_precision rng comm_overlap rerun_state_machine dataset"),
    own("model.seq_length model.vocab_size"),
    no_effect("it follows from the ranks", "comm_overlap.data_parallel_size data_parallel_size"),
    no_effect("--model says it", "model._target_ model.use_hf_vision_model"),
    off("peft", GIVE_LORA),
    off("inprocess_restart tensor_inspect ft", "a rank that dies ends the job, and --resume continues it"),
    no_effect(STATES_PROFILE, "profiling straggler nvrx_straggler"),
    no_effect(KEEPS_LOG, "logger"),
    no_effect(EVALUATES, "validation"),
    no_effect(SAYS_CHECKPOINTS, "checkpoint"),
    no_effect(SAYS_DATA, "tokenizer"),
    no_effect("all parameters have one learning rate", "optimizer_config_override_provider"),
    no_effect("the environment is the command's", "env_vars"),
    off("scheduler.max_steps", "scheduler.lr_decay_iters says how long rates decay"),
)
# Fields that begin alike.
_FAMILIES = no_effect("a loss that is no number ends the run", "error_injection_ rerun_")
_OF_DATASET = ("seq_length", "sequence_length")


def is_config(root: Dict[str, Any]) -> bool:
    """True for a ConfigContainer, and for an object with some of its sections."""
    if str(root.get("_target_", "")).startswith("megatron.bridge."):
        return True
    trained = isinstance(root.get("train"), dict) and any(
        key in root["train"] for key in ("train_iters", "global_batch_size", "micro_batch_size"))
    return trained and any(isinstance(root.get(key), dict) for key in ("model", "optimizer", "scheduler", "ddp"))


def read(root: Dict[str, Any], target: Target) -> None:
    """Sets what the sections state. Where they lie over a recipe, absent keys have the values of most recipes."""
    _Reader(target, RULES, _FAMILIES).run(root)


class _Reader(FieldReader):
    def run(self, root: Dict[str, Any]) -> None:
        """Reads the sections."""
        target, whole = self.target, "_target_" in root
        if whole:
            target.note("_target_", root.pop("_target_"), "a whole configuration")
        for key in list(root):
            root[key] = plain(root[key])
        self._leave_out_open(root)
        self.target.attempt(lambda: self._name_precision(root))
        if not whole:
            self._fill(root)
        self._move_decay(root)
        if not whole and not target.given("model"):
            target.attempt(lambda: target.refuse("model", "is said by the recipe in Python over which these values are "
                                                 "laid: give --model, or the run_config.yaml of a checkpoint, which "
                                                 "states all"))
        target.throw_refusals()
        super().run(root)

    def _leave_out_open(self, tree: Dict[str, Any], prefix: str = "") -> None:
        """Takes out ???, which the command line of the trainer has to give."""
        for key in sorted(tree):
            if isinstance(tree[key], dict):
                self._leave_out_open(tree[key], f"{prefix}{key}.")
            elif tree[key] == "???":
                del tree[key]
                self.target.differs(f"{prefix}{key} is ???, which the trainer's command line gives; as if it were "
                                    "absent")

    def _name_precision(self, root: Dict[str, Any]) -> None:
        """A name of a precision becomes what it sets."""
        given = root.get("mixed_precision")
        if isinstance(given, str):
            name = given.rpartition(".")[2].replace("-", "_")
            if name not in _PRECISIONS:
                self.target.refuse("mixed_precision", f"is {in_quotes(given)}, which is not done here; it may be "
                                   + listed(_PRECISIONS))
            self.target.detail(f"mixed_precision {name}: {shown(_PRECISIONS[name])}")
            root["mixed_precision"] = dict(_PRECISIONS[name])

    def _fill(self, root: Dict[str, Any]) -> None:
        """Values that recipes for pretraining set, where the file says nothing."""
        filled = []
        if "mixed_precision" not in root:
            root["mixed_precision"] = dict(_PRECISIONS["bf16_mixed"])
            filled.append("mixed_precision bf16_mixed")
        for section, fields in _OF_RECIPES.items():
            tree = expect_object(self.target, section, root.setdefault(section, {}))
            for field, value in fields.items():
                if field not in tree and not (section == "dataset" and "sequence_length" in tree):
                    tree[field] = value
                    filled.append(f"{section}.{field} {shown(value)}")
        self.target.differs("is laid over a recipe in Python, which is not run: what the file does not say is as most "
                            "recipes for pretraining have it. The run_config.yaml of a checkpoint states all")
        self.target.detail(f"as recipes have it: {', '.join(filled)}")

    def _move_decay(self, root: Dict[str, Any]) -> None:
        """The scheduler sets the weight decay in each step, whatever the optimizer's is."""
        scheduler, optimizer = root.get("scheduler"), root.get("optimizer")
        first, last = (find_value(scheduler, f"{end}_weight_decay") for end in ("start", "end"))
        if first is None or first != last or not isinstance(scheduler, dict) or not isinstance(optimizer, dict):
            return
        for end in ("start", "end"):
            key = f"{end}_weight_decay"
            self.target.note(f"scheduler.{key}", scheduler.pop(key), f"--weight-decay {shown(first)}")
        if optimizer.get("weight_decay", first) != first:
            self.target.differs(f"optimizer.weight_decay {shown(optimizer['weight_decay'])} is not what is trained "
                                f"with: scheduler.start_weight_decay {shown(first)} goes before it")
        optimizer["weight_decay"] = first

    def _visit_key(self, name: str, key: str, value: Any) -> None:
        if key.startswith("dataset.") and name not in _OF_DATASET:
            self.target.note(key, value, f"no effect here: {SAYS_DATA}")
        else:
            super()._visit_key(name, key, value)

    def read_own(self, key: str, value: Any) -> None:
        """Keeps the value; the model's length is that of its positions, too."""
        if key == "model.seq_length":
            self.values.add("max-position-embeddings", key, value)
        if key == "model.vocab_size":
            self.values.add("padded-vocab-size", key, value)
        else:
            super().read_own(key, value)
