"""Accelerate's YAML."""
from __future__ import annotations

from typing import Dict

import pytest
from readers.reading import Reading


def fsdp(keys: str = "", more: str = "") -> str:
    """A file that asks for FSDP."""
    return ("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n"
            f"  fsdp_version: 2\n{keys}{more}")


WHOLE = """# written by accelerate config
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_offload_params: true
  fsdp_reshard_after_forward: true
  fsdp_version: 2
machine_rank: 0
mixed_precision: bf16
num_machines: 1
num_processes: 4
tpu_env: []
use_cpu: false
"""


def test_a_file_becomes_a_configuration(reading: Reading) -> None:
    target = reading.read(WHOLE, model="llama-tiny")
    assert target.options == {
        "strategy": "zero3-offload", "ranks": "4", "precision": "bf16", "recompute": "full",
        "zero3-offload.offload-param.device": "cpu", "zero3-offload.offload-optimizer.device": "cpu",
        "zero3-offload.offload-optimizer.update": "cpu", "zero3-offload.communication-data-type": "bf16",
        "zero3-offload.max-reuse-distance": "0"}
    notes = "\n".join(target.notes())
    for key in ("compute_environment", "debug false", "distributed_type", "downcast_bf16", "fsdp_auto_wrap_policy",
                "fsdp_version 2", "fsdp_activation_checkpointing", "fsdp_offload_params", "fsdp_reshard_after_forward",
                "machine_rank", "num_machines", "tpu_env", "use_cpu"):
        assert key in notes, "passed over in silence"


@pytest.mark.parametrize("keys, distance", [
    ("  fsdp_sharding_strategy: FULL_SHARD\n", "0"), ("  fsdp_sharding_strategy: 1\n", "0"),
    ("  fsdp_reshard_after_forward: true\n", "0"), ("  fsdp_reshard_after_forward: FULL_SHARD\n", "0"),
    ("  fsdp_sharding_strategy: SHARD_GRAD_OP\n", "1000000000000000"), ("  fsdp_sharding_strategy: 2\n", "1000000000000000"),
    ("  fsdp_reshard_after_forward: false\n", "1000000000000000"),
])
def test_resharding_of_both_versions(reading: Reading, keys: str, distance: str) -> None:
    assert reading.read(fsdp(keys)).options["zero3-offload.max-reuse-distance"] == distance


@pytest.mark.parametrize("keys, more, strategy", [
    ("  fsdp_sharding_strategy: NO_SHARD\n", "", "ddp"),
    ("  fsdp_sharding_strategy: HYBRID_SHARD\n", "num_machines: 2\n", "zero3-offload=4+ddp=2"),
    ("  fsdp_sharding_strategy: HYBRID_SHARD\n", "", "zero3-offload"),  # one machine
    ("", "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 2\n"
     "  parallelism_config_tp_size: 2\n", "tp-sp=2+zero3-offload=2+ddp=2"),
    ("", "parallelism_config:\n  parallelism_config_cp_size: 8\n  parallelism_config_cp_comm_strategy: allgather\n",
     "cp=8+zero3-offload"),
])
def test_sizes_are_strategies(reading: Reading, keys: str, more: str, strategy: str) -> None:
    options = reading.read(fsdp(keys, more)).options
    assert options["strategy"] == strategy
    assert options.get("cp.attention", "gather") == "gather"


@pytest.mark.parametrize("kind, more, expected", [
    ("MULTI_GPU", "mixed_precision: 'bf16'\n", {"strategy": "ddp", "ranks": "4", "precision": "bf16"}),
    ("NO", "mixed_precision: no\n", {"ranks": "1", "precision": "fp32"}),  # one process; "no" is a truth value of YAML
    ("'NO'", "mixed_precision: fp8\nfp8_config:\n  backend: TE\n  fp8_format: E4M3\n  amax_history_len: 16\n"
     "  amax_compute_algo: max\n",
     {"precision": "fp8", "fp8.scaling": "delayed", "fp8.amax-history-len": "16", "fp8.gradient-format": "e4m3"}),
    ("NO", "mixed_precision: fp8\nfp8_config:\n  backend: AO\n", {"fp8.scaling": "tensor"}),
    ("MEGATRON_LM", "megatron_lm_config:\n  megatron_lm_tp_degree: 2\n  megatron_lm_pp_degree: 2\n"
     "  megatron_lm_num_micro_batches: 4\n  megatron_lm_use_distributed_optimizer: true\n"
     "  megatron_lm_sequence_parallelism: true\n  megatron_lm_gradient_clipping: 0.5\n",
     {"strategy": "tp-sp=2+zero2+pipeline=2", "zero2.stage": "1", "accumulation": "4", "clip": "0.5",
      "tp-sp.sequence-parallel": "true"}),
])
def test_kinds_and_dtypes(reading: Reading, kind: str, more: str, expected: Dict[str, str]) -> None:
    options = reading.read(f"distributed_type: {kind}\nnum_processes: 4\n{more}").options
    assert {option: options[option] for option in expected} == expected


DEEPSPEED = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 2\ndeepspeed_config:\n"
ULYSSES = "parallelism_config:\n  parallelism_config_sp_size: 2\n"


@pytest.mark.parametrize("text, message", [
    (fsdp("  fsdp_sharding_strategy: SOME\n"), 'fsdp_sharding_strategy is "SOME"'),
    ("distributed_type: MULTI_GPU\nmixed_precision: fp16\n", 'mixed_precision is "fp16"'),
    ("distributed_type: TPU\n", 'distributed_type is "TPU"'),
    ("distributed_type: MULTI_GPU\nmixed_precison: bf16\n", '"mixed_precison" is not known'),
    ("distributed_type: FSDP\ncompute_environment: AMAZON_SAGEMAKER\n", 'compute_environment is "AMAZON_SAGEMAKER"'),
    (DEEPSPEED + "  zero_stage: 3\nparallelism_config:\n  parallelism_config_tp_size: 2\n", "beside distributed_type DEEPSPEED"),
    (DEEPSPEED + "  zero_stage: 2\n  deepspeed_config_file: ds.json\n", "zero_stage stands beside deepspeed_config_file"),
    (DEEPSPEED + "  deepspeed_config_file: none.json\n", "none.json"),
    (DEEPSPEED + "  zero_stage: 4\n", "whole number from 0 to 3"),
    (DEEPSPEED + "  zero_stage: 2\n  offload_param_device: cpu\n", "which needs stage 3"),
    (DEEPSPEED + "  zero_stage: 2\n  offload_optimizer_device: nvme\n", 'here it may be "cpu" or "none"'),
    (DEEPSPEED.replace("bf16", "fp16") + "  zero_stage: 2\n", 'mixed_precision is "fp16"'),
    (fsdp("", "num_processes: [1]\n").replace("num_processes: 8\n", ""), "num_processes is [1]; it must be a number"),
    (fsdp("", "num_processes: 1.5\n").replace("num_processes: 8\n", ""), "must be a whole number"),
    (fsdp("", "num_processes: 99999999999999999999\n").replace("num_processes: 8\n", ""), "num_processes"),
])
def test_what_is_not_done_here_is_refused(reading: Reading, text: str, message: str) -> None:
    reading.refused(text, message)


def test_deepspeed_inline(reading: Reading) -> None:
    target = reading.read(DEEPSPEED + "  zero_stage: 3\n  offload_optimizer_device: cpu\n  offload_param_device: none\n"
                          "  gradient_accumulation_steps: 4\n  gradient_clipping: 0.5\n  zero3_init_flag: true\n")
    assert target.options == {
        "ranks": "2", "precision": "bf16", "strategy": "zero3-offload", "zero3-offload.offload-optimizer.device": "cpu",
        "zero3-offload.overlap-comm": "true", "zero3-offload.reduce-bucket-size": "500000000",
        "zero3-offload.sub-group-size": "1000000000", "accumulation": "4", "clip": "0.5"}
    notes = "\n".join(target.notes())
    for key in ("zero_stage", "offload_param_device", "zero3_init_flag", "more exact than DeepSpeed's default"):
        assert key in notes
    options = reading.read(DEEPSPEED + "  zero_stage: 3\n" + ULYSSES).options
    assert (options["strategy"], options["cp.attention"]) == ("cp=2+zero3-offload", "ulysses")
    options = reading.read(DEEPSPEED + "  zero_stage: 1\n").options
    assert (options["strategy"], options["zero2.stage"], options["clip"]) == ("zero2", "1", "0")


def test_deepspeed_by_a_file(reading: Reading) -> None:
    file = reading.folder / "ds.json"
    file.write_text('{"zero_optimization": {"stage": 2}, // a remark\n"bf16": {"enabled": "auto"},}')
    text = DEEPSPEED + "  deepspeed_config_file: ds.json\n"
    target = reading.read(text)
    assert target.options == {"ranks": "2", "precision": "bf16", "deepspeed-config": str(file)}, "auto follows mixed_precision"
    assert reading.read(text + ULYSSES).options["strategy"] == "cp=2+zero2"
    file.write_text('{"bf16": {"enabled": false}}')
    assert "precision" not in reading.read(text).options, "the file of DeepSpeed's says it"
    file.write_text("[1]")
    reading.refused(text, "is no JSON object")


def test_deepspeed_itself_is_left_to_the_program(reading: Reading) -> None:
    target = reading.read('{"zero_optimization": {"stage": 2}}')
    assert target.source.format == "deepspeed"
    assert target.options == {"deepspeed-config": str(reading.folder / "file")}
