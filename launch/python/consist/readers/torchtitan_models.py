"""The models of torchtitan by name and flavor.

Sizes are those of torchtitan/models/*/__init__.py at 238fa99 (the newer layout of files) and of
torchtitan/models/llama/__init__.py at 6a6f755 (the old one, whose test tokenizer has 2,256 words).
"""
from __future__ import annotations

from dataclasses import replace
from typing import Dict, Tuple, Union

from .models import ModelBySizes


def _llama(hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, positions: int, theta: float,
           factor: float = 0) -> ModelBySizes:
    return ModelBySizes(hidden, layers, heads, kv_heads, hidden // heads, ffn, vocabulary, positions, theta,
                        rope_factor=factor)


def _qwen3(hidden: int, layers: int, heads: int, kv_heads: int, ffn: int, vocabulary: int, positions: int, theta: float,
           tied: bool) -> ModelBySizes:
    return ModelBySizes(hidden, layers, heads, kv_heads, 128, ffn, vocabulary, positions, theta, tied=tied,
                        qk_norm=True, norm_epsilon=1e-6)


def _with_experts(model: ModelBySizes, experts: int, ffn: int) -> ModelBySizes:
    """8 experts per token, whose routers are balanced by a bias instead of a loss."""
    return replace(model, experts=experts, choices=8, expert_ffn=ffn)


Flavors = Dict[Tuple[str, str], Union[str, ModelBySizes]]

FLAVORS: Flavors = {
    ("llama3", "debugmodel"): _llama(256, 6, 16, 16, 768, 2048, 131072, 500000, 8),
    ("llama3", "8B"): "llama-3.1-8b",
    ("llama3", "70B"): "llama-3.1-70b",
    ("llama3", "405B"): _llama(16384, 126, 128, 8, 53248, 128256, 131072, 500000, 8),
    ("qwen3", "debugmodel"): _qwen3(256, 8, 16, 8, 3072, 2048, 4096, 1e6, True),
    **{("qwen3", size): f"qwen3-{size.lower()}" for size in ("0.6B", "1.7B", "4B", "8B", "14B", "32B")},
    ("qwen3", "debugmodel_moe"): _with_experts(_qwen3(256, 8, 16, 8, 3072, 2048, 4096, 1e6, False), 64, 768),
    ("qwen3", "30B-A3B"): _with_experts(_qwen3(2048, 48, 32, 4, 6144, 151936, 262144, 1e6, False), 128, 768),
    ("qwen3", "235B-A22B"): _with_experts(_qwen3(4096, 94, 64, 4, 12288, 151936, 4096, 5e6, False), 128, 1536),
}

# The layout without [parallelism], whose Llama 3 had no scaling of frequencies.
OLD_FLAVORS: Flavors = {
    ("llama2", "debugmodel"): _llama(256, 8, 16, 16, 768, 2256, 2048, 10000),
    ("llama2", "271M"): _llama(1024, 16, 8, 8, 2816, 32000, 2048, 10000),
    ("llama2", "1B"): _llama(2048, 18, 16, 16, 5632, 32000, 2048, 10000),
    ("llama2", "7B"): "llama-2-7b",
    ("llama2", "13B"): "llama-2-13b",
    ("llama2", "26B"): _llama(5120, 80, 40, 40, 13824, 32000, 2048, 10000),
    ("llama2", "70B"): "llama-2-70b",
    ("llama3", "debugmodel"): _llama(256, 8, 16, 16, 768, 2256, 2048, 500000),
    ("llama3", "8B"): "llama-3-8b",
    ("llama3", "70B"): "llama-3-70b",
    ("llama3", "405B"): _llama(16384, 126, 128, 8, 53248, 128256, 8192, 500000),
}


def known_flavors(flavors: Flavors) -> str:
    """A list for messages: "llama3 8B, llama3 70B, ..."."""
    return ", ".join(f"{model} {flavor}" for model, flavor in flavors)
