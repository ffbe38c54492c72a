"""Hugging Face's Trainer, whose settings its own arguments and Axolotl's files state under names of their own."""
from __future__ import annotations

import math
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence

from .accelerate_keys import AHEAD, BY_USE, OWN_PARTS
from .adapters import AdapterDefaults, read_adapter
from .deepspeed import NO_FP16, NamedFile, strategy_of
from .fsdp import derive_fsdp
from .messages import as_text, in_quotes, listed, shown
from .models import PRESETS
from .preferences import read_preferences
from .rules import KeyReader, Rule, Rules, drop_nulls, find_value, no_effect, only, own, under
from .stored import StoredValues
from .target import GOES_BEFORE, MOST_RANKS, MOST_STEPS, Strategy, Target

_PAGED = "paged_adamw_32bit"  # bitsandbytes' of fp32 states, which the driver moves to the host where memory runs out
_OPTIMIZERS = {
    **dict.fromkeys(("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw_apex_fused", _PAGED), "adamw"),
    "sgd": "sgd", "lion_32bit": "lion"}
_SHARDING = ("full_shard", "shard_grad_op", "no_shard", "hybrid_shard", "hybrid_shard_zero2")


class Defaults(NamedTuple):
    """Values of absent keys, in which trainers differ."""

    batch: int
    epochs: float
    schedule: str
    sequence: Optional[int]  # None: the command line says it
    learning_rate: Optional[float]  # None: the file must say it
    adapter: AdapterDefaults


class TrainerReader(KeyReader):
    """Reads files of one kind of trainer. Names of values are those of TrainingArguments; `names` has the others."""

    def __init__(self, target: Target, rules: Mapping[str, Rule], defaults: Defaults, names: Mapping[str, str]) -> None:
        super().__init__(target, rules)
        self.values = StoredValues(target)
        self.defaults = defaults
        self.names = names
        self.pairs = False  # a sequence holds a pair of conversations, of which one is preferred

    def run(self, root: Dict[str, Any]) -> None:
        """Reads all keys, then what follows from several."""
        drop_nulls(root, self.target)
        self.read_all(root, lambda: read_model(self.values), self._read_loss, self._read_length, self._read_adapter,
                      self._read_precision, self._read_recompute, self._read_strategies, self._read_optimizer,
                      self._read_schedule)

    def read_own(self, key: str, value: Any) -> None:
        """Keeps the value."""
        name = key.rpartition(".")[2]
        if key.startswith("fsdp_config.") and not name.startswith("fsdp_"):
            name = "fsdp_" + name
        self.values.add(self.names.get(name, name), key, value)

    def _read_loss(self) -> None:
        self.pairs = read_preferences(self.values, by_name=self.defaults.adapter.key == "adapter")

    def _read_length(self) -> None:
        values, target = self.values, self.target
        values.state("per_device_train_batch_size", "batch",
                     values.whole("per_device_train_batch_size", self.defaults.batch, 1, 10 ** 9))
        if target.given("global-batch"):
            values.note(f"--global-batch{GOES_BEFORE}", "gradient_accumulation_steps")
        else:
            values.state("gradient_accumulation_steps", "accumulation",
                         values.whole("gradient_accumulation_steps", 1, 1, MOST_RANKS))
        if values.has("sequence") or self.defaults.sequence:
            length = values.whole("sequence", self.defaults.sequence or 1, 1, 10 ** 9)
            values.state("sequence", "sequence", 2 * length if self.pairs else length)
        steps = values.whole("max_steps", -1, -1, MOST_STEPS)
        if steps > 0:
            values.state("max_steps", "steps", steps)
            values.note("no effect: max_steps says how long the run is", "num_train_epochs")
        elif target.given("steps"):
            values.note(f"--steps {target.value('steps')}{GOES_BEFORE}", "max_steps", "num_train_epochs")
        else:
            values.note("num_train_epochs says how long the run is", "max_steps")
            epochs = values.number("num_train_epochs", self.defaults.epochs)
            if epochs != math.floor(epochs) or epochs < 1:
                values.refuse("num_train_epochs", f"is {as_text(epochs)}; a run has whole epochs here. Give --steps")
            values.state("num_train_epochs", "epochs", int(epochs))
        if values.has("seed"):
            values.state("seed", "seed", values.whole("seed", 42, 0, 2 ** 62))
        values.state("max_grad_norm", "clip", values.number("max_grad_norm", 1.0))

    def _read_adapter(self) -> None:
        """TRL says that there is an adapter by a truth value, Axolotl by its name."""
        values, name = self.values, self.defaults.adapter.key
        if name == "use_peft":
            read_adapter(values, values.truth(name), self.defaults.adapter)
            return
        asked = values.has(name) and values[name] != ""
        kind = values.choice(name, "", ("lora", "qlora")) if asked else ""
        bits = values.truth("load_in_4bit")
        if kind == "qlora" and not bits:
            values.refuse(name, "is qlora, for which Axolotl needs load_in_4bit true, too")
        if kind == "lora" and bits:
            values.refuse("load_in_4bit", "is true beside adapter lora, for which Axolotl leaves weights whole; "
                          "adapter qlora or load_in_4bit false says what is meant")
        read_adapter(values, asked, self.defaults.adapter)

    def _read_precision(self) -> None:
        values = self.values
        if values.has("fp16") and values["fp16"] != "auto" and values.truth("fp16"):
            values.refuse("fp16", f"is true: {NO_FP16}")
        values.note("off", "fp16")
        bf16 = values.has("bf16") and (values["bf16"] == "auto" or values.truth("bf16"))
        if values.truth("fp8"):
            values.state("fp8", "precision", "fp8")
            self.target.derive_plugin("fp8", "fp8", "scaling", "tensor")
            values.note(f"--precision {self.target.value('precision')}", "bf16")
        else:
            values.state("bf16", "precision", "bf16" if bf16 else "fp32")
            values.note("off", "fp8")

    def _read_recompute(self) -> None:
        values, target = self.values, self.target
        name = "gradient_checkpointing"
        asked = values.has(name) and (values[name] == "offload" or values.truth(name))
        in_fsdp = values.truth("fsdp_activation_checkpointing")
        if not asked and not in_fsdp:
            values.note("off", name, "fsdp_activation_checkpointing")
            values.note("no effect without gradient_checkpointing, whose inputs it moves to the host",
                        "activation_offloading")
            return
        values.note(target.state_recompute("full"), name, "fsdp_activation_checkpointing")
        offload = "activation_offloading"
        if values.has(offload) and values[offload] not in (True, False, "legacy"):
            values.refuse(offload, f"is {shown(values[offload])}; it may be true or false")
        for key, words in ((name, ("offload",)), (offload, (True, "legacy"))):
            if values.has(key) and values[key] in words:
                values.state(key, "offload-activations", "all")

    # Strategies

    def _read_strategies(self) -> None:
        values, target = self.values, self.target
        sizes = {name: values.whole(name, 1, 1, MOST_RANKS)
                 for name in ("tensor_parallel_size", "context_parallel_size", "dp_shard_size", "dp_replicate_size")}
        every: List[Strategy] = [("tp-sp", sizes["tensor_parallel_size"])] if sizes["tensor_parallel_size"] > 1 else []
        if sizes["context_parallel_size"] > 1:
            every.append(("cp", sizes["context_parallel_size"]))
            target.derive_plugin("context_parallel_size", "cp", "attention", "ring")
        if values.has("deepspeed") and values["deepspeed"] not in ("", False):
            every += self._deepspeed()
        elif self._asks_for_fsdp():
            every += self._fsdp(sizes["dp_shard_size"], sizes["dp_replicate_size"])
        else:
            if sizes["dp_shard_size"] > 1:
                values.refuse("dp_shard_size", f"is {sizes['dp_shard_size']}, which needs fsdp_config")
            every.append(("ddp", sizes["dp_replicate_size"] if values.has("dp_replicate_size") else 0))
            values.note("off", "deepspeed", "fsdp")
            values.note("no effect: fsdp is not asked for", *(name for name in _FSDP_VALUES if name != "fsdp"))
        target.state_strategies("parallelism", every)
        values.note(f"--strategy {target.value('strategy')}", *sizes)
        if values.has("dp_shard_size") and not target.given("ranks"):
            target.set("ranks", math.prod(sizes.values()))
            target.detail(f"dp_shard_size: --ranks {target.value('ranks')}, the product of the sizes")

    def _deepspeed(self) -> List[Strategy]:
        values = self.values
        if isinstance(values["deepspeed"], dict):
            values.refuse("deepspeed", "is an object here; write it into a file of its own, and name that")
        file = NamedFile(values, "deepspeed", ["", os.path.dirname(self.target.source.path)])
        file.state()
        values.note("its keys follow", "deepspeed")
        values.note("no effect beside deepspeed", *_FSDP_VALUES)
        bf16 = find_value(file.tree, "bf16", "enabled")
        if isinstance(bf16, bool) and bf16 != (self.target.value("precision") != "fp32"):
            values.refuse("deepspeed", f"has bf16.enabled {shown(bf16)}, but this file asks for --precision "
                          f"{self.target.value('precision')}")
        return [(strategy_of(file.stage), 0)]

    def _asks_for_fsdp(self) -> bool:
        values = self.values
        asked = values["fsdp"] if values.has("fsdp") else None
        return bool(asked) or (asked is None and any(values.has(name) for name in _FSDP_VALUES))

    def _fsdp(self, shards: int, replicas: int) -> List[Strategy]:
        values = self.values
        asked = values["fsdp"] if values.has("fsdp") else []
        words = asked.lower().split() if isinstance(asked, str) else [] if asked is True else asked
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            values.refuse("fsdp", f"is {shown(asked)}; it must be a text or a list of texts")
        unknown = [word for word in words if word not in (*_SHARDING, "offload", "auto_wrap")]
        if unknown:
            values.refuse("fsdp", f"has {in_quotes(unknown[0])}; it may have {listed(_SHARDING)}, offload and "
                                  "auto_wrap")
        kind = next((word for word in words if word in _SHARDING), "full_shard")
        kind = values.text("fsdp_sharding_strategy", kind).lower()
        if kind not in _SHARDING:
            values.refuse("fsdp_sharding_strategy", f"is {in_quotes(kind.upper())}; it may be "
                          + listed(word.upper() for word in _SHARDING))
        if values.has("fsdp_reshard_after_forward") and isinstance(values["fsdp_reshard_after_forward"], bool):
            kind = "full_shard" if values["fsdp_reshard_after_forward"] else "shard_grad_op"
        values.note(f"{kind} of parameters", "fsdp", "fsdp_sharding_strategy", "fsdp_reshard_after_forward")
        if kind == "no_shard":
            values.note("no effect: nothing is sharded", "fsdp_offload_params")
            return [("ddp", 0)]
        if kind.startswith("hybrid") and not values.has("dp_shard_size"):
            values.refuse("fsdp_sharding_strategy" if values.has("fsdp_sharding_strategy") else "fsdp",
                          f"is {kind.upper()}, whose groups are the ranks of a machine: give --strategy, such as "
                          "zero3-offload=8+ddp")
        offload = values.truth("fsdp_offload_params") or "offload" in words
        values.note("--zero3-offload offload options" if offload else "off", "fsdp_offload_params")
        derive_fsdp(self.target, offload=offload, whole_until_backward=kind in ("shard_grad_op", "hybrid_shard_zero2"),
                    reduce_dtype="fp32" if self.target.value("precision") == "fp32" else "bf16")
        every: List[Strategy] = [("zero3-offload", shards if values.has("dp_shard_size") else 0)]
        return every + ([("ddp", replicas)] if replicas > 1 else [])

    # Optimizer and learning rate

    def _read_optimizer(self) -> None:
        values, target = self.values, self.target
        name = values.text("optim", "adamw_torch")
        plugin = _OPTIMIZERS.get(name)
        if plugin is None:
            values.refuse("optim", f"is {in_quotes(name)}, which is not done here; it may be one of "
                                   f"{listed(_OPTIMIZERS)}"
                          + (": its states of 8 bits are others than those of --optimizer adamw-8bit"
                             if "8bit" in name else ""))
        values.state("optim", "optimizer", plugin)
        if not values.has("learning_rate") and (self.defaults.learning_rate is None or self.pairs) and (
                not target.given("learning-rate")):
            target.refuse("learning_rate", "is absent, and must be given")
        values.state("learning_rate", "learning-rate", values.number("learning_rate", self.defaults.learning_rate or 0))
        decay = values.number("weight_decay", 0.0)
        values.state("weight_decay", "weight-decay", decay)
        if name == _PAGED and decay:
            target.differs(f"{values.key_of('optim')} {_PAGED}: weights decay before an update here, behind it there")
        for key, option, fallback in (("adam_beta1", "beta1", 0.9), ("adam_beta2", "beta2", 0.999),
                                      ("adam_epsilon", "epsilon", 1e-8)):
            if plugin == "adamw":
                values.state_plugin(key, "adamw", option, as_text(values.number(key, fallback)))
            else:
                values.note(f"no effect: the optimizer is {plugin}", key)

    def _read_schedule(self) -> None:
        """transformers' get_scheduler: warm-up from 0, in steps or as a share of all steps."""
        values, target = self.values, self.target
        name = values.text("lr_scheduler_type", self.defaults.schedule)
        more = values["lr_scheduler_kwargs"] if values.has("lr_scheduler_kwargs") else {}
        if not isinstance(more, dict):
            values.refuse("lr_scheduler_kwargs", f"is {shown(more)}; it must be an object")
        plugins = {"linear": "linear", "cosine": "cosine", "constant": "constant", "constant_with_warmup": "constant",
                   "cosine_with_min_lr": "cosine"}
        if name not in plugins:
            values.refuse("lr_scheduler_type", f"is {in_quotes(name)}, which is not done here; it may be one of "
                                               f"{listed(plugins)}")
        known = {"cosine_with_min_lr": {"min_lr", "min_lr_rate"}, "cosine": {"num_cycles"}}.get(name, set())
        for key in more:
            if key not in known or (key == "num_cycles" and more[key] != 0.5):
                values.refuse("lr_scheduler_kwargs", f"has {in_quotes(key)} {shown(more[key])}, which is not done here")
        plugin = plugins[name]
        values.state("lr_scheduler_type", "schedule", plugin)
        if target.value("schedule") != plugin:
            values.note(f"--schedule {target.value('schedule')}{GOES_BEFORE}", *_OF_WARMUP, "lr_scheduler_kwargs",
                "min_lr_ratio")
            return
        warmup = 0 if name == "constant" else self._warmup()
        target.derive_plugin("warm-up", plugin, "warmup", str(warmup))
        if warmup:
            target.derive_plugin("warm-up", plugin, "warmup-from", "0")
        if plugin != "constant":
            target.derive_plugin("the end", plugin, "final-rate", as_text(self._final_rate(more)))
        values.note(f"options of --schedule {plugin}", "lr_scheduler_kwargs", "min_lr_ratio")

    def _final_rate(self, more: Dict[str, Any]) -> float:
        if self.values.has("min_lr_ratio"):
            return self.values.number("min_lr_ratio", 0.0)
        if "min_lr" in more:
            peak = float(self.target.value("learning-rate"))
            return self.target.number("lr_scheduler_kwargs.min_lr", more["min_lr"]) / peak if peak else 0.0
        return self.target.number("lr_scheduler_kwargs.min_lr_rate", more.get("min_lr_rate", 0.0))

    def _warmup(self) -> int:
        values, target = self.values, self.target
        steps = values.number("warmup_steps", 0.0)
        if steps >= 1 or not (steps or values.number("warmup_ratio", 0.0)):
            values.note(f"--{target.value('schedule')}.warmup {as_text(steps)}", "warmup_steps")
            values.note("no effect: warmup_steps says it" if steps else "none", "warmup_ratio")
            return values.whole("warmup_steps", 0, 0, MOST_STEPS)
        name = "warmup_steps" if steps else "warmup_ratio"
        ratio = values.number(name, 0.0)
        if not 0 <= ratio < 1:
            values.refuse(name, f"is {as_text(ratio)}; it must be a share of all steps, 0 to 1")
        if "steps" not in target.options and not target.given("steps"):
            values.refuse(name, f"is {as_text(ratio)} of all steps, whose number follows from the data; give --steps, "
                                "or "
                          f"{self.target.source.set_option} warmup_steps=N")
        warmup = math.ceil(ratio * int(target.value("steps")))
        values.note(f"{warmup} steps of warm-up", name)
        return warmup


_OF_WARMUP = ("warmup_steps", "warmup_ratio")
_FSDP_VALUES = ("fsdp", "fsdp_sharding_strategy", "fsdp_reshard_after_forward", "fsdp_offload_params")


def read_model(values: StoredValues) -> None:
    """Sets the model that "model_name_or_path" names: a folder, or the preset with the sizes of a model of the hub."""
    target, name = values.target, "model_name_or_path"
    if not values.has(name):
        return
    text = values.text(name, "")
    if target.given("model"):
        values.note(f"--model {target.value('model')}{GOES_BEFORE}", name)
        return
    if os.path.isfile(os.path.join(text, "config.json")):
        target.set("model", text)
    else:
        preset = preset_of(text)
        if not preset:
            values.refuse(name, f"is {in_quotes(text)}, which is no folder with a config.json, and no preset has its "
                          "sizes. Give --model: hf:// and its name if the hub's cache has it, the folder into which it "
                          "was downloaded, or a preset (consist plugins llama)")
        target.set("model", preset)
        target.model_sizes = PRESETS[preset]
        target.differs(f"{text}: --model {preset} has its sizes and random weights; give --model FOLDER to train its "
                       "own")
    values.note(f"--model {target.value('model')}", name)
    if values.has("reinit_weights"):
        values.state("reinit_weights", "from-scratch", "true" if values.truth("reinit_weights") else "false")


def preset_of(name: str) -> str:
    """The preset with the sizes of a model of the hub ("meta-llama/Llama-3.1-8B-Instruct"); '' if there is none."""
    short = name.rpartition("/")[2].lower().replace("meta-llama", "llama")
    for ending in ("-hf", "-instruct", "-base", "-chat"):
        short = short[:-len(ending)] if short.endswith(ending) else short
    short = short[:-len("-chat")] if short.endswith("-chat") else short
    return short if short in PRESETS else ""


def fsdp_rules() -> Rules:
    """The rules of fsdp_config, whose keys may begin with fsdp_ or not."""
    names = "sharding_strategy reshard_after_forward offload_params activation_checkpointing".split()
    reasons = {
        BY_USE: "auto_wrap_policy transformer_layer_cls_to_wrap min_num_params",
        AHEAD: "backward_prefetch backward_prefetch_policy forward_prefetch limit_all_gathers",
        OWN_PARTS: "cpu_ram_efficient_loading sync_module_states state_dict_type final_state_dict_type",
        "parameters keep their names": "use_orig_params",
        "offloaded memory is always pinned": "cpu_offload_pin_memory",
        "the precision says dtypes": "mixed_precision_policy",
        "it concerns TPUs": "xla xla_fsdp_v2 xla_fsdp_settings xla_fsdp_grad_ckpt",
    }

    def each(keys: str) -> str:
        return " ".join(prefix + key for key in keys.split() for prefix in ("", "fsdp_"))

    return under("fsdp_config", own(each(" ".join(names))), only('1|2|"1"|"2"', each("version")),
                 *(no_effect(why, each(keys)) for why, keys in reasons.items()))
