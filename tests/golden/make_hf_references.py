#!/usr/bin/env python3
"""Makes hf/<name>/: tiny random models and what PyTorch and transformers compute from them, for parity tests.

Usage: make_hf_references.py [--out FOLDER]     (default: hf/ beside this file)

Each folder holds config.json and model.safetensors (f32) as `save_pretrained` writes them, and reference.json:

  batches          5 batches of 2 rows of 33 token ids; a step trains on row[:32] with row[1:] as targets
  losses           mean cross-entropy of each of five steps, before its update
  aux_losses       only of mixtures whose config.json has output_router_logits or router_z_loss_coef: of each step the load balancing
                   loss times router_aux_loss_coef, the mean of logsumexp(router logits)^2 times router_z_loss_coef, or their sum,
                   which is trained on beside the cross-entropy
  grad_norms       global gradient norm of each step, before clipping
  max_norm         torch.nn.utils.clip_grad_norm_'s; lies among the norms, so that some steps are clipped and some are not
  adamw            the hyperparameters; weight decay applies to matrices (the embedding included), not to norms and biases
  final_weights    of every parameter after the five steps: its sum and its sum of squares, added up in f64

Everything is computed in f32 on one CPU thread, with transformers' eager attention. The same versions (requirements.txt) give the same bytes.
"""

import argparse
import json
import pathlib
import statistics

import torch
import transformers
from transformers import (DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM)

STEPS, ROWS, SEQUENCE = 5, 2, 32
ADAMW = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1}
LARGEST_FILE = 300_000  # bytes: these files live in the repository

LLAMA3_SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                  "original_max_position_embeddings": 64}  # short enough to bend the frequencies of 32 positions


def llama(**sizes):
    return LlamaForCausalLM, LlamaConfig(rms_norm_eps=1e-5, max_position_embeddings=128, num_hidden_layers=2, bos_token_id=1, eos_token_id=2, **sizes)


def qwen3(**sizes):
    return Qwen3ForCausalLM, Qwen3Config(rms_norm_eps=1e-6, max_position_embeddings=128, num_hidden_layers=2, rope_theta=1e6, bos_token_id=1,
                                         eos_token_id=2, **sizes)


def qwen2(**sizes):
    return Qwen2ForCausalLM, Qwen2Config(rms_norm_eps=1e-6, max_position_embeddings=128, num_hidden_layers=2, rope_theta=1e6, bos_token_id=1,
                                         eos_token_id=2, **sizes)


def qwen3_moe(**sizes):
    return Qwen3MoeForCausalLM, Qwen3MoeConfig(rms_norm_eps=1e-6, max_position_embeddings=128, rope_theta=1e6, bos_token_id=1, eos_token_id=2, **sizes)


def mixtral(**sizes):
    return MixtralForCausalLM, MixtralConfig(rms_norm_eps=1e-5, max_position_embeddings=128, num_hidden_layers=2, bos_token_id=1, eos_token_id=2, **sizes)


def gemma3(**sizes):
    return Gemma3ForCausalLM, Gemma3TextConfig(rms_norm_eps=1e-6, max_position_embeddings=128, bos_token_id=2, eos_token_id=1, **sizes)


def deepseek2(**sizes):
    return DeepseekV2ForCausalLM, DeepseekV2Config(rms_norm_eps=1e-5, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, **sizes)


def deepseek3(**sizes):
    return DeepseekV3ForCausalLM, DeepseekV3Config(rms_norm_eps=1e-5, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, **sizes)


# Odd vocabularies and channels that are no multiples of a vector register are on purpose.
MODELS = {
    "llama-untied": llama(vocab_size=101, hidden_size=32, intermediate_size=56, num_attention_heads=4, num_key_value_heads=2,
                          tie_word_embeddings=False),
    "llama-tied": llama(vocab_size=96, hidden_size=40, intermediate_size=64, num_attention_heads=4, num_key_value_heads=4,
                        tie_word_embeddings=True),
    "llama-rope-scaled": llama(vocab_size=96, hidden_size=48, intermediate_size=72, num_attention_heads=3, num_key_value_heads=3,
                               rope_theta=10000.0, rope_scaling=LLAMA3_SCALING, tie_word_embeddings=False),
    "qwen3-tied": qwen3(vocab_size=107, hidden_size=48, intermediate_size=68, num_attention_heads=7, num_key_value_heads=1, head_dim=12,
                        tie_word_embeddings=True),
    "qwen3-untied": qwen3(vocab_size=96, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                          tie_word_embeddings=False),
    "qwen2.5-bias": qwen2(vocab_size=99, hidden_size=56, intermediate_size=60, num_attention_heads=7, num_key_value_heads=1,
                          tie_word_embeddings=True),
    # A pad token that occurs in the data: its row of the embedding gets no gradient (padding_idx), the LM head's does.
    "llama-padded": llama(vocab_size=64, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2,
                          tie_word_embeddings=False, pad_token_id=5),
    "qwen3-padded": qwen3(vocab_size=64, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
                          tie_word_embeddings=True, pad_token_id=-1),
    # Its second layer sees 7 positions.
    "qwen2.5-window": qwen2(vocab_size=64, hidden_size=48, intermediate_size=56, num_attention_heads=6, num_key_value_heads=2,
                            tie_word_embeddings=False, use_sliding_window=True, sliding_window=7, max_window_layers=1),
    # Experts in the first and the last layer, trained to be balanced.
    "qwen3-moe": qwen3_moe(vocab_size=67, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                           head_dim=8, num_experts=8, num_experts_per_tok=4, moe_intermediate_size=16, norm_topk_prob=True, mlp_only_layers=[1],
                           output_router_logits=True, router_aux_loss_coef=0.1, tie_word_embeddings=False),
    # Its routers train on the z-loss, which transformers has for Switch Transformers alone (router_z_loss_func).
    "mixtral": mixtral(vocab_size=64, hidden_size=32, intermediate_size=24, num_attention_heads=4, num_key_value_heads=2, num_local_experts=4,
                       num_experts_per_tok=2, tie_word_embeddings=False, router_z_loss_coef=0.05),
    # Of a plugin in tests/external. The third of its layers sees all positions; scores are not divided by the root of head_dim; a pad token.
    "gemma3": gemma3(vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=12,
                     query_pre_attn_scalar=20, sliding_window=7, pad_token_id=0,
                     layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]),
    # Of another one there: latent attention, whose values have fewer channels than keys, a dense layer, and experts beside a shared one.
    "deepseek-v2": deepseek2(vocab_size=96, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, q_lora_rank=None,
                             kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=10, first_k_dense_replace=1, n_routed_experts=4,
                             num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=16, routed_scaling_factor=1.5),
    # Queries of low rank, values with more channels than keys, every layer dense, more positions than 16 by YaRN.
    "deepseek-v3": deepseek3(vocab_size=96, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
                             q_lora_rank=20, kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=6, v_head_dim=16, first_k_dense_replace=2,
                             rope_scaling={"rope_type": "yarn", "factor": 8.0, "beta_fast": 4.0, "beta_slow": 0.1, "mscale": 0.7, "mscale_all_dim": 1.0,
                                           "original_max_position_embeddings": 16}),
    # Experts in groups, chosen by sigmoids and a bias, in all layers but the first.
    "deepseek-v3-experts": deepseek3(vocab_size=96, hidden_size=32, intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4,
                                     q_lora_rank=20, kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=10, first_k_dense_replace=1,
                                     n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=16,
                                     norm_topk_prob=True, routed_scaling_factor=2.5),
}


def randomise(model, generator):
    """Values that make every weight matter: transformers' own start norms at 1, biases at 0 and logits near 0."""
    scale = getattr(model.model.embed_tokens, "embed_scale", 1)  # Gemma's; its norms multiply by 1 + weight
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 2:
                spread = 0.15 if "embed_tokens" not in name else 0.3 if scale == 1 else 0.08
                weight.copy_(torch.randn(weight.shape, generator=generator) * spread)
            elif name.endswith(".bias"):
                weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
            else:
                weight.copy_((0.5 if scale == 1 else -0.5) + torch.rand(weight.shape, generator=generator))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):  # not negative: what transformers takes for experts of other groups is 0
                buffer.copy_(torch.rand(buffer.shape, generator=generator) * 0.2)


def batches_of(config, generator):
    batches = [torch.randint(0, config.vocab_size, (ROWS, SEQUENCE + 1), generator=generator) for _ in range(STEPS)]
    if config.pad_token_id is not None:  # every fifth token or so
        for batch in batches:
            batch[torch.rand(batch.shape, generator=generator) < 0.2] = config.pad_token_id % config.vocab_size
    return batches


def train(model, batches, max_norm):
    """Five steps from the model's present weights; returns losses, losses of routers (none if the model trains on none) and gradient norms. The model keeps the final weights."""
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": ADAMW["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["epsilon"])
    balance = model.config.router_aux_loss_coef if getattr(model.config, "output_router_logits", False) else 0
    z = getattr(model.config, "router_z_loss_coef", 0)
    losses, of_routers, norms = [], [], []
    for batch in batches:
        optimizer.zero_grad()
        output = model(input_ids=batch[:, :-1], use_cache=False, **({"output_router_logits": True} if z else {}))
        logits = output.logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))
        of_router = None
        if balance:
            of_router = balance * output.aux_loss
        if z:
            of_z = z * torch.logsumexp(torch.cat(output.router_logits), dim=-1).square().mean()
            of_router = of_z if of_router is None else of_router + of_z
        (loss if of_router is None else loss + of_router).backward()
        if of_router is not None:
            of_routers.append(of_router.item())
        # PyTorch skips a parameter without a gradient, weight decay included; transformers 4 gives none to an expert without tokens.
        if any(p.grad is None for p in model.parameters()):
            raise SystemExit("an expert has no tokens in a step; choose other sizes")
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, of_routers, norms


def make(name, folder, seed):
    generator = torch.Generator().manual_seed(seed)
    model_class, config = MODELS[name]
    config._attn_implementation = "eager"
    model = model_class(config).to(torch.float32).eval()  # eval: no dropout; gradients flow all the same
    randomise(model, generator)
    start = {key: value.clone() for key, value in model.state_dict().items()}
    batches = batches_of(config, generator)

    for file in ("config.json", "model.safetensors", "reference.json"):  # optimizers.json is another script's
        (folder / file).unlink(missing_ok=True)
    model.generation_config.pad_token_id = None  # saving refuses a negative one there; the file is deleted below
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "model.safetensors").chmod(0o644)  # it is written for its owner only
    size = (folder / "model.safetensors").stat().st_size
    if size > LARGEST_FILE:
        raise SystemExit(f"{name}: model.safetensors has {size} bytes, more than {LARGEST_FILE}")

    _, _, unclipped = train(model, batches, float("inf"))
    max_norm = round(statistics.median(unclipped), 3)
    model.load_state_dict(start)
    losses, of_routers, norms = train(model, batches, max_norm)
    clipped = sum(norm > max_norm for norm in norms)
    if clipped in (0, STEPS):
        raise SystemExit(f"{name}: {clipped} of {STEPS} steps are clipped; choose max_norm among {norms}")

    final = {key: {"sum": p.detach().double().sum().item(), "sum_of_squares": p.detach().double().square().sum().item()}
             for key, p in model.named_parameters()}
    reference = {
        "made_with": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "seed": seed},
        "adamw": ADAMW,
        "max_norm": max_norm,
        "losses": losses,
        **({"aux_losses": of_routers} if of_routers else {}),
        "grad_norms": norms,
        "final_weights": final,
        "batches": [batch.tolist() for batch in batches],
    }
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in reference.items())
    (folder / "reference.json").write_text("{\n" + lines + "\n}\n")
    print(f"{name}: {size} bytes, losses {losses[0]:.4f} to {losses[-1]:.4f}, norms {min(norms):.3f} to {max(norms):.3f}, "
          f"{clipped} of {STEPS} steps clipped at {max_norm}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "hf")
    out = parser.parse_args().out
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for seed, name in enumerate(MODELS, start=1):
        make(name, out / name, seed)


if __name__ == "__main__":
    main()
