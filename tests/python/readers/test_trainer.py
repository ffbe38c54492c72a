"""Hugging Face's TrainingArguments and Axolotl's YAML, which is read by the same rules."""
from __future__ import annotations

import json
import math
from typing import Any, Dict

import pytest
from readers.rates import rate
from readers.reading import Reading

ARGUMENTS: Dict[str, Any] = {
    "output_dir": "x", "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 2e-5,
    "lr_scheduler_type": "cosine", "warmup_steps": 3, "max_steps": 20, "bf16": True, "logging_steps": 10, "weight_decay": 0.01}
AXOLOTL = """base_model: NousResearch/Meta-Llama-3.1-8B
datasets:
  - path: mhenrichsen/alpaca_2k_test
    type: alpaca
sequence_len: 8192
sample_packing: true
adapter:
micro_batch_size: 2
gradient_accumulation_steps: 8
num_epochs: 3
optimizer: adamw_torch_fused
lr_scheduler: cosine
learning_rate: 2e-5
bf16: auto
tf32: false
gradient_checkpointing: true
warmup_steps: 100
weight_decay: 0.1
fsdp_version: 2
fsdp_config:
  offload_params: false
  reshard_after_forward: true
  auto_wrap_policy: TRANSFORMER_BASED_WRAP
special_tokens:
"""


def of(**changed: Any) -> str:
    """The arguments with others in their place."""
    return json.dumps({**ARGUMENTS, **changed})


def test_arguments_become_a_configuration(reading: Reading) -> None:
    target = reading.read(of())
    assert target.options == {
        "batch": "4", "accumulation": "2", "steps": "20", "clip": "1", "precision": "bf16", "strategy": "ddp",
        "optimizer": "adamw", "learning-rate": "2e-05", "weight-decay": "0.01", "adamw.beta1": "0.9", "adamw.beta2": "0.999",
        "adamw.epsilon": "1e-08", "schedule": "cosine", "cosine.warmup": "3", "cosine.warmup-from": "0",
        "cosine.final-rate": "0"}
    notes = "\n".join(target.notes())
    assert 'output_dir "x": no effect' in notes and "logging_steps 10: no effect" in notes
    assert "keys that are absent have Hugging Face's Trainer's defaults" in notes


def transformers_rate(name: str, step: int, warmup: int, total: int, least: float) -> float:
    """get_linear_, get_cosine_with_min_lr_ and get_constant_schedule_with_warmup of transformers/optimization.py (4.57)."""
    if step < warmup:
        return step / max(1, warmup)
    part = (step - warmup) / max(1, total - warmup)
    if name.startswith("constant"):
        return 1
    return 1 - part if name == "linear" else 0.5 * (1 + math.cos(math.pi * part)) * (1 - least) + least


@pytest.mark.parametrize("name, warmup, more, least", [
    ("linear", 5, {}, 0), ("cosine", 4, {}, 0), ("constant_with_warmup", 6, {}, 0), ("linear", 0, {}, 0),
    ("cosine_with_min_lr", 2, {"min_lr_rate": 0.1}, 0.1), ("cosine_with_min_lr", 2, {"min_lr": 5e-4}, 0.25),
])
def test_rates_are_those_of_transformers(reading: Reading, name: str, warmup: int, more: Dict[str, float], least: float) -> None:
    target = reading.read(of(lr_scheduler_type=name, warmup_steps=warmup, lr_scheduler_kwargs=more, learning_rate=2e-3))
    for step in range(20):
        assert rate(target, step) == pytest.approx(2e-3 * transformers_rate(name, step, warmup, 20, least), abs=1e-12), step


@pytest.mark.parametrize("changed, expected", [
    ({"max_steps": -1, "num_train_epochs": 2}, {"epochs": "2"}),
    ({"warmup_steps": 0, "warmup_ratio": 0.11}, {"cosine.warmup": "3"}),
    ({"warmup_steps": 0.2}, {"cosine.warmup": "4"}),
    ({"gradient_checkpointing": True}, {"recompute": "full"}),
    ({"fsdp": "full_shard auto_wrap offload"}, {"strategy": "zero3-offload", "zero3-offload.offload-param.device": "cpu",
                                               "zero3-offload.communication-data-type": "bf16",
                                               "zero3-offload.max-reuse-distance": "0"}),
    ({"fsdp": ["shard_grad_op"]}, {"zero3-offload.max-reuse-distance": "1000000000000000"}),
    ({"fsdp": "full_shard", "fsdp_config": {"reshard_after_forward": False, "version": 2, "activation_checkpointing": True}},
     {"zero3-offload.max-reuse-distance": "1000000000000000", "recompute": "full"}),
    ({"fsdp": "no_shard"}, {"strategy": "ddp"}),
    ({"bf16": False}, {"precision": "fp32"}),
    ({"optim": "sgd"}, {"optimizer": "sgd"}),
    ({"optim": "paged_adamw_32bit"}, {"optimizer": "adamw", "adamw.beta2": "0.999", "weight-decay": "0.01"}),
    ({"max_seq_length": 2048, "seed": 7}, {"sequence": "2048", "seed": "7"}),
    ({"model_name_or_path": "meta-llama/Llama-3.2-1B-Instruct"}, {"model": "llama-3.2-1b"}),
    ({"model_name_or_path": "Qwen/Qwen3-8B"}, {"model": "qwen3-8b"}),
    ({"model_name_or_path": "meta-llama/Llama-2-7b-chat-hf"}, {"model": "llama-2-7b"}),
])
def test_values_are_honoured(reading: Reading, changed: Dict[str, Any], expected: Dict[str, str]) -> None:
    options = reading.read(of(**changed)).options
    assert {option: options[option] for option in expected} == expected


@pytest.mark.parametrize("changed, message", [
    ({"fp16": True}, "fp16 is true: training in fp16"),
    ({"optim": "adamw_bnb_8bit"}, "its states of 8 bits are others than those of --optimizer adamw-8bit"),
    ({"optim": "paged_adamw_8bit"}, "its states of 8 bits are others than those of --optimizer adamw-8bit"),
    ({"optim": "adafactor"}, 'optim is "adafactor"'),
    ({"lr_scheduler_type": "polynomial"}, 'lr_scheduler_type is "polynomial"'),
    ({"lr_scheduler_kwargs": {"num_cycles": 2}}, 'has "num_cycles" 2'),
    ({"num_train_epochs": 1.5, "max_steps": -1}, "num_train_epochs is 1.5; a run has whole epochs here"),
    ({"warmup_steps": 0, "warmup_ratio": 0.1, "max_steps": -1, "num_train_epochs": 1}, "whose number follows from the data"),
    ({"fsdp": "full_shard sideways"}, 'fsdp has "sideways"'),
    ({"fsdp": "hybrid_shard"}, "whose groups are the ranks of a machine"),
    ({"deepspeed": {"zero_optimization": {}}}, "write it into a file of its own"),
    ({"deepspeed": "none.json"}, 'deepspeed names "none.json", which is not there'),
    ({"neftune_noise_alpha": 5}, "neftune_noise_alpha is 5"),
    ({"label_smoothing_factor": 0.1}, "label_smoothing_factor is 0.1"),
    ({"beta": 0.1}, "beta is of preference learning: give --loss dpo if the file is for TRL's DPO"),
    ({"loss_type": "apo_zero"}, "loss_type is of preference learning"),
    ({"label_smoothing": 0.1}, "label_smoothing is of preference learning"),
    ({"max_prompt_length": 8}, "max_prompt_length is of preference learning"),
    ({"model_name_or_path": "google/gemma-3-1b"}, "no preset has its sizes. Give --model"),
    ({"unheard_of": 1}, '"unheard_of" is not known here'),
    ({"fsdp_config": {"unheard_of": 1}}, '"fsdp_config.unheard_of" is not known here'),
])
def test_what_is_not_done_here_is_refused(reading: Reading, changed: Dict[str, Any], message: str) -> None:
    reading.refused(of(**changed), message)


@pytest.mark.parametrize("optim, decay, count", [("paged_adamw_32bit", 0.01, 1), ("paged_adamw_32bit", 0, 0), ("adamw_torch", 0.01, 0)])
def test_a_decay_behind_the_update_is_said(reading: Reading, optim: str, decay: float, count: int) -> None:
    remarks = reading.read(of(optim=optim, weight_decay=decay)).remarks
    assert sum("weights decay before an update here, behind it there" in line for line in remarks) == count


def test_deepspeed_is_read_by_the_program(reading: Reading) -> None:
    file = reading.folder / "ds.json"
    file.write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}')
    options = reading.read(of(deepspeed="ds.json")).options
    assert (options["strategy"], options["deepspeed-config"]) == ("zero3-offload", str(file))
    file.write_text('{"bf16": {"enabled": false}}')
    reading.refused(of(deepspeed="ds.json"), "deepspeed has bf16.enabled false, but this file asks for --precision bf16")


def test_the_command_line_goes_first(reading: Reading) -> None:
    target = reading.read(of(max_steps=-1, warmup_ratio=0.1, warmup_steps=0), steps=50, model="x", global_batch=64)
    assert target.options["cosine.warmup"] == "5"
    assert not {"steps", "epochs", "accumulation"} & set(target.options)
    assert "lr_scheduler_type \"cosine\": --schedule linear is given" in "\n".join(reading.read(of(), schedule="linear").notes())


def test_axolotl_becomes_a_configuration(reading: Reading) -> None:
    target = reading.read(AXOLOTL)
    expected = {"model": "llama-3.1-8b", "sequence": "8192", "batch": "2", "accumulation": "8", "epochs": "3",
                "precision": "bf16", "recompute": "full", "strategy": "zero3-offload", "optimizer": "adamw",
                "learning-rate": "2e-05", "weight-decay": "0.1", "schedule": "cosine", "cosine.warmup": "100",
                "zero3-offload.max-reuse-distance": "0"}
    assert {option: target.options[option] for option in expected} == expected
    notes = "\n".join(target.notes())
    for key in ("adapter null: as if it were absent", "datasets [", "sample_packing true: no effect", "fsdp_version 2",
                "has its sizes and random weights"):
        assert key in notes


@pytest.mark.parametrize("more, expected", [
    ("dp_shard_size: 4\ndp_replicate_size: 2\ntensor_parallel_size: 2\n",
     {"strategy": "tp-sp=2+zero3-offload=4+ddp=2", "ranks": "16"}),
    ("context_parallel_size: 2\n", {"strategy": "cp=2+zero3-offload", "cp.attention": "ring"}),
    ("fp8: true\n", {"precision": "fp8", "fp8.scaling": "tensor"}),
    ("activation_offloading: true\n", {"offload-activations": "all"}),
    ("cosine_min_lr_ratio: 0.1\n", {"cosine.final-rate": "0.1"}),
    ("reinit_weights: true\n", {"from-scratch": "true"}),
    ("max_steps: 7\n", {"steps": "7"}),
])
def test_axolotl_is_honoured(reading: Reading, more: str, expected: Dict[str, str]) -> None:
    options = reading.read(AXOLOTL + more).options
    assert {option: options[option] for option in expected} == expected


@pytest.mark.parametrize("more, message", [
    ("load_in_4bit: true\n", "load_in_4bit is true: what is trained beside weights of few bits is an adapter, and none is asked for"),
    ("rl: kto\n", 'rl is "kto", which is not done here; it may be one of dpo'),
    ("rl: dpo\nrpo_alpha: 1\n", "rpo_alpha is asked for, which is not done here; the loss is DPO's alone"),
    ("rl: dpo\ndpo_loss_type: [ipo]\n", 'dpo_loss_type is ["ipo"], which is not done here; sigmoid is'),
    ("trl: {beta: 0.1}\n", "trl is asked for, which is not done here; there is no reinforcement learning"),
    ("unfrozen_parameters: [lm_head]\n", "give --train-only"),
    ("expert_parallel_size: 4\n", "expert_parallel_size is 4"),
    ("activation_offloading: disk\n", 'activation_offloading is "disk"'),
    ("lora_a: 4\n", '"lora_a" is not known here'),
])
def test_axolotl_is_refused_by_name(reading: Reading, more: str, message: str) -> None:
    reading.refused(AXOLOTL + more, message)
    reading.refused(AXOLOTL.replace("adapter:", "adapter: lora"), "3 things are not done here", "lora_r is absent, and must be given")
    reading.refused(AXOLOTL.replace("learning_rate: 2e-5\n", ""), "learning_rate is absent, and must be given")


TRL_DPO = {"beta": 0.05, "max_length": 512, "max_prompt_length": 256, "loss_type": "sigmoid", "precompute_ref_log_probs": True, "label_smoothing": 0.1}
OF_PREFERENCES = ("loss", "dataset", "sequence", "dpo.beta", "dpo.label-smoothing")


def preferences(options: Dict[str, str]) -> Dict[str, str]:
    """The options that concern preferences."""
    return {option: options[option] for option in OF_PREFERENCES if option in options}


def test_trl_learns_preferences_where_the_command_line_says_so(reading: Reading) -> None:
    target = reading.read(of(**TRL_DPO), loss="dpo")
    assert preferences(target.options) == {"dataset": "preferences", "sequence": "1024", "dpo.beta": "0.05", "dpo.label-smoothing": "0.1"}
    assert any("a sequence holds a pair here, so that --sequence is twice the length of the file" in line for line in target.remarks)
    assert preferences(reading.read(of(), loss="dpo", dataset="synthetic").options) == {"dpo.beta": "0.1", "dpo.label-smoothing": "0"}
    other = reading.read(of(**TRL_DPO), loss="next-token")
    assert preferences(other.options) == {"sequence": "512"} and not other.remarks
    assert preferences(reading.read(of(max_length=512, label_smoothing=0)).options) == {"sequence": "512"}
    reading.refused(of(**{**TRL_DPO, "loss_type": "hinge"}), 'loss_type is "hinge", which is not done here; sigmoid is', loss="dpo")
    reading.refused(of(rpo_alpha=1), "rpo_alpha is asked for, which is not done here; the loss is DPO's alone", loss="dpo")
    reading.refused(of(learning_rate=None), "learning_rate is absent, and must be given", loss="dpo")


def test_axolotl_learns_preferences(reading: Reading) -> None:
    text = AXOLOTL + "rl: dpo\n"
    expected = {"loss": "dpo", "dataset": "preferences", "sequence": "16384", "dpo.beta": "0.1", "dpo.label-smoothing": "0"}
    assert preferences(reading.read(text).options) == expected
    more = reading.read(text + "rl_beta: 0.5\ndpo_label_smoothing: 0.2\ndpo_loss_type: [sigmoid]\n").options
    assert preferences(more) == {**expected, "dpo.beta": "0.5", "dpo.label-smoothing": "0.2"}
    for same in (reading.read(text + "rl_beta: 0.5\n", loss="next-token"), reading.read(AXOLOTL + "rl_beta: 0.5\n"),
                 reading.read(AXOLOTL + "rl: kto\n", loss="next-token")):
        assert preferences(same.options) == {"sequence": "8192"}
