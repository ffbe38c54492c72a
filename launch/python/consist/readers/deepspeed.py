"""DeepSpeed's files, which the program reads itself (--deepspeed-config), and its settings in other trainers' files."""
from __future__ import annotations

import os
from typing import Any, Dict, Sequence

from .messages import DataError, in_quotes
from .rules import find_value
from .stored import StoredValues
from .syntax import parse_json, read_text
from .target import Target

_OF_DEEPSPEED = ("zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu",
                 "gradient_accumulation_steps", "optimizer", "bf16", "fp16", "gradient_clipping")
NO_FP16 = "training in fp16, with a scaled loss, is not done here; bf16 is"


def is_config(root: Dict[str, Any]) -> bool:
    """True for the keys of a DeepSpeed JSON."""
    return not root or any(key in root for key in _OF_DEEPSPEED)


def strategy_of(stage: int) -> str:
    """The strategy that a stage of ZeRO is."""
    return ("ddp", "zero2", "zero2", "zero3-offload")[stage]


class NamedFile:
    """A DeepSpeed JSON that a file of another trainer names. The program reads it after the options of that file."""

    def __init__(self, values: StoredValues, name: str, folders: Sequence[str]) -> None:
        """Raises DataError if the text of `name` is a file in none of the folders."""
        key, text = values.find(name), values.text(name, "")
        self.target: Target = values.target
        self.name = key.key if key else name
        paths = [os.path.join(folder, text) for folder in folders]
        found = [path for path in paths if os.path.isfile(path)]
        if not found:
            raise DataError(f"{self.target.source.where}{self.name} names {in_quotes(text)}, which is not there: there "
                            f"is no {' and no '.join(dict.fromkeys(paths))}")
        self.path = found[0]
        said = f"{self.target.source.where}{self.name} {self.path}"
        self.tree = parse_json(read_text(self.path), said, comments=True)
        if not isinstance(self.tree, dict):
            raise DataError(f"{said} is no JSON object")

    @property
    def stage(self) -> int:
        """The stage of ZeRO; 0 where it says none that there is."""
        stage = find_value(self.tree, "zero_optimization", "stage")
        return stage if stage in (1, 2, 3) and not isinstance(stage, bool) else 0

    def says_dtype(self) -> bool:
        """True if it chooses bf16 or fp16 itself, not by "auto"."""
        return any(isinstance(find_value(self.tree, block, "enabled"), bool) for block in ("bf16", "bfloat16", "fp16"))

    def state(self) -> None:
        """Hands the file to the program."""
        self.target.set("deepspeed-config", self.path)


def state_zero(target: Target, key: str, stage: int, offload_optimizer: str, offload_param: str) -> None:
    """Sets the strategy of a stage of ZeRO, with DeepSpeed's defaults of its sizes and the devices "cpu" or "none"."""
    strategy = strategy_of(stage)
    target.state_strategies(f"{key} {stage}", [(strategy, 0)])
    if stage in (1, 2):
        target.derive_plugin(f"{key} {stage}", strategy, "stage", str(stage))
    for name, device, least in (("offload_optimizer", offload_optimizer, 1), ("offload_param", offload_param, 3)):
        if device not in ("cpu", "none"):
            target.refuse(f"{name}_device", f'is {in_quotes(device)}; here it may be "cpu" or "none"')
        if device == "cpu" and stage < least:
            target.refuse(f"{name}_device", f'is "cpu", which needs stage {"3" if least == 3 else "1, 2 or 3"}')
        if device == "cpu":
            target.derive_plugin(f"{name}_device", strategy, name.replace("_", "-") + ".device", device)
    if stage > 0:
        # deepspeed/runtime/zero/config.py, DeepSpeed 0.19.6
        sizes = {"overlap_comm": "true" if stage == 3 else "false", "reduce_bucket_size": "500000000",
                 "allgather_bucket_size": "500000000", "sub_group_size": "1000000000"}
        for name, size in sizes.items():
            if stage < 3 or name != "allgather_bucket_size":
                target.absent_plugin(f"zero_optimization.{name}", strategy, name.replace("_", "-"), size)
    precision = target.value("precision")
    if precision in ("bf16", "fp8") and not target.given(f"{precision}.gradients"):
        target.differs(f"data_types.grad_accum_dtype is absent: --{precision}.gradients f32, more exact than "
                       "DeepSpeed's default, which is the model's dtype")
