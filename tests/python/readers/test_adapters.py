"""LoRA and weights of 4 bits, as TRL, Axolotl and NeMo AutoModel state them."""
from __future__ import annotations

import json
from typing import Any, Dict, Optional

import pytest
from readers.reading import Reading
from readers.test_automodel import RECIPE
from readers.test_trainer import ARGUMENTS, AXOLOTL

from consist.readers.target import Sizes

ADAPTER = ("adapter", "lora.rank", "lora.alpha", "lora.targets", "lora.weights", "frozen-weights")
LORA = "lora_r: 32\nlora_alpha: 16\nlora_dropout: 0.0\nlora_target_linear: true\n"
ROUNDED = "weights of 4 bits have scales of 8 bits there (bnb_4bit_use_double_quant), of f32 here"
BEGINS = "A begins here as PEFT's does (kaiming_uniform_), not by Xavier's rule"
MIXTURE = Sizes(4, experts=8)


def trl(**changed: Any) -> str:
    """Arguments of TRL's scripts that ask for an adapter."""
    return json.dumps({**ARGUMENTS, "use_peft": True, "lora_dropout": 0, **changed})


def axolotl(name: str, more: str = LORA) -> str:
    """Axolotl's file with an adapter of that name."""
    return AXOLOTL.replace("adapter:", f"adapter: {name}") + more


def automodel(quantization: str = "", **peft: Any) -> str:
    """A recipe with a section peft, in which `peft` replaces or, by None, leaves out what there is."""
    section = {"_target_": "nemo_automodel.components._peft.lora.PeftConfig", "target_modules": "*_proj", "dim": 16, **peft}
    lines = "".join(f"  {key}: {json.dumps(value)}\n" for key, value in section.items() if value is not None)
    text = RECIPE.replace("torch_dtype: float32", "torch_dtype: bfloat16") + f"peft:\n{lines}"
    return text + (f"quantization: {quantization}\n" if quantization else "")


def adapter_of(options: Dict[str, str]) -> Dict[str, str]:
    """The options that concern adapters."""
    return {option: options[option] for option in ADAPTER if option in options}


def of(rank: int, alpha: int, targets: str, bits: Optional[str] = None) -> Dict[str, str]:
    """The options of an adapter."""
    found = {"adapter": "lora", "lora.rank": str(rank), "lora.alpha": str(alpha), "lora.targets": targets}
    return {**found, "frozen-weights": bits} if bits else found


@pytest.mark.parametrize("text, expected", [
    (trl(), of(16, 32, "q_proj,v_proj")),
    (trl(lora_r=8, lora_alpha=16, lora_target_modules=["q_proj", "self_attn.o_proj"], lora_task_type="CAUSAL_LM"),
     of(8, 16, "q_proj,self_attn.o_proj")),
    (trl(lora_target_modules="all-linear"), of(16, 32, "all-linear")),
    (trl(lora_target_modules=["all-linear"], load_in_4bit=True), of(16, 32, "all-linear", "nf4")),
    (trl(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_quant_storage="bfloat16"), of(16, 32, "q_proj,v_proj", "nf4")),
    (trl(load_in_8bit=False, use_dora=False, use_rslora=False, lora_modules_to_save=[]), of(16, 32, "q_proj,v_proj")),
    (axolotl("lora"), of(32, 16, "all-linear")),
    (axolotl("qlora", LORA + "load_in_4bit: true\n"), of(32, 16, "all-linear", "nf4")),
    (axolotl("lora", "lora_r: 8\nlora_alpha: 16\nlora_target_modules: [q_proj, down_proj]\nlora_dropout:\n"), of(8, 16, "q_proj,down_proj")),
    (axolotl("lora", LORA + "lora_target_modules: [q_proj]\nlora_mlp_kernel: true\npeft_init_lora_weights: true\n"), of(32, 16, "all-linear")),
    (axolotl("lora", LORA + "lora_model_dir: there\n"), {**of(32, 16, "all-linear"), "lora.weights": "there"}),
    (automodel(), of(16, 32, "all-linear")),
    (automodel(target_modules=None, dim=None, use_triton=True), of(8, 32, "all-linear")),
    (automodel(target_modules=["*.q_proj", "*v_proj"], alpha=16, dropout=0.0), of(16, 16, "q_proj,v_proj")),
    (automodel(target_modules=["*.self_attn.*"], lora_A_init="uniform"), of(16, 32, "q_proj,k_proj,v_proj,o_proj")),
    (automodel(target_modules=None, exclude_modules=["lm_head", "*.mlp.*"]), of(16, 32, "q_proj,k_proj,v_proj,o_proj")),
    (automodel("{load_in_4bit: true, load_in_8bit: false, bnb_4bit_compute_dtype: bfloat16, bnb_4bit_quant_storage: bfloat16}"),
     of(16, 32, "all-linear", "nf4")),
    (automodel("{load_in_4bit: false}"), of(16, 32, "all-linear")),
])
def test_adapters_are_taken_over(reading: Reading, text: str, expected: Dict[str, str]) -> None:
    assert adapter_of(reading.read(text).options) == expected


@pytest.mark.parametrize("text", [
    trl(use_peft=False, lora_r=8, lora_modules_to_save=["lm_head"], use_dora=True), trl(use_peft=False, load_in_4bit=False),
    AXOLOTL + LORA + "lora_modules_to_save: [lm_head]\npeft_use_dora: true\n", AXOLOTL.replace("adapter:", "adapter: ''") + LORA, RECIPE,
    RECIPE + "peft: null\n", RECIPE + "quantization:\n  load_in_4bit: false\n"])
def test_nothing_is_adapted_unasked(reading: Reading, text: str) -> None:
    target = reading.read(text)
    assert adapter_of(target.options) == {}
    if "lora_r" in text:
        assert "set" in next(line for line in target.notes() if "lora_r " in line)


@pytest.mark.parametrize("text, message", [
    (trl(lora_dropout=0.1), "lora_dropout is 0.1: no random numbers are drawn in a step here; --from-set lora_dropout=0 leaves it out"),
    (json.dumps({**ARGUMENTS, "use_peft": True}), "lora_dropout (its default) is 0.05: no random numbers are drawn"),
    (trl(use_dora=True), "use_dora is asked for, which is not done here; DoRA trains the lengths of the weights' rows, too"),
    (trl(use_rslora=True), "use_rslora is asked for, which is not done here; the product is multiplied by alpha/rank; an alpha that is larger"),
    (trl(lora_modules_to_save=["embed_tokens"]), "lora_modules_to_save is asked for, which is not done here; embeddings, the LM head and norms are frozen"),
    (trl(lora_target_parameters=["experts"]), "lora_target_parameters is asked for, which is not done here; the experts of mixtures get no adapters"),
    (trl(load_in_8bit=True), "load_in_8bit is asked for, which is not done here; weights of 8 bits are multiplied as integers there"),
    (trl(load_in_4bit=True, bnb_4bit_quant_type="fp4"), 'bnb_4bit_quant_type is "fp4", which is not done here; 4 bits are nf4\'s'),
    (trl(use_peft=False, load_in_4bit=True), "load_in_4bit is true: what is trained beside weights of few bits is an adapter, and none is asked for"),
    (trl(use_peft="yes"), 'use_peft is "yes"; it must be true, false'),
    (trl(lora_r=0), "lora_r is 0; it must be a whole number from 1 to 65536"),
    (trl(lora_alpha="much"), 'lora_alpha is "much"; it must be a number'),
    (trl(lora_target_modules=r".*\.q_proj"), "it must be a list of names (patterns of names are not followed), or all-linear"),
    (trl(lora_target_modules=["q_proj,v_proj"]), 'lora_target_modules has "q_proj,v_proj", which is no name of a module'),
    (trl(lora_target_modules=["q_proj", "lm_head"]), 'lora_target_modules has "lm_head": embeddings and the LM head get no adapters'),
    (trl(use_bnb_nested_quant=True, bnb_4bit_use_double_quant=True), "is given beside bnb_4bit_use_double_quant, which means the same"),
    (axolotl("llama-adapter"), 'adapter is "llama-adapter", which is not done here; it may be one of lora, qlora'),
    (axolotl("qlora"), "adapter is qlora, for which Axolotl needs load_in_4bit true, too"),
    (axolotl("lora", LORA + "load_in_4bit: true\n"), "load_in_4bit is true beside adapter lora, for which Axolotl leaves weights whole"),
    (axolotl("lora", LORA + "load_in_8bit: true\n"), "load_in_8bit is asked for, which is not done here; weights of 8 bits are multiplied"),
    (axolotl("lora", LORA.replace("lora_r: 32\n", "")), "lora_r is absent, and must be given (or --lora.rank)"),
    (axolotl("lora", LORA.replace("lora_alpha: 16\n", "")), "lora_alpha is absent, and must be given (or --lora.alpha)"),
    (axolotl("lora", LORA.replace("true", "false")), "lora_target_modules names no linears to adapt (or give --lora.targets)"),
    (axolotl("lora", LORA + "lora_target_modules: []\n").replace("linear: true", "linear: false"), "lora_target_modules names no linears to adapt"),
    (axolotl("lora", LORA + "lora_target_modules: [embed_tokens]\n"), 'lora_target_modules has "embed_tokens": embeddings'),
    (axolotl("lora", LORA + "peft_use_dora: true\n"), "peft_use_dora is asked for, which is not done here; DoRA trains"),
    (axolotl("lora", LORA + "peft_use_rslora: true\n"), "peft_use_rslora is asked for"),
    (axolotl("lora", LORA + "peft_layers_to_transform: [1]\n"), "peft_layers_to_transform is asked for, which is not done here; all layers are adapted"),
    (axolotl("lora", LORA + "peft_layers_pattern: [x]\n"), "peft_layers_pattern is asked for, which is not done here; all layers are adapted"),
    (axolotl("lora", LORA + "peft_layer_replication: [[0, 4]]\n"), "peft_layer_replication is asked for, which is not done here; the model keeps"),
    (axolotl("lora", LORA + "peft_trainable_token_indices: [4]\n"), "peft_trainable_token_indices is asked for, which is not done here; embeddings"),
    (axolotl("lora", LORA + "lora_rank_pattern: {q_proj: 4}\n"), "lora_rank_pattern is asked for, which is not done here; all adapters have one rank"),
    (axolotl("lora", LORA + "lora_alpha_pattern: {q_proj: 4}\n"), "lora_alpha_pattern is asked for, which is not done here; all adapters have one alpha"),
    (axolotl("lora", LORA + "loraplus_lr_ratio: 16\n"), "--optimizer-rules '*lora_B*:lr-factor=N' gives B another; --from-set loraplus_lr_ratio=null"),
    (axolotl("lora", LORA + "peft_init_lora_weights: pissa\n"), 'peft_init_lora_weights is "pissa": A begins at random and B with zeros'),
    (axolotl("lora", LORA + "peft: {loftq_config: {loftq_bits: 4}}\n"), "peft is asked for, which is not done here; A begins at random"),
    (axolotl("lora", LORA + "relora: true\n"), "relora is asked for, which is not done here; an adapter is not merged while it is trained"),
    (axolotl("lora", LORA + "gptq: true\n"), "gptq is asked for, which is not done here; --frozen-weights says the formats"),
    (axolotl("lora", LORA + "peft_autocast_adapter_dtype: false\n"), "peft_autocast_adapter_dtype is false, which is not done here"),
    (axolotl("qlora", LORA + "load_in_4bit: true\nbnb_config_kwargs: {bnb_4bit_quant_type: fp4}\n"), 'bnb_config_kwargs.bnb_4bit_quant_type is "fp4"'),
    (axolotl("qlora", LORA + "load_in_4bit: true\nbnb_config_kwargs: {unheard_of: 1}\n"), '"bnb_config_kwargs.unheard_of" is not known here'),
    (automodel(dropout=0.1), "peft.dropout is 0.1: no random numbers are drawn in a step here; --from-set peft.dropout=0 leaves it out"),
    (automodel(use_dora=True), "peft.use_dora is asked for, which is not done here; DoRA trains"),
    (automodel(lora_dtype="float32"), "peft.lora_dtype is asked for, which is not done here"),
    (automodel(_target_="peft.LoraConfig"), 'peft._target_ is "LoraConfig", which is not done here; PeftConfig is'),
    (automodel(_target_=None), 'peft._target_ is "", which is not done here'),
    (automodel(target_modules=None, match_all_linear=True), "peft.match_all_linear adapts the LM head, too, which gets no adapter here"),
    (automodel(target_modules="*"), "peft.target_modules adapts the LM head, too, which gets no adapter here"),
    (automodel(target_modules=None, exclude_modules=["*.out_proj"]), "peft.exclude_modules adapts the LM head, too"),
    (automodel(exclude_modules=["lm_head"]), "peft.exclude_modules is given beside other modules to adapt, which AutoModel refuses, too"),
    (automodel(match_all_linear=True), "peft.match_all_linear is given beside other modules to adapt, which AutoModel refuses, too"),
    (automodel(target_modules=["*.layers.0.*.q_proj"]), "peft.target_modules names linears of some layers; all layers are adapted here"),
    (automodel(target_modules=["*.linear_qkv"]), "peft.target_modules names no linears of a decoder's layers, which are self_attn.q_proj"),
    (automodel(target_modules=["[qv]_proj"]), "it must be patterns of names of modules"),
    (automodel("{load_in_8bit: true}"), "quantization.load_in_8bit is asked for, which is not done here; weights of 8 bits"),
    (automodel("{load_in_4bit: true, bnb_4bit_quant_type: fp4}"), 'quantization.bnb_4bit_quant_type is "fp4"'),
    (automodel("{load_in_4bit: true, bnb_4bit_compute_dtype: float16}"), 'quantization.bnb_4bit_compute_dtype is "float16"'),
    (automodel("{load_in_4bit: true}").replace("torch_dtype: bfloat16", "torch_dtype: float32"),
     "model.torch_dtype is float32 beside weights of 4 bits, whose adapters AutoModel has in bfloat16"),
    (RECIPE + "quantization:\n  load_in_4bit: true\n", "quantization.load_in_4bit is true: what is trained beside weights of few bits is an adapter"),
])
def test_other_adapters_are_refused_by_name(reading: Reading, text: str, message: str) -> None:
    reading.refused(text, message)


def test_all_that_is_not_done_is_said_together(reading: Reading) -> None:
    reading.refused(trl(use_dora=True, use_rslora=True, lora_dropout=0.1, lora_target_modules=["lm_head"], load_in_4bit=True,
                        bnb_4bit_quant_type="fp4"), "5 things are not done here")


@pytest.mark.parametrize("text, remark", [
    (trl(load_in_4bit=True), None), (trl(load_in_4bit=True, use_bnb_nested_quant=True), ROUNDED),
    (trl(load_in_4bit=True, bnb_4bit_use_double_quant=True), ROUNDED), (trl(use_bnb_nested_quant=True), None),
    (axolotl("lora"), None), (axolotl("qlora", LORA + "load_in_4bit: true\n"), ROUNDED),
    (axolotl("qlora", LORA + "load_in_4bit: true\nbnb_config_kwargs: {bnb_4bit_use_double_quant: false}\n"), None),
    (automodel("{load_in_4bit: true}", lora_A_init="uniform"), ROUNDED),
    (automodel("{load_in_4bit: true, bnb_4bit_use_double_quant: false}"), BEGINS), (automodel(), BEGINS), (automodel(lora_A_init="uniform"), None)])
def test_what_is_rounded_or_begins_otherwise_is_said(reading: Reading, text: str, remark: Optional[str]) -> None:
    remarks = [line for line in reading.read(text, each_key=False).remarks if "has its sizes" not in line]
    assert len(remarks) == (remark is not None), remarks
    assert remark is None or remark in remarks[0]


def test_experts_get_no_adapters(reading: Reading) -> None:
    given = {"model": "x", "sizes": MIXTURE}
    for targets in (["*_proj"], ["*.mlp.*"]):
        with pytest.raises(Exception, match="adapts experts or routers, too, which get no adapters here; it may be self_attn.q_proj"):
            reading.read(automodel(target_modules=targets), **given)  # type: ignore[arg-type]
    options = reading.read(automodel(target_modules=["*.self_attn.q_proj"]), **given).options  # type: ignore[arg-type]
    assert adapter_of(options) == of(16, 32, "q_proj")


@pytest.mark.parametrize("text", [trl(load_in_4bit=True, use_dora=True), axolotl("qlora", "load_in_4bit: true\npeft_use_dora: true\n"),
                                  automodel("{load_in_4bit: true}", use_dora=True)])
def test_another_adapter_of_the_command_line_goes_before_the_file(reading: Reading, text: str) -> None:
    target = reading.read(text, adapter="none")
    assert adapter_of(target.options) == {}
    assert any("load_in_4bit true: --adapter none is given and goes before the file" in line for line in target.notes())


@pytest.mark.parametrize("text, key", [(trl(lora_target_modules="a|b"), "lora_target_modules"),
                                       (axolotl("lora", LORA.replace("linear: true", "modules: a|b")), "lora_target_modules"),
                                       (automodel(target_modules="*"), "peft.target_modules")])
def test_options_of_the_command_line_go_before_the_file(reading: Reading, text: str, key: str) -> None:
    target = reading.read(text, adapter="lora", lora__rank=4, lora__alpha=5, lora__targets="k_proj", frozen_weights="e4m3")
    assert adapter_of(target.options) == {}
    assert any(f"{key} " in line and "--lora.targets k_proj is given" in line for line in target.notes())
