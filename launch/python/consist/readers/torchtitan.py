"""Reads torchtitan's TOML, as it was until February 2026 and before December 2024."""
from __future__ import annotations

from types import MappingProxyType
from typing import Any, Dict, List, Mapping, Optional

from .messages import as_text, in_quotes, shown
from .models import PRESETS
from .rules import KeyReader, Rules, drop_nulls, find_value
from .stored import StoredValues
from .target import GOES_BEFORE, MOST_STEPS, Target, first_layers
from .torchtitan_keys import RULES
from .torchtitan_models import FLAVORS, OLD_FLAVORS, known_flavors
from .torchtitan_parallelism import Parallelism

# Keys have moved from table to table; their names have not, but for these.
_RENAMED = {"batch_size": "local_batch_size", "lr_min": "min_lr_factor", "dtype": "training.dtype"}
_OF_FLOAT8 = ("enable_fsdp_float8_all_gather", "recipe_name", "filter_fqns", "scaling_type_input",
              "scaling_type_weight", "scaling_type_grad_output")
# Names of torchtitan's modules as patterns of the weights here.
_WEIGHTS = {"wq": "*q_proj.weight", "wk": "*k_proj.weight", "wv": "*v_proj.weight", "wo": "*o_proj.weight",
            "w1": "*gate_proj.weight", "w2": "*down_proj.weight", "w3": "*up_proj.weight", "attention": "*self_attn*",
            "feed_forward": "*mlp*"}


def is_config(root: Dict[str, Any]) -> bool:
    """True for the tables of a torchtitan TOML."""

    def has(name: str) -> bool:
        return isinstance(root.get(name), dict)

    return has("parallelism") or (has("training") and any(map(has, ("model", "experimental", "job"))))


def read(root: Dict[str, Any], target: Target) -> None:
    """Sets what the tables state; absent keys have torchtitan's defaults."""
    Reader(target, RULES).run(root)


def _is_old(root: Dict[str, Any]) -> bool:
    """True for the layout in which [training] has what [parallelism] and [lr_scheduler] have since."""
    if "parallelism" in root or "lr_scheduler" in root:
        return False
    moved = ("batch_size", "warmup_steps", "data_parallel_shard_degree", "tensor_parallel_degree")
    return "experimental" in root or any(find_value(root, "training", key) is not None for key in moved)


class Reader(KeyReader):
    """Reads the tables of torchtitan's layouts."""

    parallelism = Parallelism
    dtype = "float32"  # of parameters, where the file says none
    reduced = "float32"  # dtype of gradients on their way

    def __init__(self, target: Target, rules: Rules, keys: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(target, rules)
        self.values = StoredValues(target, keys)
        self.old = False

    def run(self, root: Dict[str, Any]) -> None:
        """Reads the tables."""
        drop_nulls(root, self.target)
        self.old = _is_old(root)
        self.read_all(root, self._read_seed, self._read_model, self._read_training,
                      lambda: self.parallelism(self.values, self.old).read(), self._read_recompute,
                      self._read_precision,
                      self._read_optimizer, self._read_rates)

    def read_own(self, key: str, value: Any) -> None:
        """Keeps the value."""
        name = key if key in ("model.name", "optimizer.name") else key.rpartition(".")[2]
        self.values.add(_RENAMED.get(name, name), key, value)

    def _read_seed(self) -> None:
        if not self.values.has("seed"):
            self.target.detail(f"has no seed here: --seed {self.target.value('seed')}")

    def _read_model(self) -> None:
        values, target = self.values, self.target
        model = values.text("model.name", "llama" if self.old else "llama3")
        flavor = values.text("flavor", "debugmodel")
        if target.given("model"):
            values.note(f"--model {target.value('model')}{GOES_BEFORE}", "model.name", "flavor")
            return
        flavors = OLD_FLAVORS if self.old else FLAVORS
        row = flavors.get((model, flavor))
        if row is None:
            values.refuse("flavor" if values.has("flavor") else "model.name",
                          f"is {in_quotes(flavor)} of {in_quotes(model)}, which is not known here; known are "
                          f"{known_flavors(flavors)}. Or give --model: a preset (consist plugins llama) or a Hugging "
                          "Face folder")
        target.set("model", row if isinstance(row, str) else row.config_json())
        target.model_sizes = PRESETS[row] if isinstance(row, str) else row.sizes
        values.note(f"--model {target.value('model')}", "model.name", "flavor")
        if target.model_sizes.experts > 0:
            target.differs(f"model.flavor {flavor}: routers are balanced by no bias here, and train on no balance loss")

    def _read_training(self) -> None:
        values = self.values
        values.state("seq_len", "sequence", values.whole("seq_len", 2048, 1, 10 ** 9))
        values.state("steps", "steps", values.whole("steps", 10_000, 1, MOST_STEPS))
        values.state("max_norm", "clip", values.number("max_norm", 1.0))
        values.state_balanced_experts("moe_force_load_balance")
        if values.has("export_dtype"):
            values.state("export_dtype", "export-dtype",
                         values.choice("export_dtype", "float32", ("float32", "bfloat16", "float16")))
        if values.has("seed"):
            values.state("seed", "seed", values.whole("seed", 0, 0, 2 ** 62))

    def _read_recompute(self) -> None:
        values, target = self.values, self.target
        mode = values.choice("mode", "selective", ("none", "selective", "full"))
        given = values.find("selective_ac_option")
        option = (shown(given.value) if given and isinstance(given.value, (int, float))
                  else values.text("selective_ac_option", "2"))
        what, layers, more = "full" if mode == "full" else "none", "", ""
        if mode == "selective" and option == "op":
            what = "rms_norm,moe_swiglu,rope" if target.sizes("selective_ac_option").experts else "rms_norm,swiglu,rope"
            if not target.given("recompute"):
                target.differs("selective_ac_option op: torchtitan makes every second product again, too, which is "
                               "kept here")
        elif mode == "selective":
            what, layers, more = self._every_nth(option)
        said = target.state_recompute(what, layers) + ("" if target.given("recompute") else more)
        values.note(said, "mode")
        values.note(said if mode == "selective" else f"no effect: the mode is {mode}", "selective_ac_option")
        if not values.has("mode") and not target.given("recompute"):
            target.detail(f"activation_checkpoint.mode is selective by default: {said}")

    def _every_nth(self, option: str) -> "tuple[str, str, str]":
        """As many layers as every Nth is: what is made again, in which layers, and what is said of it."""
        every = int(option) if option.isascii() and option.isdigit() and len(option) < 5 else 0
        if every < 1:
            self.values.refuse("selective_ac_option",
                               f'is {in_quotes(option)}; it may be "op", or a number of layers from 1 on')
        if every == 1:
            return "full", "", ""
        count = self.target.sizes("selective_ac_option").layers // every
        if self.values.whole("pipeline_parallel_degree", 1, 1, 65_536) > 1:
            self.values.refuse("selective_ac_option",
                               f"is {in_quotes(option)} beside a pipeline: only layers that follow each other are made "
                               "again here, which would be those of the first stages; \"op\", or "
                               "activation_checkpoint.mode full or none, is done")
        more = f", as many as every {option}th is, with the same work and memory"
        return ("full", first_layers(count), more) if count else ("none", "", more)

    def _list_of(self, name: str) -> List[Any]:
        """A list, or a text with commas, as torchtitan's command line and its older files have it."""
        value = self.values[name]
        if isinstance(value, str):
            return [entry for entry in value.split(",") if entry]
        if not isinstance(value, list):
            self.values.refuse(name, f"is {shown(value)}; it must be a list, or a text with commas")
        return value

    def _is_float8(self) -> bool:
        if not self.values.has("converters"):
            return False
        converters = self._list_of("converters")
        for converter in converters:
            if converter not in ("float8", "quantize.linear.float8"):
                self.values.refuse("converters", f"has {shown(converter)}, which is not done here; float8 is")
        return bool(converters)

    def _read_precision(self) -> None:
        values, target = self.values, self.target
        fp8 = self._is_float8() or values.truth("enable_float8_linear")
        parameters = values.choice("training.dtype", self.dtype, ("float32", "bfloat16"))
        computed = values.choice("mixed_precision_param", "bfloat16", ("float32", "bfloat16"))
        reduced = values.choice("mixed_precision_reduce", self.reduced, (self.reduced,))
        reduced = "f32" if reduced == "float32" else "bf16"
        if fp8 and computed == parameters == "float32":
            values.refuse("mixed_precision_param", 'is "float32" beside float8, whose other ops are in bf16 here')
        origin = ("mixed_precision_param" if not fp8 else "converters" if values.has("converters")
                  else "enable_float8_linear")
        values.state(origin, "precision", "fp8" if fp8 else "bf16" if "bfloat16" in (parameters, computed) else "fp32")
        precision = target.value("precision")
        others = {"converters", "enable_float8_linear", "mixed_precision_param"} - {origin}
        values.note(f"--precision {precision}", *sorted(others))
        values.note(f"gradients are added up and sent in {reduced.replace('f32', 'fp32')}", "mixed_precision_reduce")
        if precision in ("bf16", "fp8"):
            values.state_plugin("training.dtype", precision, "states", "bf16" if parameters == "bfloat16" else "f32")
            values.state_plugin("mixed_precision_reduce", precision, "gradients", reduced)
        else:
            values.note(f"--precision {precision}", "training.dtype")
        if fp8:
            self._read_float8()
        else:
            values.note("no effect: float8 is not asked for", *_OF_FLOAT8)

    def _read_float8(self) -> None:
        values = self.values
        recipe = values.choice("recipe_name", "tensorwise", ("tensorwise", "rowwise"))
        first = values.choice("scaling_type_input", "dynamic", ("dynamic", "delayed"))
        for name in ("scaling_type_weight", "scaling_type_grad_output"):
            if values.choice(name, "dynamic", ("dynamic", "delayed")) != first:
                values.refuse(name, "is not as scaling_type_input: all of a product have one kind of scale here")
            values.note("as scaling_type_input", name)
        scaling = "delayed" if first == "delayed" else "row" if recipe == "rowwise" else "tensor"
        origin = "recipe_name" if values.has("recipe_name") else "scaling_type_input"
        values.state_plugin(origin, "fp8", "scaling", scaling)
        if origin != "scaling_type_input":
            values.note(f"--fp8.scaling {scaling}", "scaling_type_input")
        gathers = values.truth("enable_fsdp_float8_all_gather")
        if scaling == "tensor":
            values.state_plugin("enable_fsdp_float8_all_gather", "fp8", "gathers", "true" if gathers else "false")
        elif gathers:
            values.refuse("enable_fsdp_float8_all_gather", "is true, which is done with one scale per tensor alone")
        else:
            values.note("--fp8.gathers false", "enable_fsdp_float8_all_gather")
        self._read_filter()

    def _read_filter(self) -> None:
        """Experts are no modules that torchtitan's converter of linears knows."""
        sizes = self.target.model_sizes
        patterns = ["*.experts.*"] if sizes and sizes.experts else []
        given = self.values.find("filter_fqns")
        for entry in self._list_of("filter_fqns") if given else []:
            fqn = entry if isinstance(entry, str) else ""
            if fqn in ("output", "lm_head") or fqn.endswith("router.gate"):
                continue  # the LM head and routers are in bf16 here
            pattern = self._pattern_of(fqn)
            if pattern is None:
                self.values.refuse("filter_fqns", f"has {shown(entry)}, of which it is not known here which linears it "
                                   "names; give --fp8.except")
            patterns.append(pattern)
        if patterns:
            self.values.state_plugin("filter_fqns", "fp8", "except", ",".join(patterns))
        else:
            self.values.note("as it is here: the LM head stays bf16", "filter_fqns")

    def _pattern_of(self, fqn: str) -> Optional[str]:
        """The weights here of a module's linears; None where it is not known."""
        return _WEIGHTS.get(fqn.rpartition(".")[2])

    def _read_optimizer(self) -> None:
        values = self.values
        kind = values.choice("optimizer.name", "AdamW", ("AdamW", "Adam"))
        decay = values.number("weight_decay", 0.1)
        if kind == "Adam" and decay != 0:
            values.refuse("optimizer.name",
                          'is "Adam": weight decay as a term of the gradient is not done here; AdamW is')
        values.state("optimizer.name", "optimizer", "adamw")
        values.state("lr", "learning-rate", values.number("lr", 8e-4))
        values.state("weight_decay", "weight-decay", decay)
        if decay > 0:
            self.target.differs("optimizer.weight_decay: here norms and biases do not decay, in torchtitan they do")
        for name, option, fallback in (("beta1", "beta1", 0.9), ("beta2", "beta2", 0.95), ("eps", "epsilon", 1e-8)):
            values.state_plugin(name, "adamw", option, as_text(values.number(name, fallback)))

    def _read_rates(self) -> None:
        warmup = self.values.find("warmup_steps")
        if self.old or (warmup and warmup.key.startswith("training.")):
            self._read_old_schedule()
        else:
            self._read_schedule()

    def _read_old_schedule(self) -> None:
        """Reads the schedule of the old layout: warm-up to peak * w/(w+1), then a line to 0 at the end."""
        self.values.state("warmup_steps", "schedule", "linear")
        if self.target.value("schedule") == "linear":
            self.values.state_plugin("warmup_steps", "linear", "warmup",
                                     str(self.values.whole("warmup_steps", 200, 0, MOST_STEPS)))
            self.target.derive_plugin("the end of its line", "linear", "final-rate", "0")

    def _read_schedule(self) -> None:
        """(k+1)/w of the peak in step k of w steps of warm-up, the peak, and a decay over the last steps.

        One step of warm-up less begins one step above 0 here, and is the same.
        """
        values, target = self.values, self.target
        total = values.whole("total_steps", int(target.value("steps")), 1, MOST_STEPS)
        warmup = min(values.whole("warmup_steps", 200, 0, MOST_STEPS), total)
        ratio = values.number("decay_ratio", 1.0)
        if not 0 <= ratio <= 1:
            values.refuse("decay_ratio", f"is {as_text(ratio)}; it must be from 0 to 1")
        decay = total - warmup
        if values.has("decay_ratio"):
            decay = min(decay, round(total * ratio))
        kind = values.choice("decay_type", "linear", ("linear", "sqrt", "cosine"))
        least = values.number("min_lr_factor", 0.0)
        if not 0 <= least <= 1:
            values.refuse("min_lr_factor", f"is {as_text(least)}; it must be a fraction of the peak, 0 to 1")
        values.state("warmup_steps", "schedule", "wsd")
        schedule = target.value("schedule")
        values.note("options of --schedule wsd" if schedule == "wsd" else f"--schedule {schedule}{GOES_BEFORE}",
                    "total_steps", "decay_ratio", "decay_type", "min_lr_factor")
        if schedule != "wsd":
            return
        target.derive_plugin("warm-up", "wsd", "warmup", str(max(warmup - 1, 0)))
        target.derive_plugin("decay", "wsd", "decay", as_text(decay / total))
        target.derive_plugin("decay", "wsd", "decay-shape", "1-sqrt" if kind == "sqrt" else kind)
        target.derive_plugin("decay", "wsd", "final-rate", as_text(least))
        if values.has("total_steps"):
            target.derive_plugin("total_steps", "wsd", "decay-until", str(total))
