"""YAML of Megatron-Bridge. CONTAINER has the keys of a run_config.yaml of version 0.1 with sizes of its own, in part."""
from __future__ import annotations

import re
from typing import Dict

import pytest
from readers.reading import Reading

CONTAINER = """_target_: megatron.bridge.training.config.ConfigContainer
checkpoint:
  _target_: megatron.bridge.training.config.CheckpointConfig
  save: /checkpoints
comm_overlap: null
dataset:
  _target_: megatron.bridge.training.config.GPTDatasetConfig
  sequence_length: 64
  split: 1,1,1
ddp:
  _target_: megatron.bridge.training.config.DistributedDataParallelConfig
  data_parallel_sharding_strategy: no_shard
  grad_reduce_in_fp32: true
  overlap_grad_reduce: true
  overlap_param_gather: true
  use_distributed_optimizer: true
  use_megatron_fsdp: false
dist:
  use_megatron_fsdp: false
  use_torch_fsdp2: false
logger:
  log_interval: 10
mixed_precision:
  _target_: megatron.bridge.training.mixed_precision.MixedPrecisionConfig
  bf16: true
  fp8: null
  fp8_recipe: tensorwise
  grad_reduce_in_fp32: true
  params_dtype:
    _call_: false
    _target_: torch.bfloat16
model:
  _target_: megatron.bridge.models.llama.llama_provider.Llama31ModelProvider
  activation_func:
    _call_: false
    _target_: torch.nn.functional.silu
  add_bias_linear: false
  add_qkv_bias: false
  attention_dropout: 0.0
  context_parallel_size: 1
  ffn_hidden_size: 256
  gated_linear_unit: true
  hidden_dropout: 0.0
  hidden_size: 128
  high_freq_factor: 4.0
  init_method_std: 0.02
  kv_channels: 32
  layernorm_epsilon: 1.0e-05
  low_freq_factor: 1.0
  normalization: RMSNorm
  num_attention_heads: 4
  num_layers: 4
  num_moe_experts: null
  num_query_groups: 2
  old_context_len: 8192
  pipeline_model_parallel_size: 1
  position_embedding_type: rope
  rotary_base: 500000.0
  scale_factor: 32.0
  seq_length: 1024
  sequence_parallel: false
  share_embeddings_and_output_weights: true
  tensor_model_parallel_size: 1
  virtual_pipeline_model_parallel_size: null
  vocab_size: 2048
optimizer:
  adam_beta2: 0.95
  adam_eps: 1.0e-05
  bf16: true
  lr: 0.0004
  min_lr: 0.0001
  optimizer: adam
  weight_decay: 0.1
peft: null
rng:
  seed: 5
scheduler:
  end_weight_decay: 0.033
  lr_decay_iters: 60
  lr_decay_style: cosine
  lr_warmup_iters: 5
  lr_warmup_samples: 0
  start_weight_decay: 0.033
  weight_decay_incr_style: constant
train:
  eval_interval: 100
  exit_signal:
    _args_: [15]
    _call_: true
    _target_: signal.Signals
  global_batch_size: 16
  micro_batch_size: 2
  train_iters: 50
"""
OVER_A_RECIPE = """model:
  tensor_model_parallel_size: 2
  sequence_parallel: true
train:
  train_iters: 20
  global_batch_size: 8
  micro_batch_size: 1
optimizer:
  lr: 1e-4
  min_lr: 1e-5
scheduler:
  lr_warmup_iters: 3
checkpoint:
  save: ???
dataset:
  seq_length: 128
"""


def changed(**places: str) -> str:
    """The container with text in place of the lines "key: ..."; all that have the key."""
    text = CONTAINER
    for key, new in places.items():
        text, count = re.subn(rf"(?m)^ *{key}: .*\n", new, text)
        assert count, key
    return text


def test_a_container_becomes_a_configuration(reading: Reading) -> None:
    target = reading.read(CONTAINER)
    model = target.options.pop("model")
    assert target.options == {
        "batch": "2", "global-batch": "16", "precision": "bf16", "bf16.gradients": "f32", "strategy": "zero2", "zero2.stage": "1",
        "zero2.overlap-comm": "true", "sequence": "64", "optimizer": "adamw", "weight-decay": "0.033", "clip": "1", "adamw.beta1": "0.9",
        "adamw.beta2": "0.95", "adamw.epsilon": "1e-05", "seed": "5", "steps": "50", "learning-rate": "0.0004", "schedule": "cosine",
        "cosine.warmup": "5", "cosine.warmup-from": "0", "cosine.final-rate": "0.25", "cosine.decay-until": "60", "recompute": "none"}
    for part in ('"LlamaForCausalLM"', '"vocab_size":2048', '"num_hidden_layers":4', '"num_key_value_heads":2', '"head_dim":32', '"tie_word_embeddings":true',
                 '"factor":32.0', '"max_position_embeddings":1024', '"rope_theta":500000.0'):
        assert part in model
    notes = "\n".join(target.notes())
    for line in ("optimizer.weight_decay 0.1 is not what is trained with: scheduler.start_weight_decay 0.033 goes before it",
                 "ddp.grad_reduce_in_fp32 true: gradients are added up and sent in fp32", "optimizer.bf16 true: no effect: mixed_precision.bf16 says it",
                 "model.share_embeddings_and_output_weights true: a size of --model", "model.num_query_groups 2: a size of --model",
                 'train.exit_signal "signal.Signals": no effect here', "scheduler.lr_warmup_samples 0: off", "peft null: as if it were absent",
                 'model._target_ "megatron.bridge.models.llama.llama_provider.Llama31ModelProvider": no effect here'):
        assert line in notes, line


FP8 = "  fp8: hybrid\n"
EXPERTS = ("  num_moe_experts: 8\n  moe_router_topk: 2\n  moe_ffn_hidden_size: 128\n  expert_model_parallel_size: 4\n"
           "  moe_aux_loss_coeff: 0.01\n  moe_router_load_balancing_type: aux_loss\n")


@pytest.mark.parametrize("places, expected", [
    ({"tensor_model_parallel_size": "  tensor_model_parallel_size: 2\n", "sequence_parallel": "  sequence_parallel: true\n"},
     {"strategy": "tp-sp=2+zero2", "tp-sp.sequence-parallel": "true"}),
    ({"pipeline_model_parallel_size": "  pipeline_model_parallel_size: 2\n",
      "virtual_pipeline_model_parallel_size": "  virtual_pipeline_model_parallel_size: 2\n"},
     {"strategy": "zero2+pipeline=2", "pipeline.schedule": "interleaved", "pipeline.chunks": "2"}),
    ({"context_parallel_size": "  context_parallel_size: 2\n  cp_comm_type: a2a\n"}, {"strategy": "cp=2+zero2", "cp.attention": "ulysses"}),
    ({"use_distributed_optimizer": "  use_distributed_optimizer: false\n"}, {"strategy": "ddp"}),
    ({"use_torch_fsdp2": "  use_torch_fsdp2: true\n"}, {"strategy": "zero3-offload"}),
    ({"use_megatron_fsdp": "  use_megatron_fsdp: true\n", "data_parallel_sharding_strategy": "  data_parallel_sharding_strategy: optim_grads\n"},
     {"strategy": "zero2", "zero2.stage": "2"}),
    ({"num_moe_experts": EXPERTS}, {"strategy": "ep=4+zero2"}),
    ({"fp8": FP8}, {"precision": "fp8", "fp8.scaling": "tensor", "fp8.gradient-format": "e5m2"}),
    ({"fp8": FP8 + "  first_last_layers_bf16: true\n  num_layers_at_start_in_bf16: 1\n  num_layers_at_end_in_bf16: 2\n"},
     {"fp8.except": "*.layers.0.*,*.layers.2.*,*.layers.3.*"}),
    ({"grad_reduce_in_fp32": "  grad_reduce_in_fp32: false\n"}, {"bf16.gradients": "bf16"}),
    ({"add_bias_linear": "  add_bias_linear: false\n  recompute_granularity: full\n  recompute_method: block\n  recompute_num_layers: 2\n"},
     {"recompute": "full", "recompute-layers": "0-1"}),
    ({"start_weight_decay": "", "end_weight_decay": ""}, {"weight-decay": "0.1"}),
])
def test_values_are_honoured(reading: Reading, places: Dict[str, str], expected: Dict[str, str]) -> None:
    options = reading.read(changed(**places)).options
    assert {option: options.get(option) for option in expected} == expected


@pytest.mark.parametrize("places, message", [
    ({"peft": "peft:\n  _target_: megatron.bridge.peft.lora.LoRA\n  dim: 8\n"}, "peft is asked for, which is not done here; give --adapter lora with its options here"),
    ({"num_moe_experts": "  multi_latent_attention: true\n"}, "model.multi_latent_attention is asked for"),
    ({"gated_linear_unit": "  gated_linear_unit: false\n"}, "model.activation_func is not given; models here are decoders with RMSNorm"),
    ({"normalization": "  normalization: LayerNorm\n"}, "model.normalization is LayerNorm"),
    ({"end_weight_decay": "  end_weight_decay: 0.1\n"}, "scheduler.start_weight_decay is asked for, which is not done here; weight decay is the same"),
    ({"optimizer": "  optimizer: dist_muon\n"}, 'optimizer.optimizer is "dist_muon", which is not done here'),
    ({"kv_channels": "  unheard_of: 1\n"}, '"model.unheard_of" is not known here'),
    ({"low_freq_factor": "  low_freq_factor: 2.0\n"}, "model.low_freq_factor is 2.0"),
    ({"fp8": "  fp4: e2m1\n"}, "mixed_precision.fp4 is asked for, which is not done here; weights and activations of 4 bits"),
    ({"comm_overlap": "inprocess_restart:\n  enabled: true\n"}, "inprocess_restart is asked for"),
    ({"train_iters": "  train_iters: 50\n  rampup_batch_size: [8, 8, 100]\n"}, "train.rampup_batch_size is asked for, which is not done here; the batch is the same"),
])
def test_what_is_not_done_here_is_refused(reading: Reading, places: Dict[str, str], message: str) -> None:
    reading.refused(changed(**places), message)


def test_values_over_a_recipe_have_those_of_most_recipes(reading: Reading) -> None:
    target = reading.read(OVER_A_RECIPE, model="llama-tiny")
    expected = {"strategy": "tp-sp=2+zero2", "batch": "1", "global-batch": "8", "steps": "20", "sequence": "128", "learning-rate": "0.0001",
                "precision": "bf16", "schedule": "cosine", "cosine.warmup": "3", "weight-decay": "0.033", "adamw.beta2": "0.95", "seed": "1234"}
    assert {option: target.options[option] for option in expected} == expected
    notes = "\n".join(target.notes())
    assert "checkpoint.save is ???, which the trainer's command line gives; as if it were absent" in notes
    assert "is laid over a recipe in Python, which is not run" in notes and "mixed_precision bf16_mixed" in notes
    reading.refused(OVER_A_RECIPE, "model is said by the recipe in Python over which these values are laid: give --model, or the run_config.yaml")


@pytest.mark.parametrize("name, expected", [
    ("bf16_with_fp8_current_scaling_mixed", {"precision": "fp8", "fp8.scaling": "tensor", "fp8.gathers": "true", "fp8.except": "*.layers.0.*,*.layers.3.*"}),
    ("bf16_with_fp8_delayed_scaling_mixed", {"fp8.scaling": "delayed", "fp8.amax-history-len": "1024"}),
    ("bf16-mixed", {"precision": "bf16"}),
])
def test_precisions_have_names(reading: Reading, name: str, expected: Dict[str, str]) -> None:
    options = reading.read(f"{OVER_A_RECIPE}mixed_precision: {name}\n", model="llama-tiny").options
    assert {option: options[option] for option in expected} == expected


@pytest.mark.parametrize("name, message", [("fp16_mixed", "fp16 is given: training in fp16"), ("bf16_with_mxfp8_mixed", 'mixed_precision is "bf16_with_mxfp8_mixed"')])
def test_precisions_are_refused_by_name(reading: Reading, name: str, message: str) -> None:
    reading.refused(f"{OVER_A_RECIPE}mixed_precision: {name}\n", message, model="llama-tiny")


def test_recipes_in_python_are_refused_with_a_way_out(reading: Reading) -> None:
    reading.refused("from megatron.bridge.recipes.common import _pretrain_common\n\ndef recipe():\n    return _pretrain_common()\n",
                    "is Python code, which is not run here", "run_config.yaml", "cfg.to_yaml(FILE)")
