"""Reads the JSON into which torchtitan writes a configuration (--debug.save_config_file, --debug.print_config).

Since February 2026 its configurations are functions of Python (config_registry.py), which are not run here. Keys are
those of Trainer.Config at b5bcd76 (August 2026), and of the months before, whose training has
local_batch_size and seq_len.
"""
from __future__ import annotations

from typing import Any, Dict, List, Optional

from .messages import as_text, in_quotes, shown
from .models import PRESETS, ModelBySizes
from .rules import (COMPILES_ALWAYS, EVALUATES, KEEPS_LOG, SAYS_CHECKPOINTS, SAYS_DATA, STATES_PROFILE, find_value,
                    no_effect, only, own, table, under)
from .target import GOES_BEFORE, MOST_RANKS, Target
from .torchtitan import Reader
from .torchtitan_keys import RULES
from .torchtitan_models import FLAVORS
from .torchtitan_parallelism import Parallelism

_KEPT = ("lr_scheduler", "training", "parallelism", "debug", "checkpoint")
_DUMP_RULES = table(
    {key: rule for key, rule in RULES.items() if key.partition(".")[0] in _KEPT},
    own("model_spec activation_checkpoint training.num_tokens_per_microbatch_per_dp_rank "
        "training.num_tokens_per_train_step training.max_context_length parallelism.num_pp_microbatches "
        "parallelism.enable_sequence_parallel"),
    under("optimizer",
          own("param_groups"),
          only('"fused"|"foreach"|"for-loop"', "implementation"),
          only("{}", "optimizer_factory_kwargs_by_name")),
    no_effect("--model FOLDER loads weights, --dataset tokens has the tokenizer", "hf_assets_path tokenizer"),
    no_effect("--archive, --export and --checkpoint say where results go", "dump_folder"),
    no_effect(STATES_PROFILE, "profiler"),
    no_effect(KEEPS_LOG, "metrics"),
    no_effect(SAYS_DATA, "dataloader"),
    no_effect(COMPILES_ALWAYS, "compile"),
    no_effect("--timeout is the longest wait for another rank", "comm"),
    no_effect(EVALUATES, "validator"),
    no_effect("the loss is cross-entropy, made in parts where it is large", "loss"),
    no_effect("steps are CUDA graphs on GPUs", "training.disable_cuda_graphs"),
    no_effect("it chooses among PyTorch's ways to send", "parallelism.enable_fsdp_symm_mem parallelism.spmd_backend"),
    no_effect("it concerns another load balancer", "parallelism.context_parallel_ptrr_mask_key"),
    no_effect("programs are verified before they run", "debug.spmd_typechecking debug.detect_anomaly"),
    only("false", "debug.batch_invariant"),
    no_effect(KEEPS_LOG, "debug.print_config debug.save_config_file debug.enable_structured_logging"),
    no_effect(SAYS_CHECKPOINTS, "checkpoint.id"),
    under("override", only("[]", "imports")),
)
_OF_LINEAR = {"param_init", "sharding_config", "in_features", "out_features", "bias"}


def is_config(root: Dict[str, Any]) -> bool:
    """True for what Trainer.Config.to_dict() makes."""
    return isinstance(root.get("model_spec"), dict) and "training" in root


def read(root: Dict[str, Any], target: Target) -> None:
    """Sets what the configuration states. It states all keys."""
    _DumpReader(target).run(root)


class _DumpParallelism(Parallelism):
    """Batches in tokens, and pipelines whose micro-batches are counted."""

    def _read_batch(self) -> None:
        values, target = self.values, self.target
        if not values.has("num_tokens_per_microbatch_per_dp_rank"):
            super()._read_batch()
            return
        context = int(target.value("sequence"))
        micro = self._sequences("num_tokens_per_microbatch_per_dp_rank", context)
        count = values.whole("num_pp_microbatches", 1, 1, MOST_RANKS) if self.pipeline > 1 else 1
        values.state("num_tokens_per_microbatch_per_dp_rank", "batch", micro)
        values.note(f"{count} micro-batches of a rank" if self.pipeline > 1 else "no effect: there is no pipeline",
                    "num_pp_microbatches")
        whole = "num_tokens_per_train_step"
        if target.given("global-batch") or target.given("accumulation"):
            values.note(f"--global-batch or --accumulation{GOES_BEFORE}", whole)
        elif values.has(whole) and values[whole] != -1:
            values.state(whole, "global-batch", self._sequences(whole, context))
        else:
            values.note("the micro-batches times the data-parallel ranks", whole)
            target.set("accumulation", count)
            target.detail(f"num_pp_microbatches: --accumulation {count}")

    def _sequences(self, name: str, context: int) -> int:
        tokens = self.values.whole(name, 16384, 1, 10 ** 12)
        if tokens % context:
            self.values.refuse(name, f"is {tokens}, which sequences of max_context_length {context} do not fill: they "
                               "have one length here")
        return tokens // context


class _DumpReader(Reader):
    parallelism = _DumpParallelism

    def __init__(self, target: Target) -> None:
        super().__init__(target, _DUMP_RULES)

    def run(self, root: Dict[str, Any]) -> None:
        """Reads the tables."""
        if root.get("activation_checkpoint", 0) is None:
            root["activation_checkpoint"] = {"mode": "none"}
        if find_value(root, "training", "max_context_length") is not None:
            root["training"]["seq_len"] = root["training"].pop("max_context_length")
        super().run(root)

    def read_own(self, key: str, value: Any) -> None:
        """Keeps values; those of param_groups become the optimizer's."""
        if key == "optimizer.param_groups":
            self._read_groups(key, value)
        elif key == "activation_checkpoint":
            self._read_activations(key, value)
        else:
            super().read_own(key, value)

    def _read_groups(self, key: str, value: Any) -> None:
        group = value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict) else {}
        if group.get("pattern") != ".*" or not isinstance(group.get("optimizer_kwargs"), dict):
            self.target.refuse(key, f"is {shown(value)}: all parameters have one learning rate and one decay here")
        known = {"lr": "lr", "eps": "eps", "weight_decay": "weight_decay"}
        for name, setting in group["optimizer_kwargs"].items():
            where = f"{key}.{name}"
            if name in known:
                self.values.add(known[name], where, setting)
            elif name == "betas" and isinstance(setting, list) and len(setting) == 2:
                self.values.add("beta1", where + ".0", setting[0])
                self.values.add("beta2", where + ".1", setting[1])
            else:
                self.target.refuse(where, f"is {shown(setting)}, which is not known here{self.leave_out(where)}")
        self.values.add("optimizer.name", f"{key}.optimizer_name", group.get("optimizer_name"))

    def _read_activations(self, key: str, value: Any) -> None:
        """Its class does not stand there: it follows from the fields that the class has."""
        if not isinstance(value, dict):
            self.target.refuse(key, f"is {shown(value)}; it must be an object or null")
        if "memory_budget" in value or "activation_memory_budget" in value:
            self.target.refuse(key, "has a memory budget, which is not done here; --recompute names what is made again")
        mode = value.get("mode") or ("selective" if "force_recompute_mm_shapes_by_fqns" in value
                                     or "per_op_sac_force_recompute_mm_shapes_by_fqns" in value else "full")
        self.values.add("mode", key, mode)
        if mode == "selective":
            self.values.add("selective_ac_option", key, value.get("selective_ac_option", "op"))

    def _read_model(self) -> None:
        values, target = self.values, self.target
        spec = values["model_spec"]
        if target.given("model"):
            values.note(f"--model {target.value('model')}{GOES_BEFORE}", "model_spec")
            return
        name, flavor, model = spec.get("name"), spec.get("flavor"), spec.get("model")
        read = self._model_by_sizes(model) if isinstance(model, dict) else None
        if read is None:
            values.refuse("model_spec", f"is {shown(flavor)} of {shown(name)}: no decoder with RMSNorm, rotary "
                          "embedding and SwiGLU in all layers alike. Give --model: a preset or a Hugging Face folder")
        preset = FLAVORS.get((name, flavor))
        if isinstance(preset, str) and PRESETS[preset] == read.sizes:
            target.set("model", preset)
        else:
            target.set("model", read.config_json())
        target.model_sizes = read.sizes
        values.note(f"--model {target.value('model')}", "model_spec")
        if read.experts:
            target.differs(f"model_spec {flavor}: routers are balanced by no bias here, and train on no balance loss")
        if target.value("precision") != "fp8":
            target.differs("model_spec: torchtitan does not write down whether linears are float8, mxfp8 or nvfp4; "
                           "give --precision fp8 if they are")

    def _model_by_sizes(self, model: Dict[str, Any]) -> Optional[ModelBySizes]:
        """The model, if all its layers are alike and of the kind that there is."""
        layers = model.get("layers")
        if not isinstance(layers, list) or not layers:
            return None
        shapes = {shown(_shape(layer), 100_000) for layer in layers}
        attention, dense, mixture = (find_value(layers[0], part) for part in ("attention", "feed_forward", "moe"))
        rope, projection = find_value(attention, "rope"), find_value(attention, "qkv_linear")
        window = find_value(attention, "inner_attention", "window_size")
        if len(shapes) > 1 or not rope or not projection or (dense is None) == (mixture is None):
            return None
        if rope.get("scaling") not in ("none", "llama") or window not in (None, [-1, 0]):
            return None
        if self._is_converted(layers[0]):
            return None
        if mixture and (mixture.get("shared_experts") or find_value(mixture, "router", "score_func") != "softmax"):
            return None
        llama = rope["scaling"] == "llama"
        factors = [rope.get(key) for key in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")]
        if llama and factors != [1.0, 4.0, 8192]:
            return None
        try:
            heads = int(attention["n_heads"])
            experts = mixture["routed_experts"]["inner_experts"] if mixture else {"num_experts": 0, "hidden_dim": 0}
            router = mixture["router"] if mixture else {"top_k": 0, "route_norm": True}
            read = ModelBySizes(
                hidden=int(model["dim"]), layers=len(layers), heads=heads,
                kv_heads=int(attention.get("n_kv_heads") or heads), head_dim=int(projection["head_dim"]),
                ffn=int(find_value(dense, "w1", "out_features") or experts["hidden_dim"]),
                vocabulary=int(model["vocab_size"]), positions=int(rope["max_context_length"]),
                rope_theta=float(rope["theta"]), rope_factor=float(rope["scaling_factor"]) if llama else 0.0,
                tied=bool(model.get("enable_weight_tying")), norm_epsilon=float(model["norm"]["eps"]),
                qk_norm=attention.get("qk_norm") is not None,
                qkv_bias=any(find_value(projection, key, "bias") for key in ("wqkv", "wq", "wkv")),
                experts=int(experts["num_experts"]), choices=int(router["top_k"]),
                expert_ffn=int(experts["hidden_dim"]), normalized_choices=bool(router["route_norm"]))
        except (KeyError, TypeError, ValueError):
            return None
        return None if read.why_not() else read

    def _is_converted(self, layer: Any) -> bool:
        """True if a linear has fields of a converter, such as LoRA's rank."""
        if not isinstance(layer, dict):
            return False
        if "in_features" in layer:
            return bool(set(layer) - _OF_LINEAR)
        return any(map(self._is_converted, layer.values()))

    def _read_precision(self) -> None:
        super()._read_precision()
        tensor = any(name == "tp-sp" for name, _ in self.target.strategies)
        if tensor and self.values.has("enable_sequence_parallel"):
            self.values.state_plugin("enable_sequence_parallel", "tp-sp", "sequence-parallel",
                                     "true" if self.values.truth("enable_sequence_parallel") else "false")
        else:
            self.values.note("no effect: there is no tensor parallelism", "enable_sequence_parallel")


def _shape(layer: Any) -> Any:
    """A layer without what differs from layer to layer: how it is initialised."""
    if isinstance(layer, dict):
        return {key: _shape(value) for key, value in layer.items() if key != "param_init"}
    return layer
