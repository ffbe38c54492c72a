"""The JSON that torchtitan writes of its newer configurations (--debug.save_config_file)."""
from __future__ import annotations

import json
from typing import Any, Dict, Optional

import pytest
from readers.reading import Reading


def linear(inputs: int, outputs: int, **more: Any) -> Dict[str, Any]:
    """A Linear.Config."""
    return {"param_init": {"weight": "functools.partial(...)"}, "sharding_config": None, "in_features": inputs,
            "out_features": outputs, "bias": False, **more}


def layer(index: int, experts: int = 0, wo: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
    """A TransformerBlock.Config of 64 values and 4 heads."""
    rope = {"dim": 16, "max_context_length": 4096, "theta": 500000, "scaling": "llama", "scaling_factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    attention = {"n_heads": 4, "dim": 64, "qk_norm": None, "n_kv_heads": 2, "head_dim": None, "rope": rope,
                 "inner_attention": {"window_size": [-1, 0]}, "wo": wo or linear(64, 64, param_init=f"std={index}"),
                 "qkv_linear": {"head_dim": 16, "n_heads": 4, "n_kv_heads": 2, "wqkv": linear(64, 128)}}
    dense = {"w1": linear(64, 192), "w2": linear(192, 64), "w3": linear(64, 192)}
    moe = {"routed_experts": {"inner_experts": {"num_experts": experts, "hidden_dim": 96}}, "shared_experts": None,
           "router": {"top_k": 2, "route_norm": True, "score_func": "softmax"}}
    return {"attention": attention, "feed_forward": None if experts else dense, "moe": moe if experts else None}


def dump(layers: int = 3, experts: int = 0, **changed: Any) -> Dict[str, Any]:
    """What Trainer.Config.to_dict() makes, in part."""
    model = {"dim": 64, "vocab_size": 1000, "norm": {"eps": 1e-5}, "enable_weight_tying": False,
             "layers": [layer(index, experts) for index in range(layers)]}
    group = {"pattern": ".*", "optimizer_name": "AdamW",
             "optimizer_kwargs": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}}
    tree: Dict[str, Any] = {
        "model_spec": {"name": "llama3", "flavor": "mine", "model": model}, "hf_assets_path": "./x",
        "optimizer": {"param_groups": [group], "implementation": "fused", "optimizer_factory_kwargs_by_name": {}},
        "lr_scheduler": {"warmup_steps": 2, "total_steps": None, "decay_ratio": 0.8, "decay_type": "linear", "min_lr_factor": 0.0},
        "training": {"num_tokens_per_microbatch_per_dp_rank": 4096, "num_tokens_per_train_step": -1, "max_context_length": 1024,
                     "max_norm": 1.0, "steps": 10, "dtype": "float32", "mixed_precision_param": "bfloat16"},
        "parallelism": {"data_parallel_shard_degree": -1, "tensor_parallel_degree": 1, "num_pp_microbatches": 1,
                        "enable_sequence_parallel": True, "pipeline_parallel_schedule": "1F1B"},
        "activation_checkpoint": {"preserve_rng_state": True, "force_recompute_mm_shapes_by_fqns": ["moe.router.gate"]},
        "debug": {"seed": None, "print_config": False}, "override": {"imports": []}, "loss": {"num_chunks": 8}}
    for key, value in changed.items():
        outer, _, inner = key.partition("__")
        if inner:
            tree[outer][inner] = value
        else:
            tree[outer] = value
    return tree


def test_a_dump_becomes_a_configuration(reading: Reading) -> None:
    target = reading.read(json.dumps(dump()))
    model = json.loads(target.options["model"])
    sizes = {"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
             "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 192, "vocab_size": 1000, "max_position_embeddings": 4096}
    assert {key: model[key] for key in sizes} == sizes
    assert model["rope_scaling"]["factor"] == 8.0
    expected = {"sequence": "1024", "batch": "4", "accumulation": "1", "strategy": "zero3-offload", "precision": "bf16",
                "recompute": "rms_norm,swiglu,rope", "optimizer": "adamw", "learning-rate": "0.0003", "weight-decay": "0.1",
                "adamw.beta2": "0.95", "schedule": "wsd", "wsd.decay": "0.8", "wsd.warmup": "1", "steps": "10"}
    assert {option: target.options[option] for option in expected} == expected
    assert "does not write down whether linears are float8" in "\n".join(target.notes())


@pytest.mark.parametrize("changed, expected", [
    ({"activation_checkpoint": None}, {"recompute": "none"}),
    ({"activation_checkpoint": {"preserve_rng_state": True}}, {"recompute": "full"}),
    ({"training__num_tokens_per_train_step": 65536}, {"global-batch": "64"}),
    ({"parallelism__tensor_parallel_degree": 2, "parallelism__enable_sequence_parallel": False},
     {"strategy": "tp-sp=2+zero3-offload", "tp-sp.sequence-parallel": "false"}),
    ({"parallelism__pipeline_parallel_degree": 2, "parallelism__num_pp_microbatches": 8},
     {"strategy": "zero3-offload+pipeline=2", "batch": "4", "accumulation": "8"}),
    ({"debug__seed": 3}, {"seed": "3"}),
    ({"training": {"local_batch_size": 2, "global_batch_size": -1, "seq_len": 512, "steps": 5}}, {"batch": "2", "sequence": "512"}),
])
def test_values_are_honoured(reading: Reading, changed: Dict[str, Any], expected: Dict[str, str]) -> None:
    options = reading.read(json.dumps(dump(**changed))).options
    assert {option: options[option] for option in expected} == expected


def test_mixtures_and_presets(reading: Reading) -> None:
    model = json.loads(reading.read(json.dumps(dump(experts=8))).options["model"])
    assert (model["architectures"], model["num_local_experts"], model["intermediate_size"]) == (["MixtralForCausalLM"], 8, 96)
    tree = dump(layers=32)
    tree["model_spec"]["flavor"] = "8B"
    assert reading.read(json.dumps(tree)).options["model"] == "llama-3.1-8b"
    assert "model" not in reading.read(json.dumps(tree), model="llama-tiny").options


@pytest.mark.parametrize("changed, message", [
    ({"optimizer__param_groups": [{"pattern": "x"}]}, "all parameters have one learning rate"),
    ({"optimizer__implementation": "fused_opt_states_bf16"}, "optimizer.implementation is"),
    ({"training__max_context_length": 1000}, "is 4096, which sequences of max_context_length 1000 do not fill"),
    ({"activation_checkpoint": {"memory_budget": 0.5}}, "has a memory budget"),
    ({"override": {"imports": ["a"]}}, 'override.imports is ["a"]'),
    ({"debug__batch_invariant": True}, "debug.batch_invariant is true"),
    ({"unheard_of": 1}, '"unheard_of" is not known here'),
    ({"model_spec": {"name": "deepseek_v3", "flavor": "16B", "model": {"layers": [{}]}}}, 'is "16B" of "deepseek_v3"'),
    ({"model_spec": {"name": "x"}}, "no decoder with RMSNorm"),
])
def test_what_is_not_done_here_is_refused(reading: Reading, changed: Dict[str, Any], message: str) -> None:
    reading.refused(json.dumps(dump(**changed)), message)


def test_layers_that_differ_or_are_converted_are_refused(reading: Reading) -> None:
    tree = dump()
    layers = tree["model_spec"]["model"]["layers"]
    layers[1] = layer(1, wo=linear(64, 64, rank=8))
    reading.refused(json.dumps(tree), "in all layers alike")
    layers[:] = [layer(index, wo=linear(64, 64, rank=8, alpha=16)) for index in range(3)]
    reading.refused(json.dumps(tree), "in all layers alike")
