"""Experiments of AMD Primus. Presets have the names, the keys and the layers of those at fd1eeab, with sizes of their own."""
from __future__ import annotations

from pathlib import Path
from typing import Dict

import pytest
from readers.reading import Reading

PRESETS = {
    "modules/module_base.yaml": "trainable: false\nsink_level: null\n",
    "modules/megatron/trainer_base.yaml": """extends:
  - ../module_base.yaml
micro_batch_size: 2
global_batch_size: 128
train_iters: null
bf16: true
fp8: null
fp8_recipe: delayed
fp8_amax_history_len: 16
fp8_amax_compute_algo: max
optimizer: adam
lr: 2.5e-4
min_lr: 2.5e-5
lr_decay_style: cosine
lr_warmup_iters: 0
lr_warmup_samples: 0
weight_decay: 0.01
adam_beta2: 0.95
clip_grad: 1.0
seed: 1234
use_distributed_optimizer: false
grpo_group_size: 2
dino_head_hidden_size: 2048
enable_odc: false
""",
    "modules/megatron/pre_trainer.yaml": "extends: trainer_base.yaml\ntrain_iters: 1000\nseq_length: 1024\nuse_distributed_optimizer: true\n",
    "models/megatron/language_model.yaml": """model_type: gpt
normalization: LayerNorm
add_bias_linear: false
swiglu: true
hidden_dropout: 0.1
attention_dropout: 0.1
position_embedding_type: learned_absolute
group_query_attention: false
num_query_groups: null
num_experts: null
multi_latent_attention: false
tensor_model_parallel_size: 1
pipeline_model_parallel_size: 1
sequence_parallel: true
retro_encoder_layers: 2
""",
    "models/megatron/llama_base.yaml": """extends:
  - language_model.yaml
normalization: RMSNorm
position_embedding_type: rope
hidden_dropout: 0.0
attention_dropout: 0.0
untie_embeddings_and_output_weights: true
rotary_base: 500000
rotary_scaling_factor: 40
""",
    "models/megatron/llama3_tiny.yaml": """extends:
  - llama_base.yaml
tokenizer_type: HuggingFaceTokenizer
tokenizer_model: meta-llama/Meta-Llama-3-8B
num_layers: 4
hidden_size: 128
ffn_hidden_size: 256
num_attention_heads: 4
group_query_attention: true
num_query_groups: 2
max_position_embeddings: 8192
""",
    "models/megatron/mamba_tiny.yaml": "extends: llama_base.yaml\nmodel_type: mamba\nmamba_unheard_of: 3\nretro_encoder_layers: 5\n",
    "models/megatron/round.yaml": "extends: round.yaml\n",
    "modules/torchtitan/pre_trainer.yaml": """extends:
  - ../module_base.yaml
lr_scheduler:
  warmup_steps: 200
  decay_ratio: null
optimizer:
  name: AdamW
  lr: 0.0008
training:
  mock_data: true
  local_batch_size: 8
  seq_len: 2048
  steps: 10000
parallelism:
  data_parallel_shard_degree: -1
fault_tolerance:
  enable: false
  group_size: 0
experimental:
  custom_args_module: "primus.backends.torchtitan.primus_turbo_extensions.config_extension"
primus_turbo:
  enable_primus_turbo: true
  enable_attention_float8: false
""",
    "models/torchtitan/llama3.1_8B.yaml": """job:
  dump_folder: "./outputs"
model:
  name: "llama3"
  flavor: "8B"
  converters:
    - primus_turbo
""",
}
EXPERIMENT = """work_group: ${PRIMUS_TEAM:amd}
exp_name: ${PRIMUS_EXP_NAME:tiny}
workspace: ./output
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: ${PRIMUS_MODEL:llama3_tiny}.yaml
    overrides:
      stderr_sink_level: DEBUG
      train_iters: ${STEPS_OF_TEST:50}
      micro_batch_size: 1
      global_batch_size: 16
      lr: 1.0e-5
      min_lr: 0.0
      lr_warmup_iters: 2
      lr_decay_iters: null
      overlap_grad_reduce: true
      mock_data: true
      enable_primus_turbo: true
      use_turbo_attention: false
"""
TITAN = """exp_name: tiny
modules:
  pre_trainer:
    framework: torchtitan
    config: pre_trainer.yaml
    model: llama3.1_8B.yaml
    overrides:
      training:
        local_batch_size: 4
        steps: 50
      activation_checkpoint:
        mode: none
      parallelism:
        tensor_parallel_degree: 2
"""


def check_out(folder: Path) -> None:
    """Makes a checkout of the presets."""
    for name, text in PRESETS.items():
        path = folder / "primus" / "configs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(autouse=True)
def _presets(reading: Reading) -> None:
    check_out(reading.folder)


def overriding(*lines: str) -> str:
    """The experiment with more overrides."""
    return EXPERIMENT + "".join(f"      {line}\n" for line in lines)


def test_an_experiment_becomes_a_configuration(reading: Reading) -> None:
    target = reading.read(EXPERIMENT)
    model = target.options.pop("model")
    assert target.options == {
        "batch": "1", "global-batch": "16", "precision": "bf16", "bf16.gradients": "f32", "strategy": "zero2", "zero2.stage": "1",
        "zero2.overlap-comm": "true", "sequence": "1024", "optimizer": "adamw", "weight-decay": "0.01", "clip": "1", "adamw.beta1": "0.9",
        "adamw.beta2": "0.95", "adamw.epsilon": "1e-08", "seed": "1234", "steps": "50", "learning-rate": "1e-05", "schedule": "cosine",
        "cosine.warmup": "2", "cosine.warmup-from": "0", "cosine.final-rate": "0", "recompute": "none"}
    for part in ('"LlamaForCausalLM"', '"vocab_size":128256', '"num_key_value_heads":2', '"rope_theta":500000.0'):
        assert part in model
    notes = "\n".join(target.notes())
    for line in ("train_iters 50: --steps 50", 'tokenizer_model "meta-llama/Meta-Llama-3-8B": a size of --model', "enable_primus_turbo true: no effect here",
                 "values of Primus' own presets, which nothing changes, have no effect here", "rotary_scaling_factor 40: no effect here"):
        assert line in notes, line
    assert "grpo" not in notes and "retro" not in notes and "dino" not in notes


def test_variables_are_those_of_the_environment(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPS_OF_TEST", "70")
    target = reading.read(EXPERIMENT)
    assert target.options["steps"] == "70"
    assert '${STEPS_OF_TEST} is "70", as the environment has it' in "\n".join(target.notes())
    reading.refused(EXPERIMENT.replace("${STEPS_OF_TEST:50}", "${NOT_SET_BY_TEST}"), "${NOT_SET_BY_TEST} is a variable of the environment, which is not set")


@pytest.mark.parametrize("lines, expected", [
    (["fp8: hybrid"], {"precision": "fp8", "fp8.scaling": "delayed", "fp8.amax-history-len": "16"}),
    (["tensor_model_parallel_size: 2", "pipeline_model_parallel_size: 2"], {"strategy": "tp-sp=2+zero2+pipeline=2", "tp-sp.sequence-parallel": "true"}),
    (["use_torch_fsdp2: true", "use_distributed_optimizer: false"], {"strategy": "zero3-offload"}),
    (["recompute_granularity: full", "recompute_method: block", "recompute_num_layers: 2"], {"recompute-layers": "0-1"}),
    (["qk_layernorm: true"], {"strategy": "zero2"}),
    (["num_experts: 8", "moe_router_force_load_balancing: true"], {"expert-load": "balanced"}),
])
def test_values_are_honoured(reading: Reading, lines: "list[str]", expected: Dict[str, str]) -> None:
    options = reading.read(overriding(*lines)).options
    assert {option: options[option] for option in expected} == expected
    assert ("Qwen3" in options["model"]) == (lines == ["qk_layernorm: true"])


@pytest.mark.parametrize("text, message", [
    (overriding("use_precision_aware_optimizer: true"), "use_precision_aware_optimizer is asked for"),
    (overriding("unheard_of: 1"), '"unheard_of" is not known here; --from-set unheard_of=null leaves it out'),
    (overriding("enable_odc: true"), "enable_odc is asked for"),
    (overriding("multi_latent_attention: true"), "multi_latent_attention is asked for"),
    (EXPERIMENT.replace("llama3_tiny", "mamba_tiny"), 'model_type is "mamba"'),
    (EXPERIMENT.replace("llama3_tiny", "mamba_tiny"), '"mamba_unheard_of" is not known here'),
    (EXPERIMENT.replace("llama3_tiny", "mamba_tiny"), '"retro_encoder_layers" is not known here'),
    (EXPERIMENT.replace("llama3_tiny", "none"), 'needs the preset "models/megatron/none.yaml", which is not in'),
    (EXPERIMENT.replace("llama3_tiny", "round"), "or extends itself"),
    (EXPERIMENT.replace("${PRIMUS_MODEL:llama3_tiny}", "../../../../secret"), "which is not in"),
    (EXPERIMENT.replace("framework: megatron", "framework: maxtext"), 'modules.pre_trainer.framework is "maxtext", which is not done here; it may be megatron, torchtitan'),
    (EXPERIMENT.replace("framework: megatron", "framework: megatron_bridge"), 'framework is "megatron_bridge"'),
    (EXPERIMENT.replace("pre_trainer:", "post_trainer:"), "modules has post_trainer; one pre_trainer is done"),
    (EXPERIMENT.replace("config: pre_trainer.yaml", "config: 3"), "modules.pre_trainer.config is 3; it must be the name of a preset"),
    ("extends: [other.yaml]\n" + EXPERIMENT, "extends lays this file over another"),
])
def test_what_is_not_done_here_is_refused(reading: Reading, text: str, message: str) -> None:
    reading.refused(text, message)


def test_values_are_replaced_by_the_names_of_overrides(reading: Reading) -> None:
    assert reading.read(EXPERIMENT, "train_iters=7", "tensor_model_parallel_size=2").options["steps"] == "7"


def test_tables_of_torchtitan_are_read(reading: Reading) -> None:
    target = reading.read(TITAN)
    expected = {"model": "llama-3.1-8b", "strategy": "tp-sp=2+zero3-offload", "batch": "4", "sequence": "2048", "steps": "50", "schedule": "wsd",
                "recompute": "none", "learning-rate": "0.0008"}
    assert {option: target.options[option] for option in expected} == expected
    notes = "\n".join(target.notes())
    for line in ("primus_turbo.enable_primus_turbo true: no effect here", "fault_tolerance.group_size 0: no effect here", "lr_scheduler.decay_ratio null"):
        assert line in notes, line
    reading.refused(TITAN + "      primus_turbo:\n        enable_attention_float8: true\n", "primus_turbo.enable_attention_float8 is true")
    reading.refused(TITAN.replace("mode: none", "mode: some"), "activation_checkpoint.mode is \"some\"")


def test_without_a_checkout_there_are_no_presets(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, reading: Reading) -> None:
    elsewhere = Reading(tmp_path_factory.mktemp("elsewhere"))
    elsewhere.refused(EXPERIMENT, "modules.pre_trainer.model is a preset of Primus, but there is no primus/configs in a folder above")
    monkeypatch.chdir(reading.folder)
    assert elsewhere.read(EXPERIMENT).options["steps"] == "50"
