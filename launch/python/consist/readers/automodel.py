"""Reads recipes of NVIDIA NeMo AutoModel (YAML): training of a decoder, or of LoRA adapters beside it."""
from __future__ import annotations

from typing import Any, Dict, List, Optional

from . import torchtitan, torchtitan_parallelism
from .adapters import AdapterDefaults, read_adapter, targets_of_patterns
from .automodel_keys import RULES
from .fsdp import derive_fsdp
from .megatron_schedule import Schedule
from .messages import as_text, in_quotes, listed, shown
from .rules import SAYS_DATA, drop_nulls
from .target import GOES_BEFORE, MOST_STEPS, Strategy, Target
from .trainer import read_model

_RECIPES = ("TrainFinetuneRecipeForNextTokenPrediction", "BenchmarkingRecipeForNextTokenPrediction")
_MODELS = ("NeMoAutoModelForCausalLM.from_pretrained", "NeMoAutoModelForCausalLM.from_config")
_ADAMS = ("AdamW", "Adam", "FusedAdam")
_STRATEGIES = {"fsdp2": "fsdp2", "megatron_fsdp": "megatron_fsdp", "megatron-fsdp": "megatron_fsdp",
               "mfsdp": "megatron_fsdp", "ddp": "ddp"}
_DTYPES = {"bf16": "bfloat16", "bfloat16": "bfloat16", "torch.bfloat16": "bfloat16", "auto": "bfloat16",
           "fp32": "float32", "float32": "float32", "torch.float32": "float32"}
# The names that values have in torchtitan's reader, the Trainer's, and the schedule of Megatron-LM, and the keys here.
_KEYS = {
    "model_name_or_path": "model.pretrained_model_name_or_path", "training.dtype": "model.torch_dtype",
    "mixed_precision_param": "distributed.mp_policy.param_dtype",
    "mixed_precision_reduce": "distributed.mp_policy.reduce_dtype", "max_norm": "clip_grad_norm.max_norm",
    "tensor_parallel_degree": "distributed.tp_size", "pipeline_parallel_degree": "distributed.pp_size",
    "context_parallel_degree": "distributed.cp_size", "expert_parallel_degree": "distributed.ep_size",
    "data_parallel_replicate_degree": "distributed.dp_replicate_size",
    "fsdp_reshard_after_forward": "distributed.reshard_after_forward", "enable_cpu_offload":
    "distributed.offload_policy", "pipeline_parallel_schedule": "distributed.pipeline.pp_schedule",
    "pipeline_parallel_microbatch_size": "distributed.pipeline.pp_microbatch_size",
    "pipeline_parallel_layers_per_stage": "distributed.pipeline.layers_per_stage",
    "local_batch_size": "step_scheduler.local_batch_size", "global_batch_size": "step_scheduler.global_batch_size",
    "steps": "step_scheduler.max_steps", "num_epochs": "step_scheduler.num_epochs",
    "fake_balanced_gate": "model.backend.fake_balanced_gate",
    "enable_float8_linear": "fp8.enabled", "recipe_name": "fp8.recipe_name", "filter_fqns": "fp8.filter_fqns",
    "enable_fsdp_float8_all_gather": "fp8.enable_fsdp_float8_all_gather", "rng": "rng.seed",
    "model": "model._target_", "optimizer": "optimizer._target_", "learning_rate": "optimizer.lr",
    "weight_decay": "optimizer.weight_decay", "betas": "optimizer.betas", "eps": "optimizer.eps",
    "lr-decay-style": "lr_scheduler.lr_decay_style", "lr-decay-iters": "lr_scheduler.lr_decay_steps",
    "lr-warmup-iters": "lr_scheduler.lr_warmup_steps", "lr-warmup-init": "lr_scheduler.init_lr",
    "adapter": "peft._target_", "lora_r": "peft.dim", "lora_alpha": "peft.alpha", "lora_dropout": "peft.dropout",
    "patterns": "peft.target_modules", "exclude_modules": "peft.exclude_modules",
    "match_all_linear": "peft.match_all_linear", "use_dora": "peft.use_dora", "lora_A_init": "peft.lora_A_init",
    "load_in_4bit": "quantization.load_in_4bit", "bnb_4bit_quant_type": "quantization.bnb_4bit_quant_type",
    "use_bnb_nested_quant": "quantization.bnb_4bit_use_double_quant",
    "min-lr": "lr_scheduler.min_lr", "lr-wsd-decay-iters": "lr_scheduler.wsd_decay_steps",
    "lr-wsd-decay-style": "lr_scheduler.lr_wsd_decay_style"}
_NAMES = {key: name for name, key in _KEYS.items()}


def is_config(root: Dict[str, Any]) -> bool:
    """True for a recipe: its steps beside the name of a recipe or the sizes of a mesh."""
    return isinstance(root.get("step_scheduler"), dict) and ("recipe" in root or "distributed" in root)


def read(root: Dict[str, Any], target: Target) -> None:
    """Sets what the recipe states; absent keys have AutoModel's defaults."""
    _Reader(target).run(root)


def _class_of(value: Any) -> str:
    """The class of "a.b.Class", or of an object with that target; with the method of "a.b.Class.from_config"."""
    words = str(value.get("_target_") if isinstance(value, dict) else value).split(".")
    return ".".join(words[-2:] if words[-1].startswith("from_") else words[-1:])


class _Parallelism(torchtitan_parallelism.Parallelism):
    edge = 0
    local_batch = 1

    def read(self) -> None:
        given = self.values.text("strategy", "fsdp2").lower()
        if given not in _STRATEGIES:
            self.values.refuse("strategy", f"is {in_quotes(given)}; it may be {listed(_STRATEGIES)}")
        self.kind = _STRATEGIES[given]
        self.values.note(f"parameters are divided as {given} does", "strategy")
        if self.values.has("dp_size"):
            key, size = self.values.key_of("dp_size"), self.values.whole("dp_size", 1, 1, 65_536)
            replicas = self._degree("data_parallel_replicate_degree")
            if size % replicas:
                self.values.refuse("dp_size", f"is {size}, which dp_replicate_size {replicas} does not divide")
            self.values.add("data_parallel_shard_degree", key, size // replicas, size)
        super().read()
        self._read_tensor()
        self.values.note("each rank has as many stages" if self.pipeline > 1 else "no effect: there is no pipeline",
                         "round_virtual_stages_to_pp_multiple")

    def _read_tensor(self) -> None:
        if self.tensor > 1:
            self.values.state_plugin("sequence_parallel", "tp-sp", "sequence-parallel",
                                     "true" if self.values.truth("sequence_parallel") else "false")
        else:
            self.values.note("no effect: there is no tensor parallelism", "sequence_parallel")

    def _sharding(self) -> str:
        """The strategy that divides what AutoModel's strategy does."""
        stage = self.values.whole("zero_dp_strategy", 3, 0, 3) if self.kind == "megatron_fsdp" else 0
        return ("ddp", "zero2", "zero2", "zero3-offload")[stage]

    def _state_strategies(self) -> None:
        if self.kind == "fsdp2":
            self.values.note("no effect: it concerns megatron_fsdp", "zero_dp_strategy", "grad_reduce_in_fp32")
            super()._state_strategies()
            return
        for axis, size in (("pipeline", self.pipeline), ("expert", self.experts),
                           ("data_parallel_replicate", self.replicas)):
            if size > 1:
                self.values.refuse(f"{axis}_parallel_degree" if axis != "data_parallel_replicate" else f"{axis}_degree",
                                   f"is {size} beside {self.kind}, which AutoModel refuses, too; fsdp2 is done")
        sizes = (("tp-sp", self.tensor), ("cp", self.context))
        every: List[Strategy] = [(name, size) for name, size in sizes if size > 1]
        self.target.state_strategies("distributed", [*every, (self._sharding(), 0)])
        said = f"--strategy {self.target.value('strategy')}"
        self.values.note(said, "tensor_parallel_degree", "context_parallel_degree", "pipeline_parallel_degree",
                         "expert_parallel_degree", "data_parallel_shard_degree", "data_parallel_replicate_degree",
                         "zero_dp_strategy")

    def _read_sharding(self) -> None:
        if self.kind == "fsdp2":
            super()._read_sharding()
            return
        self.values.note("no effect: it concerns fsdp2", "enable_cpu_offload", "fsdp_reshard_after_forward")
        sharding = self._sharding()
        if sharding == "zero2":
            self.target.derive_plugin("zero_dp_strategy", "zero2", "stage", str(self.values["zero_dp_strategy"]))
        elif sharding == "zero3-offload":
            fp32 = self.values.truth("grad_reduce_in_fp32")
            derive_fsdp(self.target, offload=False, whole_until_backward=False, reduce_dtype="fp32" if fp32 else "bf16")

    def _stages(self, wanted: int) -> int:
        given = self.values.find("round_virtual_stages_to_pp_multiple")
        if given is None:
            return wanted
        way = self.values.choice("round_virtual_stages_to_pp_multiple", "up", ("up", "down"))
        groups = -(-wanted // self.pipeline) if way == "up" else wanted // self.pipeline
        return max(groups, 1) * self.pipeline


class _Schedule(Schedule):
    def _read_steps(self) -> None:
        """The steps are those of step_scheduler, which are read before."""


class _Reader(torchtitan.Reader):
    parallelism = _Parallelism
    dtype = "bfloat16"

    def __init__(self, target: Target) -> None:
        super().__init__(target, RULES, _KEYS)

    def run(self, root: Dict[str, Any]) -> None:
        """Reads the sections."""
        sizes = root.get("distributed")
        if isinstance(sizes, dict):
            root["distributed"] = {name: None if value in ("none", "None") else value for name, value in sizes.items()}
        drop_nulls(root, self.target)
        self.read_all(root, self._read_seed, self._read_model, self._read_training, self._read_adapter,
                      lambda: self.parallelism(self.values, False).read(), self._read_recompute, self._read_precision,
                      self._read_optimizer, self._read_rates)

    def read_own(self, key: str, value: Any) -> None:
        """Keeps the value under the name that the readers of which this is made know it by."""
        said = value
        if key.endswith("_dtype"):
            if not isinstance(value, str) or value not in _DTYPES:
                self.target.refuse(key, f"is {shown(value)}, which is not done here; it may be {listed(_DTYPES)}")
            value = _DTYPES[value]
        elif key == "distributed.reshard_after_forward":
            value = "always" if self.target.truth(key, value) else "never"
        elif key == "distributed.offload_policy":
            value = _class_of(value) == "CPUOffloadPolicy"
        elif key == "distributed.pipeline.pp_schedule":
            value = str(value).replace("_", "")
        elif key in ("dataset", "packed_sequence"):
            self._read_length(key, value)
            return
        elif key == "recipe":
            self._read_kind(key, value)
            return
        elif key == "model.config.pretrained_model_name_or_path":
            self.values.add("model_name_or_path", key, value)
            return
        name = key.partition(".")[2] if key.startswith("model.") else key.rpartition(".")[2]
        self.values.add(_NAMES.get(key, name), key, value, said)

    def _read_length(self, key: str, value: Any) -> None:
        if not isinstance(value, dict):
            self.target.refuse(key, f"is {shown(value)}; it must be an object")
        for name, entry in sorted(value.items()):
            if name in ("seq_len", "seq_length", "packed_sequence_size") and entry:
                self.values.add(name, f"{key}.{name}", entry)
            else:
                self.target.note(f"{key}.{name}", entry, f"no effect here: {SAYS_DATA}")

    def _read_kind(self, key: str, value: Any) -> None:
        if _class_of(value) not in _RECIPES:
            self.target.refuse(key, f"is {in_quotes(_class_of(value))}, which is not done here; {_RECIPES[0]} is")
        self.target.note(key, value, "a decoder is trained")

    def _read_seed(self) -> None:
        self.values.state("seed" if self.values.has("seed") else "rng", "seed",
                          self.values.whole("seed", self.values.whole("rng", 42, 0, 2 ** 62), 0, 2 ** 62))
        if self.values.has("seed"):
            self.values.note("no effect: seed says it", "rng")

    def _read_model(self) -> None:
        values = self.values
        kind = _class_of(values["model"]) if values.has("model") else ""
        if not self.target.given("model") and kind not in _MODELS:
            values.refuse("model", f"is {in_quotes(kind)}, which is not done here; it may be {listed(_MODELS)}. Or "
                          "give --model: a preset (consist plugins llama) or a Hugging Face folder")
        if not self.target.given("model") and not values.has("model_name_or_path"):
            self.target.refuse("model", "names no model of the hub; give --model: a preset or a Hugging Face folder")
        read_model(values)
        values.note(f"--model {self.target.value('model')}", "model", "config._target_")
        if kind == _MODELS[1]:
            self.target.set("from-scratch", "true")
            self.target.detail("model._target_: --from-scratch true")

    def _read_training(self) -> None:
        values, target = self.values, self.target
        lengths = [name for name in ("packed_sequence_size", "seq_len", "seq_length") if values.has(name)]
        if lengths:
            values.state(lengths[0], "sequence", values.whole(lengths[0], 1, 1, 10 ** 9))
            values.note(f"no effect: {values.key_of(lengths[0])} says it", *lengths[1:])
        elif not target.given("sequence"):
            target.differs("says no length of sequences, which AutoModel pads to the longest of a batch: give "
                           "--sequence")
        if values.has("steps"):
            values.state("steps", "steps", values.whole("steps", 1, 1, MOST_STEPS))
            values.note(f"no effect: {values.key_of('steps')} says how long the run is", "num_epochs")
        elif target.given("steps"):
            values.note(f"--steps {target.value('steps')}{GOES_BEFORE}", "num_epochs")
        else:
            values.state("num_epochs", "epochs", values.whole("num_epochs", 10, 1, 10 ** 6))
        values.state("max_norm", "clip", values.number("max_norm", 1.0))
        values.state_balanced_experts("fake_balanced_gate")
        if not values.has("global_batch_size"):
            values.add("global_batch_size", "step_scheduler.global_batch_size (its default)", 32)

    def _read_adapter(self) -> None:
        values, target = self.values, self.target
        asked = any(values.has(name) for name in _KEYS if _KEYS[name].startswith("peft."))
        kind = _class_of(values["adapter"]) if values.has("adapter") else ""
        if asked and kind != "PeftConfig":
            target.refuse("peft._target_", f"is {in_quotes(kind)}, which is not done here; PeftConfig is")
        if asked and values.truth("load_in_4bit") and values.text("training.dtype", self.dtype) != self.dtype:
            values.refuse("training.dtype", f"is {values.text('training.dtype', '')} beside weights of 4 bits, whose "
                          f"adapters AutoModel has in {self.dtype}")
        targets = targets_of_patterns(values) if asked and not target.given("lora.targets") else None
        if values.has("patterns"):
            given = values.key_of("patterns")
            values.add("lora_target_modules", given, targets.split(",") if targets else values["patterns"],
                       values["patterns"])
        read_adapter(values, asked, AdapterDefaults("adapter", rank=8, alpha=32, targets=targets, nested=True,
                                                    init="xavier"))

    def _read_recompute(self) -> None:
        name = "activation_checkpointing"
        mode: Any = self.values[name] if self.values.has(name) else False
        if mode not in (True, False, "full", "selective"):
            self.values.refuse(name, f"is {shown(mode)}; it may be true, false, full or selective")
        what = "full" if mode in (True, "full") else "none"
        if mode == "selective":
            what = "rms_norm,moe_swiglu,rope" if self.target.sizes(name).experts else "rms_norm,swiglu,rope"
            self.target.differs(f"{name} selective: PyTorch makes some products again, too, which are kept here")
        self.values.note(self.target.state_recompute(what), name)

    def _read_precision(self) -> None:
        kind = _STRATEGIES.get(self.values.text("strategy", "fsdp2").lower())
        if kind != "fsdp2":  # computes in the dtype of the parameters
            self.values.add("mixed_precision_param", self.values.key_of("training.dtype"),
                            self.values.text("training.dtype", self.dtype))
        if kind == "megatron_fsdp" and not self.values.truth("grad_reduce_in_fp32"):
            self.reduced = "bfloat16"
        super()._read_precision()

    def _pattern_of(self, fqn: str) -> Optional[str]:
        """Names of modules are those of the weights here."""
        return f"*{fqn}*" if fqn else None

    def _read_optimizer(self) -> None:
        values = self.values
        kind = _class_of(values["optimizer"]) if values.has("optimizer") else "AdamW"
        if kind not in _ADAMS:
            values.refuse("optimizer", f"is {in_quotes(kind)}, which is not done here; it may be {listed(_ADAMS)}. "
                          "--optimizer says more that there are")
        decay = values.number("weight_decay", 0.01)
        if decay and (kind == "Adam" or not values.truth("adam_w_mode", True)):
            values.refuse("weight_decay", f"is {as_text(decay)} beside {kind}: weight decay as a term of the gradient "
                          "is not done here; AdamW is")
        values.note("AdamW", "adam_w_mode")
        values.state("optimizer", "optimizer", "adamw")
        values.state("learning_rate", "learning-rate", values.number("learning_rate", 1e-4))
        values.state("weight_decay", "weight-decay", decay)
        betas = values["betas"] if values.has("betas") else [0.9, 0.999]
        if not isinstance(betas, list) or len(betas) != 2:
            values.refuse("betas", f"is {shown(betas)}; it must be two numbers")
        for option, beta in zip(("beta1", "beta2"), betas):
            values.state_plugin("betas", "adamw", option, as_text(self.target.number(values.key_of("betas"), beta)))
        values.state_plugin("eps", "adamw", "epsilon", as_text(values.number("eps", 1e-8)))

    def _read_rates(self) -> None:
        """OptimizerParamScheduler counts steps, and takes absent values from the peak and the length of the run."""
        values, target = self.values, self.target
        if not any(entry.key.startswith("lr_scheduler.") for entry in target.entries) and not any(
                values.has(name) for name in _KEYS if _KEYS[name].startswith("lr_scheduler.")):
            target.absent("lr_scheduler", "schedule", "constant")
            return
        peak, style = float(target.value("learning-rate")), values.text("lr-decay-style", "cosine")
        known = "steps" in target.options or target.given("steps")
        defaults: Dict[str, Any] = {"lr-decay-style": style, "lr-warmup-init": peak / 10, "min-lr": peak / 100}
        if known:
            defaults["lr-warmup-iters"] = min(1000, int(target.value("steps")) // 10)
        elif not values.has("lr-warmup-iters") and not target.given("schedule"):
            values.refuse("lr-warmup-iters", "is a tenth of all steps, whose number follows from the data; give "
                          f"--steps, or {target.source.set_option} lr_scheduler.lr_warmup_steps=N")
        for name, value in defaults.items():
            if not values.has(name):
                values.add(name, f"{_KEYS[name]} (its default)", value)
        _Schedule(values).read()
