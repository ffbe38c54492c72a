#!/usr/bin/env python3
"""Writes tests/golden/hf/<model>/own_optimizers.json: losses of a tiny model under the optimizers of tests/external, by PyTorch and transformers.

Usage: make_own_optimizer_references.py     (needs tests/golden/requirements.txt and the folders that make_hf_references.py makes)

Adafactor is torch.optim.Adafactor. The other two are written here: schedule-free AdamW from Defazio et al. (2024), algorithm 1 in the form of
its authors' package (weights of the average by the square of the largest rate); AdamW with 8-bit moments after Dettmers et al. (2022), as E4M3
numbers with a scale for each block, of the first moment and of the second one's root, and torch.optim.AdamW on what is no matrix.

fields of the file
  runs             optimizer, the options that Consist is given, and the mean cross-entropy of each of five steps, before its update
  evaluated        the mean cross-entropy of the first batch after the five steps, of the weights that an evaluation reads
  learning_rate, weight_decay (of matrices, not of norms), max_norm (torch.nn.utils.clip_grad_norm_'s) stand with each run
Batches are those of reference.json. Everything is computed in f32 on one CPU thread.
"""

import json
import pathlib

import torch
import transformers

STEPS = 5
MODELS = ["llama-untied"]
RUNS = [
    {"optimizer": "my-adafactor", "options": {}, "learning_rate": 0.01, "weight_decay": 0.1},
    {"optimizer": "my-adafactor", "options": {"decay": "-0.5", "threshold": "2"}, "learning_rate": 0.05, "weight_decay": 0.0},
    {"optimizer": "my-adamw-8bit", "options": {"block": "4"}, "learning_rate": 1e-3, "weight_decay": 0.1},
    {"optimizer": "my-adamw-8bit", "options": {"block": "8", "beta1": "0.8", "beta2": "0.99"}, "learning_rate": 3e-3, "weight_decay": 0.1},
    {"optimizer": "my-schedule-free", "options": {}, "learning_rate": 3e-3, "weight_decay": 0.1},
    {"optimizer": "my-schedule-free", "options": {"beta1": "0.8", "beta2": "0.95"}, "learning_rate": 1e-2, "weight_decay": 0.0},
]


def in_8_bits(values, block):
    """The values as they come back from E4M3 numbers that share a scale by blocks."""
    blocks = values.reshape(-1, block)
    scale = blocks.abs().amax(dim=1, keepdim=True).clamp(min=1e-30) / 448
    return ((blocks / scale).to(torch.float8_e4m3fn).float() * scale).reshape(values.shape)


class AdamW8bit(torch.optim.Optimizer):
    def __init__(self, groups, lr, betas, block, eps=1e-8):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.betas, self.block, self.eps, self.steps = betas, block, eps, 0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        beta1, beta2 = self.betas
        correction1, correction2 = 1 - beta1**self.steps, 1 - beta2**self.steps
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("moment1", torch.zeros_like(p))
                root = self.state[p].setdefault("root2", torch.zeros_like(p))
                m = beta1 * m + (1 - beta1) * p.grad
                root = (beta2 * root * root + (1 - beta2) * p.grad * p.grad).sqrt()
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] / correction1 * m / (root / correction2**0.5 + self.eps))
                self.state[p] = {"moment1": in_8_bits(m, self.block), "root2": in_8_bits(root, self.block)}


class ScheduleFree(torch.optim.Optimizer):
    def __init__(self, groups, lr, betas, eps=1e-8):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.betas, self.eps, self.steps, self.weight_sum = betas, eps, 0, 0.0

    @torch.no_grad()
    def step(self):
        self.steps += 1
        beta1, beta2 = self.betas
        weight = self.param_groups[0]["lr"] ** 2
        self.weight_sum += weight
        share = weight / self.weight_sum
        for group in self.param_groups:
            for p in group["params"]:
                z = self.state[p].setdefault("z", p.clone())
                x = self.state[p].setdefault("x", p.clone())
                v = self.state[p].setdefault("v", torch.zeros_like(p))
                v.mul_(beta2).add_(p.grad * p.grad, alpha=1 - beta2)
                moved = p.grad / ((v / (1 - beta2**self.steps)).sqrt() + self.eps) + group["weight_decay"] * p
                z.sub_(moved, alpha=group["lr"])
                x.lerp_(z, share)
                p.copy_((1 - beta1) * z + beta1 * x)

    @torch.no_grad()
    def evaluate(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(self.state[p]["x"])


def optimizers_of(model, run):
    options, lr, decay = run["options"], run["learning_rate"], run["weight_decay"]
    matrices = {"params": [p for p in model.parameters() if p.ndim == 2], "weight_decay": decay}
    vectors = {"params": [p for p in model.parameters() if p.ndim != 2], "weight_decay": 0.0}
    if run["optimizer"] == "my-adafactor":
        return [torch.optim.Adafactor([matrices, vectors], lr=lr, beta2_decay=float(options.get("decay", "-0.8")), d=float(options.get("threshold", "1")))]
    if run["optimizer"] == "my-schedule-free":
        return [ScheduleFree([matrices, vectors], lr, (float(options.get("beta1", "0.9")), float(options.get("beta2", "0.999"))))]
    betas = (float(options.get("beta1", "0.9")), float(options.get("beta2", "0.95")))
    return [AdamW8bit([matrices], lr, betas, int(options["block"])), torch.optim.AdamW([vectors], lr=lr, betas=betas, eps=1e-8)]


def loss_of(model, batch):
    logits = model(input_ids=batch[:, :-1], use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))


def losses_of(folder, batches, max_norm, run):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    optimizers = optimizers_of(model, run)
    losses = []
    for batch in batches[:STEPS]:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    if isinstance(optimizers[0], ScheduleFree):
        optimizers[0].evaluate()
    with torch.no_grad():
        return losses, loss_of(model, batches[0]).item()


def main():
    torch.set_num_threads(1)  # the order of sums
    home = pathlib.Path(__file__).resolve().parent / "hf"
    for name in MODELS:
        reference = json.loads((home / name / "reference.json").read_text())
        batches = [torch.tensor(batch) for batch in reference["batches"]]
        runs = []
        for run in RUNS:
            losses, evaluated = losses_of(home / name, batches, reference["max_norm"], run)
            runs.append({**run, "max_norm": reference["max_norm"], "losses": losses, "evaluated": evaluated})
            print(f"{name}, {run['optimizer']} {run['options']}: {losses[0]:.4f} to {losses[-1]:.4f}, evaluated {evaluated:.4f}")
        made_with = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
        lines = ",\n".join("    " + json.dumps(run) for run in runs)
        (home / name / "own_optimizers.json").write_text(f'{{\n  "made_with": {json.dumps(made_with)},\n  "runs": [\n{lines}\n  ]\n}}\n')


if __name__ == "__main__":
    main()
