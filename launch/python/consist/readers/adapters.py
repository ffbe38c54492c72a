"""LoRA adapters and weights of 4 bits, which TRL, Axolotl and NeMo AutoModel state under names of their own."""
from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import partial
from typing import List, NamedTuple, Optional

from .messages import as_text, in_quotes, listed, shown
from .rules import is_enabled
from .stored import StoredValues
from .target import GOES_BEFORE

ALL_LINEAR = "all-linear"
GIVE_LORA = "give --adapter lora with its options here, and leave this out"
NO_INT8 = ("weights of 8 bits are multiplied as integers there; --frozen-weights e4m3 keeps them as 8-bit floats here, "
           "which are decoded")
PACKED = "codes lie packed"

# Values, by their short names, that an adapter has here in one way only.
_NOT_DONE = {
    "use_dora": "DoRA trains the lengths of the weights' rows, too",
    "use_rslora": "the product is multiplied by alpha/rank; an alpha that is larger by the root of the rank does the "
                  "same",
    "loraplus_lr_ratio": "A and B have one learning rate; --optimizer-rules '*lora_B*:lr-factor=N' gives B another",
    "layers_to_transform": "all layers are adapted; --freeze takes adapters away by name",
    "layers_pattern": "all layers are adapted; --freeze takes adapters away by name",
    "layer_replication": "the model keeps its layers",
    "lora_modules_to_save": "embeddings, the LM head and norms are frozen beside an adapter",
    "trainable_token_indices": "embeddings are frozen beside an adapter",
    "lora_target_parameters": "the experts of mixtures get no adapters",
    "lora_rank_pattern": "all adapters have one rank",
    "lora_alpha_pattern": "all adapters have one alpha",
    "loftq": "A begins at random and B with zeros",
}
_VALUES = ("lora_r", "lora_alpha", "lora_dropout", "lora_target_modules", "lora_target_linear", "lora_model_dir",
           "exclude_modules", "match_all_linear", "lora_A_init", "init_lora_weights", *_NOT_DONE)
_OF_4_BITS = ("bnb_4bit_quant_type", "use_bnb_nested_quant")
_NO_TARGETS = ("lm_head", "embed_tokens")
# The linears of each layer of a decoder, and the modules beside them that a pattern may name.
_LINEARS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
            "mlp.up_proj", "mlp.down_proj")
_EXPERTS = ("mlp.gate", "mlp.experts", "mlp.experts.0.gate_proj", "mlp.experts.0.up_proj", "mlp.experts.0.down_proj")


class AdapterDefaults(NamedTuple):
    """The key that asks for an adapter, and values of absent keys. None: the file must say it."""

    key: str
    rank: Optional[int] = None
    alpha: Optional[int] = None
    dropout: float = 0.0
    targets: Optional[str] = None
    nested: bool = False  # scales of weights of 4 bits are quantized, too
    init: str = ""  # how A begins, where that is not as here


def read_adapter(values: StoredValues, asked: bool, defaults: AdapterDefaults) -> None:
    """Sets the adapter and the format of the weights beside it, if an adapter is asked for."""
    target, name = values.target, defaults.key
    if target.given("adapter") and target.value("adapter") != "lora":
        values.note(f"--adapter {target.value('adapter')}{GOES_BEFORE}", name, *_VALUES, "load_in_4bit",
                    *_OF_4_BITS)
        return
    if not asked:
        values.note("off", name)
        values.note(f"no effect: {values.key_of(name)} is not set", *_VALUES)
        if values.truth("load_in_4bit"):
            values.refuse("load_in_4bit", "is true: what is trained beside weights of few bits is an adapter, and "
                                          "none is asked for")
        _leave_whole(values)
        return
    values.state(name, "adapter", "lora")
    for step in (_refuse_others, _read_beginning, _read_sizes, _read_dropout, _read_targets, _read_weights):
        target.attempt(partial(step, values, defaults))


def _refuse_others(values: StoredValues, _: AdapterDefaults) -> None:
    target = values.target
    for name, why in _NOT_DONE.items():
        if values.has(name) and values[name] != [] and is_enabled(values[name]):
            target.attempt(partial(values.refuse, name, f"is asked for, which is not done here; {why}; "
                                   f"{target.source.set_option} {values.key_of(name)}=null leaves it out"))
        else:
            values.note("off", name)


def _read_beginning(values: StoredValues, defaults: AdapterDefaults) -> None:
    init = values["lora_A_init"] if values.has("lora_A_init") else defaults.init
    if init == "xavier":
        values.target.differs("A begins here as PEFT's does (kaiming_uniform_), not by Xavier's rule")
    values.note("random numbers; B begins with zeros", "lora_A_init")
    if values.has("init_lora_weights") and values["init_lora_weights"] is not True:
        values.refuse("init_lora_weights", f"is {shown(values['init_lora_weights'])}: {_NOT_DONE['loftq']}, as with "
                                           "true")
    values.note("A begins at random and B with zeros", "init_lora_weights")


def _read_sizes(values: StoredValues, defaults: AdapterDefaults) -> None:
    target = values.target

    def state(name: str, option: str, value: Optional[float]) -> None:
        if value is not None:
            values.state_plugin(name, "lora", option, as_text(value))
        elif not target.given(f"lora.{option}"):
            target.refuse(values.key_of(name), f"is absent, and must be given (or --lora.{option})")

    target.attempt(lambda: state("lora_r", "rank", values.whole("lora_r", 1, 1, 65_536) if values.has("lora_r")
                                 else defaults.rank))
    target.attempt(lambda: state("lora_alpha", "alpha", values.number("lora_alpha", 0) if values.has("lora_alpha")
                                 else defaults.alpha))
    if values.has("lora_model_dir"):
        values.state_plugin("lora_model_dir", "lora", "weights", values.text("lora_model_dir", ""))


def _read_dropout(values: StoredValues, defaults: AdapterDefaults) -> None:
    dropout = values.number("lora_dropout", defaults.dropout)
    if dropout:
        values.refuse("lora_dropout", f"is {as_text(dropout)}: no random numbers are drawn in a step here; "
                                      f"{values.target.source.set_option} {values.key_of('lora_dropout')}=0 leaves it "
                                      "out")
    values.note("as it is here", "lora_dropout")


def _read_targets(values: StoredValues, defaults: AdapterDefaults) -> None:
    name = "lora_target_modules"
    if values.target.given("lora.targets"):
        values.note(f"--lora.targets {values.target.value('lora.targets')}{GOES_BEFORE}", name, "lora_target_linear",
                    "exclude_modules", "match_all_linear")
        return
    names = _names(values, name) if values.has(name) else defaults.targets
    if values.truth("lora_target_linear"):
        values.state_plugin("lora_target_linear", "lora", "targets", ALL_LINEAR)
        values.note("they are among all linears", name)
        return
    values.note("off", "lora_target_linear")
    if not names:
        values.target.refuse(values.key_of(name), "names no linears to adapt (or give --lora.targets)")
    values.state_plugin(name, "lora", "targets", names)
    values.note(f"--lora.targets {names}", "exclude_modules", "match_all_linear")


def _names(values: StoredValues, name: str) -> str:
    """The value of --lora.targets for PEFT's names of linears; '' for none."""
    given = values[name]
    if given in (ALL_LINEAR, [ALL_LINEAR]):
        return ALL_LINEAR
    if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
        values.refuse(name, f"is {shown(given)}; it must be a list of names (patterns of names are not followed), or "
                            f"{ALL_LINEAR}")
    for word in given:
        if not re.fullmatch(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*", word):
            values.refuse(name, f"has {in_quotes(word)}, which is no name of a module")
        if word.rpartition(".")[2] in _NO_TARGETS:
            values.refuse(name, f"has {in_quotes(word)}: embeddings and the LM head get no adapters")
    return ",".join(given)


def _read_weights(values: StoredValues, defaults: AdapterDefaults) -> None:
    if not values.truth("load_in_4bit"):
        _leave_whole(values)
        return
    kind = values.text("bnb_4bit_quant_type", "nf4")
    if kind != "nf4":
        values.refuse("bnb_4bit_quant_type", f"is {in_quotes(kind)}, which is not done here; 4 bits are nf4's")
    values.note("--frozen-weights nf4", "bnb_4bit_quant_type")
    values.state("load_in_4bit", "frozen-weights", "nf4")
    nested = values.truth("use_bnb_nested_quant", defaults.nested)
    if nested:
        values.target.differs("weights of 4 bits have scales of 8 bits there (bnb_4bit_use_double_quant), of f32 here: "
                              "they are rounded a little otherwise")
    values.note("scales are f32 here" if nested else "as it is here", "use_bnb_nested_quant")


def _leave_whole(values: StoredValues) -> None:
    values.note("off", "load_in_4bit")
    values.note("no effect: load_in_4bit is not set", *_OF_4_BITS)


def targets_of_patterns(values: StoredValues) -> str:
    """The value of --lora.targets for AutoModel's target_modules ("patterns"), exclude_modules and match_all_linear.

    A pattern names modules by their whole names, where * is anything and a dot any character.
    """
    wanted, left_out = (_patterns(values, name) for name in ("patterns", "exclude_modules"))
    every = values.truth("match_all_linear")
    if wanted and left_out or every and (wanted or left_out):
        values.refuse("exclude_modules" if left_out else "match_all_linear", "is given beside other modules to adapt, "
                      "which AutoModel refuses, too")
    if not wanted and not left_out and not every:
        wanted = ["*_proj"]

    def named(module: str, layer: str = "") -> bool:
        whole = f"model.layers.{layer}.{module}" if layer else module
        patterns = wanted or left_out
        found = any(pattern == whole or fnmatchcase(whole, _as_shell(pattern)) for pattern in patterns)
        return every or (found if wanted else not found)

    name = "match_all_linear" if every else "exclude_modules" if left_out else "patterns"
    if named("lm_head"):
        values.refuse(name, "adapts the LM head, too, which gets no adapter here; "
                            f"{values.target.source.set_option} {values.key_of('patterns')}='*_proj', with "
                            "the other keys null, adapts the linears of the layers")
    names = [linear for linear in _LINEARS if named(linear, "0")]
    if names != [linear for linear in _LINEARS if named(linear, "11")]:
        values.refuse(name, "names linears of some layers; all layers are adapted here, and --freeze takes adapters "
                            "away by name")
    sizes = values.target.model_sizes
    if sizes is not None and sizes.experts and any(named(module, "0") for module in _EXPERTS):
        values.refuse(name, f"adapts experts or routers, too, which get no adapters here; it may be "
                            + listed(_LINEARS[:4]))
    if not names:
        values.refuse(name, f"names no linears of a decoder's layers, which are {listed(_LINEARS)}")
    return ALL_LINEAR if len(names) == len(_LINEARS) else ",".join(name.rpartition(".")[2] for name in names)


def _patterns(values: StoredValues, name: str) -> List[str]:
    if not values.has(name):
        return []
    given = values[name]
    words = [given] if isinstance(given, str) else given
    if not isinstance(words, list) or not all(isinstance(word, str) and re.fullmatch(r"[\w.*]+", word)
                                              for word in words):
        values.refuse(name, f"is {shown(given)}; it must be patterns of names of modules")
    return words


def _as_shell(pattern: str) -> str:
    """The pattern as fnmatch has it: .* is *, and a dot is any one character."""
    return re.sub(r"(?<!\.)\*", ".*", pattern).replace(".*", "*").replace(".", "?")
