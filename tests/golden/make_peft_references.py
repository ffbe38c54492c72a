#!/usr/bin/env python3
"""Writes tests/golden/hf/<model>/peft/: LoRA on the tiny models, trained by PEFT, PyTorch and transformers.

Usage: make_peft_references.py     (needs tests/golden/requirements.txt and the folders that make_hf_references.py makes)

Each folder holds the adapter as PEFT initialises and saves it (adapter_config.json, adapter_model.safetensors in f32), and
reference.json:

  options          what Consist is given: rank, alpha and targets
  losses           mean cross-entropy of each of five steps, before its update
  grad_norms       global gradient norm of the adapter's parameters in each step, before clipping
  max_norm         torch.nn.utils.clip_grad_norm_'s; lies among the norms
  adamw            the hyperparameters; weight decay applies to all of the adapter
  final_weights    of every parameter of the adapter after the five steps: its sum and its sum of squares, added up in f64
  final_loss       of the first batch after the five steps

Batches are those of ../reference.json. Everything is computed in f32 on one CPU thread, with transformers' eager attention.
"""

import json
import pathlib
import statistics

import peft
import torch
import transformers

HF = pathlib.Path(__file__).resolve().parent / "hf"
ADAMW = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1}
RUNS = {
    "llama-untied": {"rank": 4, "alpha": 6, "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]},
    "qwen3-untied": {"rank": 3, "alpha": 12, "targets": ["q_proj", "v_proj"]},
}


def loss_of(model, batch):
    logits = model(input_ids=batch[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))


def train(model, batches, max_norm):
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=ADAMW["lr"], betas=(ADAMW["beta1"], ADAMW["beta2"]), eps=ADAMW["epsilon"],
                                  weight_decay=ADAMW["weight_decay"])
    losses, norms = [], []
    for batch in batches:
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(trained, max_norm).item())
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def adapted(name, options, seed):
    """The model with the adapter that PEFT begins with, the same each time."""
    base = transformers.AutoModelForCausalLM.from_pretrained(HF / name, dtype=torch.float32, attn_implementation="eager",
                                                             local_files_only=True)
    torch.manual_seed(seed)
    config = peft.LoraConfig(r=options["rank"], lora_alpha=options["alpha"], target_modules=options["targets"], lora_dropout=0.0,
                             bias="none", task_type="CAUSAL_LM")
    return peft.get_peft_model(base, config).eval()


def make(name, options, seed):
    folder = HF / name / "peft"
    folder.mkdir(exist_ok=True)
    batches = [torch.tensor(batch) for batch in json.loads((HF / name / "reference.json").read_text())["batches"]]
    model = adapted(name, options, seed)
    model.base_model.model.config._name_or_path = model.peft_config["default"].base_model_name_or_path = name
    model.save_pretrained(folder, safe_serialization=True)
    (folder / "README.md").unlink(missing_ok=True)
    (folder / "adapter_model.safetensors").chmod(0o644)
    config = json.loads((folder / "adapter_config.json").read_text())
    config["target_modules"] = sorted(config["target_modules"])  # PEFT keeps a set, in an order of its own
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n")

    _, unclipped = train(model, batches, float("inf"))
    max_norm = round(statistics.median(unclipped), 3)
    model = adapted(name, options, seed)
    losses, norms = train(model, batches, max_norm)
    clipped = sum(norm > max_norm for norm in norms)
    if clipped in (0, len(batches)):
        raise SystemExit(f"{name}: {clipped} steps are clipped; choose max_norm among {norms}")
    with torch.no_grad():
        final_loss = loss_of(model, batches[0]).item()
    final = {key.replace(".default.", "."): {"sum": p.detach().double().sum().item(),
                                             "sum_of_squares": p.detach().double().square().sum().item()}
             for key, p in model.named_parameters() if p.requires_grad}
    reference = {
        "made_with": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "peft": peft.__version__,
                      "seed": seed},
        "options": {"rank": str(options["rank"]), "alpha": str(options["alpha"]), "targets": ",".join(options["targets"])},
        "adamw": ADAMW,
        "max_norm": max_norm,
        "losses": losses,
        "grad_norms": norms,
        "final_loss": final_loss,
        "final_weights": final,
    }
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in reference.items())
    (folder / "reference.json").write_text("{\n" + lines + "\n}\n")
    print(f"{name}: losses {losses[0]:.4f} to {losses[-1]:.4f}, then {final_loss:.4f}; norms {min(norms):.3f} to {max(norms):.3f}, "
          f"{clipped} of {len(batches)} steps clipped at {max_norm}")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for seed, (name, options) in enumerate(RUNS.items(), start=1):
        make(name, options, seed)


if __name__ == "__main__":
    main()
