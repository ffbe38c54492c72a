#!/usr/bin/env python3
"""Makes hf/<name>/masks.json: what PyTorch and transformers compute with loss masks and documents, for parity tests.

Usage: make_mask_references.py     (after make_hf_references.py, whose models and batches it takes)

  loss_mask        [step][row][32]: 0 where the target behind the token counts nothing; the loss is the mean over the others of a step
  document_start   [step][row][32]: the position at which the token's document starts; attention sees nothing in front of it, and
                   transformers is given positions that begin anew in each document
  mask, documents, both
                   losses and grad_norms of five steps with the one, the other and both

Everything else is as make_hf_references.py says.
"""

import json
import pathlib

import torch
import transformers
from transformers import AutoModelForCausalLM

NAMES = ["llama-untied", "qwen3-tied"]
HERE = pathlib.Path(__file__).resolve().parent / "hf"


def fields_of(batches, generator):
    masks, starts = [], []
    for batch in batches:
        rows, length = batch.shape[0], batch.shape[1] - 1
        masks.append((torch.rand((rows, length), generator=generator) < 0.6).int())
        begins = torch.rand((rows, length), generator=generator) < 0.15
        begins[:, 0] = True
        positions = torch.arange(length).expand(rows, length)
        starts.append(torch.where(begins, positions, 0).cummax(dim=1).values.int())
    return masks, starts


def attention_mask_of(start):
    """[rows, 1, length, length], added to scores: a token sees its document up to itself."""
    length = start.shape[1]
    query, key = torch.arange(length)[:, None], torch.arange(length)[None, :]
    seen = (key <= query)[None] & (key[None] >= start[:, :, None])
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]


def train(folder, reference, batches, masks, starts):
    """Five steps; losses and gradient norms. `masks` or `starts` may be None."""
    adamw = reference["adamw"]
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", torch_dtype=torch.float32).eval()
    groups = [{"params": [p for p in model.parameters() if p.ndim == 2], "weight_decay": adamw["weight_decay"]},
              {"params": [p for p in model.parameters() if p.ndim != 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=adamw["lr"], betas=(adamw["beta1"], adamw["beta2"]), eps=adamw["epsilon"])
    losses, norms = [], []
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        inputs = {"input_ids": batch[:, :-1], "use_cache": False}
        if starts is not None:
            inputs["attention_mask"] = attention_mask_of(starts[step])
            inputs["position_ids"] = torch.arange(batch.shape[1] - 1)[None] - starts[step]
        logits = model(**inputs).logits
        targets = batch[:, 1:].clone()
        if masks is not None:
            targets[masks[step] == 0] = -100
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-100)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), reference["max_norm"]).item())
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "grad_norms": norms}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for seed, name in enumerate(NAMES, start=101):
        folder = HERE / name
        reference = json.loads((folder / "reference.json").read_text())
        batches = [torch.tensor(batch) for batch in reference["batches"]]
        masks, starts = fields_of(batches, torch.Generator().manual_seed(seed))
        result = {
            "made_with": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "seed": seed},
            "mask": train(folder, reference, batches, masks, None),
            "documents": train(folder, reference, batches, None, starts),
            "both": train(folder, reference, batches, masks, starts),
            "loss_mask": [mask.tolist() for mask in masks],
            "document_start": [start.tolist() for start in starts],
        }
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items())
        (folder / "masks.json").write_text("{\n" + lines + "\n}\n")
        print(f"{name}: " + ", ".join(f"{key} {result[key]['losses'][0]:.4f}" for key in ("mask", "documents", "both")))


if __name__ == "__main__":
    main()
