"""Reads Megatron-LM's arguments, as megatron_script makes them of a script or a file."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from .megatron_keys import FAMILIES, RULES
from .megatron_model import read_model
from .megatron_parallelism import Parallelism
from .megatron_schedule import Schedule
from .messages import as_text, printable, shown
from .rules import KeyReader, Rule, drop_nulls
from .shell_script import UNKNOWN
from .stored import StoredValues
from .syntax import number_in
from .target import GOES_BEFORE, Target, first_layers

_OF_FP8 = ("fp8-format", "fp8-hybrid", "fp8-e4m3", "fp8-recipe", "fp8-amax-history-len", "fp8-amax-compute-algo",
           "fp8-param-gather")
_OPS = {"layernorm": "rms_norm", "mlp_act": "swiglu", "moe_act": "swiglu"}  # modules as ops
_OF_RECOMPUTE = ("recompute-activations", "recompute-granularity", "recompute-method", "recompute-num-layers",
                 "recompute-modules", "activations-checkpoint-method", "checkpoint-activations")


def read(root: Dict[str, Any], target: Target) -> None:
    """Sets what the arguments state; those that are absent have Megatron-LM's defaults."""
    Reader(target).run(root)


def _typed(value: Any) -> Any:
    """A word of a command line as the number or truth value that it is."""
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    number = number_in(value)
    return value if number is None else number


def _listed(value: Any) -> List[Any]:
    return value if isinstance(value, list) else [value]


class Reader(KeyReader):
    """Reads the arguments by the table of them all."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, RULES)
        self.values = StoredValues(target)

    def run(self, root: Dict[str, Any]) -> None:
        """Reads the arguments."""
        self._prepare(root)
        drop_nulls(root, self.target)
        parallelism = Parallelism(self.values)
        self.read_all(root, self._read_batch, self._read_precision, parallelism.read, lambda: read_model(self.values),
                      self._read_optimizer, Schedule(self.values).read, self._read_recompute, self._read_offload,
                      parallelism.read_stages)

    def _prepare(self, tree: Dict[str, Any], prefix: str = "") -> None:
        """Types the words, and takes out what could only be known by running the script."""
        for name in sorted(tree):
            value = tree[name]
            if isinstance(value, dict):
                self._prepare(value, f"{prefix}{name}.")
            elif any(isinstance(word, str) and UNKNOWN in word for word in _listed(value)):
                self.target.differs(f"{printable(prefix + name)}: its value is not known without running the script; "
                                    "as if it were absent")
                del tree[name]
            else:
                tree[name] = _typed(value)

    def rule_of(self, key: str) -> Optional[Rule]:
        """The rule of the argument, or of its family."""
        known = self.rules.get(key)
        return known or next((rule for beginning, rule in FAMILIES.items() if key.startswith(beginning)), None)

    def read_own(self, key: str, value: Any) -> None:
        """Keeps the value."""
        name = key.rpartition(".")[2]
        if key == "num-key-value-heads":  # of Megatron-DeepSpeed
            self.values.add("group-query-attention", key, True)
            name = "num-query-groups"
        self.values.add(name, key, value)

    def _read_batch(self) -> None:
        values = self.values
        values.note("--dataset synthetic is data of that kind", "mock-data")
        if values.has("micro-batch-size"):
            values.state("micro-batch-size", "batch", values.whole("micro-batch-size", 1, 1, 10 ** 9))
        if self.target.given("accumulation"):
            values.note(f"--accumulation{GOES_BEFORE}", "global-batch-size")
        elif values.has("global-batch-size"):
            values.state("global-batch-size", "global-batch", values.whole("global-batch-size", 1, 1, 10 ** 12))

    # Precision

    def _read_precision(self) -> None:
        values, target = self.values, self.target
        if values.truth("fp16"):
            values.refuse("fp16", "is given: training in fp16, with a scaled loss, is not done here; bf16 is "
                                  f"({target.source.set_option} fp16=false {target.source.set_option} bf16=true)")
        values.note("off", "fp16")
        asks = [name for name in _OF_FP8[:3] if values.has(name) and (name == "fp8-format" or values.truth(name))]
        origin = asks[0] if asks else "bf16"
        values.state(origin, "precision", "fp8" if asks else "bf16" if values.truth("bf16") else "fp32")
        precision = target.value("precision")
        if asks:
            values.note("--precision fp8, whose other ops are in bf16", "bf16")
        if asks and precision == "fp8":
            self._read_fp8()
        else:
            values.note(f"no effect: --precision {precision}", *(name for name in _OF_FP8 if name != origin))
        low = values.truth("grad-reduce-in-bf16")
        values.note(f"gradients are added up and sent in {'bf16' if low else 'fp32'}", "grad-reduce-in-bf16",
                    "accumulate-allreduce-grads-in-fp32")
        if precision != "fp32":
            target.derive_plugin("grad-reduce-in-bf16", precision, "gradients", "bf16" if low else "f32")

    def _read_fp8(self) -> None:
        values, target = self.values, self.target
        form = next((form for form in ("hybrid", "e4m3") if values.truth(f"fp8-{form}")), "")
        form = form or values.choice("fp8-format", "hybrid", ("hybrid", "e4m3"))
        recipe = values.choice("fp8-recipe", "delayed", ("delayed", "tensorwise", "blockwise"))
        scaling = {"tensorwise": "tensor", "blockwise": "block"}.get(recipe, recipe)
        target.derive_plugin("fp8-format", "fp8", "gradient-format", "e5m2" if form == "hybrid" else "e4m3")
        values.state_plugin("fp8-recipe", "fp8", "scaling", scaling)
        latest = values.choice("fp8-amax-compute-algo", "most_recent", ("most_recent", "max")) == "most_recent"
        history = 1 if latest else values.whole("fp8-amax-history-len", 1, 1, 10 ** 6)
        if scaling == "delayed":
            target.derive_plugin("fp8-amax-history-len", "fp8", "amax-history-len", str(history))
        values.note("--fp8.amax-history-len" if scaling == "delayed" else f"no effect: the recipe is {recipe}",
                    "fp8-amax-history-len", "fp8-amax-compute-algo")
        if not values.truth("fp8-param-gather"):
            values.note("off", "fp8-param-gather")
        elif scaling == "tensor":
            values.state_plugin("fp8-param-gather", "fp8", "gathers", "true")
        else:
            values.note(f"no effect here: with {scaling} scales weights are gathered in bf16, which are the same "
                        "numbers", "fp8-param-gather")

    # Optimizer

    def _read_optimizer(self) -> None:
        values = self.values
        values.choice("optimizer", "adam", ("adam",))
        values.state("optimizer", "optimizer", "adamw")
        values.state("weight-decay", "weight-decay", values.number("weight-decay", 0.01))
        values.state("clip-grad", "clip", values.number("clip-grad", 1.0))
        for name, option, fallback in (("adam-beta1", "beta1", 0.9), ("adam-beta2", "beta2", 0.999),
                                       ("adam-eps", "epsilon", 1e-8)):
            values.state_plugin(name, "adamw", option, as_text(values.number(name, fallback)))
        values.state("seed", "seed", values.whole("seed", 1234, 0, 2 ** 62))

    # Activations

    def _read_recompute(self) -> None:
        values, target = self.values, self.target
        granularity = values.choice("recompute-granularity", "none", ("none", "selective", "full"))
        old = "activations-checkpoint-method"
        what, layers = "none", ""
        if granularity == "full" or values.has(old) or values.truth("checkpoint-activations"):
            what, layers = self._recomputed_layers(old if values.has(old) else "recompute-method")
        elif granularity == "selective":
            what = self._selective_ops() or "none"
        said = target.state_recompute(what, layers)
        if what == "none" and granularity != "full" and not target.given("recompute"):
            said = "attention keeps no scores that could be made again"
        values.note(said, *_OF_RECOMPUTE)

    def _recomputed_layers(self, name: str) -> Tuple[str, str]:
        """The --recompute and the layers that full recomputation amounts to; '': all."""
        values = self.values
        method, count = values.choice(name, "uniform", ("uniform", "block")), "recompute-num-layers"
        layers = values.whole(count, 1, 0, 100_000)
        if method == "block" and layers == 0:
            return "none", ""
        if method == "uniform":
            if layers != 1:
                values.refuse(count, f"is {layers} with the method uniform: the input of each layer is kept here; it "
                                     "may be 1")
            return "full", ""
        if values.whole("pipeline-model-parallel-size", 1, 1, 65_536) > 1:
            values.refuse(name, "is block beside a pipeline: which layers of each stage are made again cannot be said "
                                "here; uniform is done")
        return "full", first_layers(min(layers, self.target.sizes(name).layers))

    def _selective_ops(self) -> str:
        name = "recompute-modules"
        ops = []
        for module in _listed(self.values[name]) if self.values.has(name) else []:
            if module != "core_attn":
                if not isinstance(module, str) or module not in _OPS:
                    self.values.refuse(name, f"has {shown(module)}; here it may be core_attn, layernorm and moe_act")
                ops.append(_OPS[module])
        return ",".join(dict.fromkeys(ops))

    def _read_offload(self) -> None:
        """The activations of the first layers wait on the host."""
        values, target, count, option = self.values, self.target, "cpu-offloading-num-layers", "offload-activations"
        layers = values.whole(count, 0, 0, target.sizes(count).layers) if values.truth("cpu-offloading") else 0
        target.stated.add(option)
        if layers:
            target.set(option, first_layers(layers))
        said = f"--{option} {target.value(option)}" + (GOES_BEFORE if target.given(option) else "")
        values.note(said if layers else "off", "cpu-offloading", count)
