#!/usr/bin/env python3
"""Makes hf/<name>/masks.json: what PyTorch and transformers compute with loss masks and documents, for parity tests.

Usage: make_mask_references.py     (after make_hf_references.py, whose models and batches it takes)

  loss_mask        [step][row][32]: 0 where the target behind the token counts nothing; the loss is the mean over the others of a step
  document_start   [step][row][32]: the position at which the token's document starts; attention sees nothing in front of it, and
                   transformers is given positions that begin anew in each document
  mask, documents, both
                   losses and grad_norms of five steps with the one, the other and both
  mask, mask_by_rows
                   the same of a mixture of experts, with aux_losses: what its routers are trained on beside the cross-entropy, of all
                   tokens, whether their targets count or not. By rows, each row is a micro-batch with an auxiliary loss of its own,
                   which has the weight of the row's targets

Everything else is as make_hf_references.py says.
"""

import json
import pathlib

import torch
import transformers
from transformers import AutoModelForCausalLM

NAMES = ["llama-untied", "qwen3-tied"]
MIXTURES = ["qwen3-moe", "mixtral"]
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


def loss_of_routers(model, output):
    """Of a micro-batch; None of a model that trains on none."""
    balance = model.config.router_aux_loss_coef if getattr(model.config, "output_router_logits", False) else 0
    z = getattr(model.config, "router_z_loss_coef", 0)
    losses = []
    if balance:
        losses.append(balance * output.aux_loss)
    if z:
        losses.append(z * torch.logsumexp(torch.cat(output.router_logits), dim=-1).square().mean())
    return sum(losses) if losses else None


def check_own_loss(model, inputs, targets, expected):
    """transformers' own loss of these targets is the cross-entropy and the balance loss of all tokens."""
    if not getattr(model.config, "output_router_logits", False):
        return
    own = model(**inputs, labels=targets, shift_labels=targets).loss.item()
    if abs(own / expected - 1) > 1e-6:
        raise SystemExit(f"transformers' own loss is {own}, not {expected}")


def train(folder, reference, batches, masks, starts, rows=None):
    """Five steps; losses and gradient norms, of mixtures auxiliary losses, too. `masks` or `starts` may be None; `rows` of a micro-batch, else all."""
    adamw = reference["adamw"]
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", torch_dtype=torch.float32).eval()
    groups = [{"params": [p for p in model.parameters() if p.ndim == 2], "weight_decay": adamw["weight_decay"]},
              {"params": [p for p in model.parameters() if p.ndim != 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=adamw["lr"], betas=(adamw["beta1"], adamw["beta2"]), eps=adamw["epsilon"])
    losses, aux_losses, norms = [], [], []
    z = getattr(model.config, "router_z_loss_coef", 0)
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        inputs = {"input_ids": batch[:, :-1], "use_cache": False}
        if starts is not None:
            inputs["attention_mask"] = attention_mask_of(starts[step])
            inputs["position_ids"] = torch.arange(batch.shape[1] - 1)[None] - starts[step]
        if z:
            inputs["output_router_logits"] = True
        targets = batch[:, 1:].clone()
        if masks is not None:
            targets[masks[step] == 0] = -100
        counted = (targets >= 0).sum().item()
        losses.append(0)
        aux_losses.append(0)
        for first in range(0, batch.shape[0], rows or batch.shape[0]):
            part = slice(first, first + (rows or batch.shape[0]))
            of_part = {key: value[part] if torch.is_tensor(value) else value for key, value in inputs.items()}
            output = model(**of_part)
            loss = torch.nn.functional.cross_entropy(output.logits.reshape(-1, output.logits.shape[-1]), targets[part].reshape(-1), ignore_index=-100)
            share = (targets[part] >= 0).sum().item() / counted
            of_routers = loss_of_routers(model, output)
            losses[-1] += share * loss.item()
            if of_routers is not None:
                aux_losses[-1] += share * of_routers.item()
                loss = loss + of_routers
                check_own_loss(model, of_part, targets[part], loss.item())
            (share * loss).backward()
        if any(p.grad is None for p in model.parameters()):
            raise SystemExit("an expert has no tokens in a step; choose another seed")
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), reference["max_norm"]).item())
        optimizer.step()
    return {"losses": losses, **({"aux_losses": aux_losses} if any(aux_losses) else {}), "grad_norms": norms}


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for seed, name in enumerate(NAMES + MIXTURES, start=101):
        folder = HERE / name
        reference = json.loads((folder / "reference.json").read_text())
        batches = [torch.tensor(batch) for batch in reference["batches"]]
        masks, starts = fields_of(batches, torch.Generator().manual_seed(seed))
        result = {
            "made_with": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__, "seed": seed},
            "mask": train(folder, reference, batches, masks, None),
        }
        if name in MIXTURES:
            result["mask_by_rows"] = train(folder, reference, batches, masks, None, rows=1)
        else:
            result["documents"] = train(folder, reference, batches, None, starts)
            result["both"] = train(folder, reference, batches, masks, starts)
        result["loss_mask"] = [mask.tolist() for mask in masks]
        if name not in MIXTURES:
            result["document_start"] = [start.tolist() for start in starts]
        lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items())
        (folder / "masks.json").write_text("{\n" + lines + "\n}\n")
        print(f"{name}: " + ", ".join(f"{key} {value['losses'][0]:.4f}" for key, value in result.items() if "losses" in value))


if __name__ == "__main__":
    main()
