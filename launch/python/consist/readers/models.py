"""Models of files: a preset's name, or by sizes the text of a config.json, which --model takes."""
from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict

from .target import Sizes

# Presets (models/llama, models/qwen, models/mixtral) that readers name, and what they ask of them.
PRESETS = {
    "llama-2-7b": Sizes(32), "llama-2-13b": Sizes(40), "llama-2-70b": Sizes(80),
    "llama-3-8b": Sizes(32), "llama-3-70b": Sizes(80), "llama-3.1-8b": Sizes(32), "llama-3.1-70b": Sizes(80),
    "llama-3.2-1b": Sizes(16), "llama-3.2-3b": Sizes(28),
    "qwen2.5-0.5b": Sizes(24),
    "qwen3-0.6b": Sizes(28), "qwen3-1.7b": Sizes(28), "qwen3-4b": Sizes(36), "qwen3-8b": Sizes(36),
    "qwen3-14b": Sizes(40), "qwen3-32b": Sizes(64), "qwen3-30b-a3b": Sizes(48, 128), "qwen3-235b-a22b": Sizes(94, 128),
}


@dataclass(frozen=True)
class ModelBySizes:
    """Sizes of a decoder of the kind that there is (models/): RMSNorm, rotary embedding, SwiGLU."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    positions: int
    rope_theta: float = 10000.0
    tied: bool = False
    qk_norm: bool = False  # of queries and keys, as Qwen3 has it
    qkv_bias: bool = False  # as Qwen2 has it
    norm_epsilon: float = 1e-5
    initializer_range: float = 0.02
    rope_factor: float = 0.0  # of Llama 3.1's scaling of frequencies; 0: none
    experts: int = 0  # of every layer; 0: dense
    choices: int = 0
    expert_ffn: int = 0
    normalized_choices: bool = True  # weights of a token's choices are divided by their sum
    balance: float = 0.0  # weight of the balance loss; 0: none

    @property
    def sizes(self) -> Sizes:
        """What readers ask of the model."""
        return Sizes(self.layers, self.experts)

    @property
    def _is_mixtral(self) -> bool:
        return self.experts > 0 and not self.qk_norm

    def why_not(self) -> str:
        """The reason why there is no such model here; '' if there is one."""
        if self._is_mixtral and not self.normalized_choices:
            return "experts whose weights are not divided by their sum, without a norm of queries and keys"
        if self.experts > 0 and self.qkv_bias:
            return "experts together with biases on q, k and v"
        return "a norm of queries and keys together with biases on them" if self.qk_norm and self.qkv_bias else ""

    def config_json(self) -> str:
        """One line of JSON: a config.json of Llama, Qwen2, Qwen3, Qwen3's mixture or Mixtral. Needs why_not() == ''."""
        mixtral = self._is_mixtral
        architecture = ("MixtralForCausalLM" if mixtral else "Qwen3MoeForCausalLM" if self.experts > 0
                        else "Qwen3ForCausalLM" if self.qk_norm else "Qwen2ForCausalLM" if self.qkv_bias
                        else "LlamaForCausalLM")
        config: Dict[str, Any] = {
            "architectures": [architecture], "vocab_size": self.vocabulary, "hidden_size": self.hidden,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads, "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim, "intermediate_size": self.expert_ffn if mixtral else self.ffn,
            "max_position_embeddings": self.positions, "rms_norm_eps": self.norm_epsilon,
            "initializer_range": self.initializer_range, "tie_word_embeddings": self.tied,
            "rope_theta": float(self.rope_theta)}
        if self.rope_factor > 0:
            config["rope_scaling"] = {"rope_type": "llama3", "factor": float(self.rope_factor), "low_freq_factor": 1.0,
                                      "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
        if self.experts > 0:
            config["num_local_experts" if mixtral else "num_experts"] = self.experts
            config.update(num_experts_per_tok=self.choices, router_aux_loss_coef=float(self.balance),
                          output_router_logits=self.balance > 0)
            if not mixtral:
                config.update(moe_intermediate_size=self.expert_ffn, norm_topk_prob=self.normalized_choices)
        return json.dumps(config, separators=(",", ":"))
