"""Recipes of NVIDIA NeMo AutoModel. RECIPE has the keys of examples/llm_finetune at 36044ad with values of its own."""
from __future__ import annotations

import math
from typing import Any, Dict

import pytest
from readers.rates import rate
from readers.reading import Reading

RECIPE = """recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler:
  global_batch_size: 32
  local_batch_size: 4
  ckpt_every_steps: 100
  num_epochs: 2
  max_steps: 40
dist_env:
  backend: nccl
rng:
  _target_: nemo_automodel.components.training.rng.StatefulRNG
  seed: 7
  ranked: true
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: meta-llama/Llama-3.2-1B
  torch_dtype: float32
distributed:
  strategy: fsdp2
  dp_size: none
  tp_size: 1
  cp_size: 1
  sequence_parallel: false
loss_fn:
  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy
dataset:
  _target_: nemo_automodel.components.datasets.llm.hellaswag.HellaSwag
  split: train
  seq_length: 512
packed_sequence:
  packed_sequence_size: 0
optimizer:
  _target_: torch.optim.AdamW
  betas: [0.9, 0.95]
  eps: 1e-7
  lr: 2.0e-3
  weight_decay: 0.1
lr_scheduler:
  lr_decay_style: cosine
  min_lr: 1.0e-3
"""


def changed(**places: str) -> str:
    """The recipe with lines in place of others; a key names the line that begins with it."""
    lines = RECIPE.splitlines()
    for key, line in places.items():
        at = [index for index, old in enumerate(lines) if old.strip().startswith(f"{key}:")]
        assert len(at) == 1, key
        lines[at[0]] = line
    return "\n".join(lines) + "\n"


def test_a_recipe_becomes_a_configuration(reading: Reading) -> None:
    target = reading.read(RECIPE)
    assert target.options == {
        "seed": "7", "model": "llama-3.2-1b", "sequence": "512", "steps": "40", "clip": "1", "strategy": "zero3-offload", "batch": "4",
        "global-batch": "32", "recompute": "none", "precision": "bf16", "bf16.states": "f32", "bf16.gradients": "f32",
        "optimizer": "adamw", "learning-rate": "0.002", "weight-decay": "0.1", "adamw.beta1": "0.9", "adamw.beta2": "0.95",
        "adamw.epsilon": "1e-07", "schedule": "cosine", "cosine.warmup": "4", "cosine.warmup-from": "0.0002",
        "cosine.final-rate": "0.5",
        "zero3-offload.offload-param.device": "none", "zero3-offload.offload-optimizer.device": "none",
        "zero3-offload.communication-data-type": "fp32", "zero3-offload.max-reuse-distance": "0"}
    notes = "\n".join(target.notes())
    for line in ("distributed.dp_size null: as if it were absent", "dataset.split \"train\": no effect here",
                 "step_scheduler.num_epochs 2: no effect: step_scheduler.max_steps says how long the run is",
                 "loss_fn {", "model.torch_dtype \"float32\": --bf16.states f32", "has its sizes and random weights"):
        assert line in notes


@pytest.mark.parametrize("style, warmup", [("cosine", 4), ("linear", 10), ("constant", 3), ("cosine", 0)])
def test_rates_are_those_of_its_scheduler(reading: Reading, style: str, warmup: int) -> None:
    target = reading.read(changed(lr_decay_style=f"  lr_decay_style: {style}\n  lr_warmup_steps: {warmup}"))
    for step in range(40):
        # OptimizerParamScheduler.get_lr (nemo_automodel/components/optim/scheduler.py)
        if warmup and step <= warmup:
            expected = 2e-4 + (2e-3 - 2e-4) * step / warmup
        else:
            part = (step - warmup) / (40 - warmup)
            left = 1 - part if style == "linear" else 0.5 * (1 + math.cos(math.pi * part))
            expected = 2e-3 if style == "constant" else 1e-3 + (2e-3 - 1e-3) * left
        assert rate(target, step) == pytest.approx(expected, rel=1e-9), step


@pytest.mark.parametrize("places, expected", [
    ({"dp_size": "  dp_size: 4", "tp_size": "  tp_size: 2", "sequence_parallel": "  sequence_parallel: true"},
     {"strategy": "tp-sp=2+zero3-offload=4", "ranks": "8", "tp-sp.sequence-parallel": "true"}),
    ({"dp_size": "  dp_size: 8\n  dp_replicate_size: 2"}, {"strategy": "zero3-offload=4+ddp=2", "ranks": "8"}),
    ({"cp_size": "  cp_size: 2"}, {"strategy": "cp=2+zero3-offload", "cp.attention": "gather"}),
    ({"strategy": "  strategy: ddp"}, {"strategy": "ddp", "precision": "fp32"}),
    ({"strategy": "  strategy: megatron_fsdp", "torch_dtype": "  torch_dtype: bf16"},
     {"strategy": "zero3-offload", "bf16.states": "bf16", "bf16.gradients": "bf16", "zero3-offload.communication-data-type": "bf16"}),
    ({"strategy": "  strategy: megatron_fsdp\n  zero_dp_strategy: 2\n  grad_reduce_in_fp32: true"},
     {"strategy": "zero2", "zero2.stage": "2", "precision": "fp32"}),
    ({"sequence_parallel": "  reshard_after_forward: false\n  activation_checkpointing: true"},
     {"zero3-offload.max-reuse-distance": "1000000000000000", "recompute": "full"}),
    ({"sequence_parallel": "  activation_checkpointing: selective"}, {"recompute": "rms_norm,swiglu,rope"}),
    ({"sequence_parallel": "  offload_policy:\n    _target_: torch.distributed.fsdp.CPUOffloadPolicy"},
     {"zero3-offload.offload-param.device": "cpu", "zero3-offload.offload-optimizer.update": "cpu"}),
    ({"sequence_parallel": "  pp_size: 2\n  pipeline:\n    pp_schedule: interleaved1f1b\n    pp_microbatch_size: 1\n    layers_per_stage: 3\n"
      "    round_virtual_stages_to_pp_multiple: up"},
     {"strategy": "zero3-offload+pipeline=2", "batch": "1", "pipeline.schedule": "interleaved", "pipeline.chunks": "3"}),
    ({"packed_sequence_size": "  packed_sequence_size: 1024"}, {"sequence": "1024"}),
    ({"max_steps": ""}, {"epochs": "2"}),
    ({"torch_dtype": ""}, {"bf16.states": "bf16"}),
    ({"dist_env": "fp8:\n  enabled: true\n  recipe_name: tensorwise\n  filter_fqns: [lm_head, q_proj]\ndist_env:"},
     {"precision": "fp8", "fp8.scaling": "tensor", "fp8.except": "*q_proj*"}),
    ({"rng": "seed: 3\nrng:"}, {"seed": "3"}),
    ({"torch_dtype": "  torch_dtype: float32\n  backend:\n    fake_balanced_gate: true"}, {"expert-load": "balanced"}),
    ({"torch_dtype": "  torch_dtype: float32\n  backend:\n    fake_balanced_gate: false"}, {"expert-load": None}),
])
def test_values_are_honoured(reading: Reading, places: Dict[str, str], expected: Dict[str, str]) -> None:
    given: Dict[str, Any] = {"schedule": "constant"} if "max_steps" in places else {}
    options = reading.read(changed(**places), **given).options
    assert {option: options.get(option) for option in expected} == expected


@pytest.mark.parametrize("places, message", [
    ({"recipe": "recipe: FinetuneRecipeForVLM"}, 'recipe is "FinetuneRecipeForVLM", which is not done here'),
    ({"recipe": "recipe:\n  _target_: nemo_automodel.recipes.llm.kd.KnowledgeDistillationRecipe"}, 'recipe is "KnowledgeDistillationRecipe"'),
    ({"pretrained_model_name_or_path": "  pretrained_model_name_or_path: openai/gpt-oss-20b"}, "no preset has its sizes. Give --model"),
    ({"pretrained_model_name_or_path": ""}, "model names no model of the hub; give --model"),
    ({"torch_dtype": "  torch_dtype: fp16"}, 'model.torch_dtype is "fp16", which is not done here'),
    ({"strategy": "  strategy: deepspeed"}, 'distributed.strategy is "deepspeed"; it may be fsdp2'),
    ({"strategy": "  strategy: ddp\n  ep_size: 2"}, "distributed.ep_size is 2 beside ddp"),
    ({"dp_size": "  dp_size: 3\n  dp_replicate_size: 2"}, "distributed.dp_size is 3, which dp_replicate_size 2 does not divide"),
    ({"betas": "  betas: 0.9"}, "optimizer.betas is 0.9; it must be two numbers"),
    ({"sequence_parallel": "  ep_size: 3\n  dp_size: 4", "dp_size": ""}, "distributed.ep_size is 3, which does not divide distributed.dp_size 4"),
    ({"lr_decay_style": "  lr_decay_style: inverse-square-root"}, 'lr_scheduler.lr_decay_style is "inverse-square-root"'),
    ({"max_steps": ""}, "lr_scheduler.lr_warmup_steps (its default) is a tenth of all steps, whose number follows from the data"),
    ({"min_lr": "  start_wd: 0.1"}, "lr_scheduler.start_wd is asked for, which is not done here; weight decay is the same in all steps"),
    ({"eps": "  eps: 1e-8\n  unheard_of: 1"}, '"optimizer.unheard_of" is not known here'),
    ({"sequence_parallel": "  activation_checkpointing: some"}, 'distributed.activation_checkpointing is "some"'),
])
def test_what_is_not_done_here_is_refused(reading: Reading, places: Dict[str, str], message: str) -> None:
    reading.refused(changed(**places), message)


@pytest.mark.parametrize("optimizer, message", [
    ("torch.optim.Adam", "optimizer.weight_decay is 0.1 beside Adam"), ("flashoptim.FlashAdamW", 'optimizer._target_ is "FlashAdamW"')])
def test_optimizers_are_refused_by_name(reading: Reading, optimizer: str, message: str) -> None:
    reading.refused(RECIPE.replace("torch.optim.AdamW", optimizer), message)


def test_the_command_line_goes_first(reading: Reading) -> None:
    text = changed(max_steps="", pretrained_model_name_or_path="  config:\n    pretrained_model_name_or_path: deepseek-ai/DeepSeek-V3")
    target = reading.read(text, steps=20, model="llama-tiny", tp_sp__sequence_parallel="true")
    assert target.options["cosine.warmup"] == "2"
    assert not {"steps", "epochs", "model"} & set(target.options)
    assert "model.config.pretrained_model_name_or_path" in "\n".join(target.notes())


def test_all_refusals_are_said_together(reading: Reading) -> None:
    reading.refused(changed(recipe="recipe: FinetuneRecipeForVLM", min_lr="  max_lr: 1", torch_dtype="  torch_dtype: int8"), "3 things are not done here")


def test_a_file_without_a_length_says_so(reading: Reading) -> None:
    remark = "says no length of sequences"
    assert remark in "\n".join(reading.read(changed(seq_length=""), each_key=False).notes())
    assert remark not in "\n".join(reading.read(changed(seq_length=""), sequence=64).notes())


def test_weights_that_are_not_loaded_are_random(reading: Reading) -> None:
    assert reading.read(RECIPE.replace("from_pretrained\n", "from_config\n")).options["from-scratch"] == "true"


def test_a_key_stays_on_its_line(reading: Reading) -> None:
    text = changed(split=r'  "a\tb\nc": 1')
    assert any(line == r"automodel dataset.a\tb\nc 1: no effect here: --dataset and its options say what is trained on" for line in reading.read(text).notes())
    reading.refused(changed(betas=r'  "a\tb": 1'), r'"optimizer.a\tb" is not known here')
