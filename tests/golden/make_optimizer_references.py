#!/usr/bin/env python3
"""Writes tests/golden/hf/<model>/optimizers.json: losses of the tiny models under SGD, Lion, Muon and rules, by PyTorch and transformers.

Usage: make_optimizer_references.py [MODEL...]     (needs tests/golden/requirements.txt and the folders that make_hf_references.py makes)

SGD is torch.optim.SGD. Lion and Muon are written here from their papers' formulas: Lion from Chen et al. (2023), algorithm 2; Muon from
Jordan et al. (2024) in the form of torch.optim.Muon, with its iterations in fp32, on the matrices of layers, and torch.optim.AdamW on the rest.

fields of the file
  runs             optimizer, the options that Consist is given, and the mean cross-entropy of each of 20 steps, before its update
  rules            those of --optimizer-rules, where there are some: groups of PyTorch's AdamW and SGD
  learning_rate, weight_decay (of matrices, not of norms), max_norm (torch.nn.utils.clip_grad_norm_'s) stand with each run
Batches are those of reference.json, again and again.
"""

import fnmatch
import json
import pathlib
import sys

import torch
import transformers

STEPS = 20
MODELS = ["llama-untied", "qwen3-tied"]
RUNS = [
    {"optimizer": "sgd", "options": {"momentum": "0.9"}, "learning_rate": 0.05, "weight_decay": 0.01},
    {"optimizer": "sgd", "options": {"momentum": "0.8", "nesterov": "true"}, "learning_rate": 0.05, "weight_decay": 0.01},
    {"optimizer": "sgd", "options": {"momentum": "0"}, "learning_rate": 0.1, "weight_decay": 0.0},
    {"optimizer": "lion", "options": {"beta1": "0.9", "beta2": "0.99"}, "learning_rate": 5e-4, "weight_decay": 0.3},
    {"optimizer": "muon", "options": {"momentum": "0.95"}, "learning_rate": 3e-3, "weight_decay": 0.1},
    {"optimizer": "muon", "options": {"momentum": "0.9", "nesterov": "false", "scale": "original"}, "learning_rate": 1e-2, "weight_decay": 0.1},
    {"optimizer": "adamw", "options": {}, "learning_rate": 3e-3, "weight_decay": 0.1,
     "rules": "*norm*:weight-decay=0.3,lr-factor=0.5;*mlp.*:weight-decay=0;model.layers.1.*:lr-factor=0.1"},
    {"optimizer": "adamw", "options": {}, "learning_rate": 1e-3, "weight_decay": 0.1, "rules": "*v_proj*,*embed_tokens*:optimizer=sgd,lr-factor=50"},
]


class Lion(torch.optim.Optimizer):
    def __init__(self, groups, lr, betas):
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                update = (beta1 * momentum + (1 - beta1) * p.grad).sign()
                p.sub_(group["lr"] * (update + group["weight_decay"] * p))
                momentum.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def orthogonal(matrix, iterations=5, a=3.4445, b=-4.7750, c=2.0315):
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(iterations):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Muon(torch.optim.Optimizer):
    def __init__(self, groups, lr, momentum, nesterov, original):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.momentum, self.nesterov, self.original = momentum, nesterov, original

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p))
                momentum.lerp_(p.grad, 1 - self.momentum)
                direction = p.grad.lerp(momentum, self.momentum) if self.nesterov else momentum
                rows, columns = p.shape
                scale = max(1, rows / columns) ** 0.5 if self.original else 0.2 * max(rows, columns) ** 0.5
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * scale * orthogonal(direction))


def by_rules(named, text, lr, decay):
    """A group for each parameter, of the first rule that names it: by AdamW, or by SGD with the momentum that is its default."""
    rules = [(patterns.split(","), dict(setting.split("=") for setting in settings.split(",")))
             for patterns, settings in (rule.split(":") for rule in text.split(";"))]
    groups = {"adamw": [], "sgd": []}
    for name, p in named:
        settings = next((s for patterns, s in rules if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)), {})
        groups[settings.get("optimizer", "adamw")].append({
            "params": [p], "lr": lr * float(settings.get("lr-factor", 1)),
            "weight_decay": float(settings.get("weight-decay", decay if p.ndim == 2 else 0))})
    optimizers = [torch.optim.AdamW(groups["adamw"], betas=(0.9, 0.95), eps=1e-8)]
    return optimizers + ([torch.optim.SGD(groups["sgd"], lr=lr, momentum=0.9)] if groups["sgd"] else [])


def optimizers_of(model, run):
    options, lr, decay = run["options"], run["learning_rate"], run["weight_decay"]
    named = list(model.named_parameters())

    def groups(chosen):
        return [{"params": [p for _, p in chosen if p.ndim == 2], "weight_decay": decay},
                {"params": [p for _, p in chosen if p.ndim != 2], "weight_decay": 0.0}]

    if "rules" in run:
        return by_rules(named, run["rules"], lr, decay)
    if run["optimizer"] == "sgd":
        return [torch.optim.SGD(groups(named), lr=lr, momentum=float(options["momentum"]), nesterov="nesterov" in options)]
    if run["optimizer"] == "lion":
        return [Lion(groups(named), lr, (float(options["beta1"]), float(options["beta2"])))]
    matrices = [(name, p) for name, p in named if p.ndim == 2 and ".layers." in name]
    of_layers = {name for name, _ in matrices}
    rest = [(name, p) for name, p in named if name not in of_layers]
    return [Muon(groups(matrices)[:1], lr, float(options["momentum"]), options.get("nesterov") != "false", options.get("scale") == "original"),
            torch.optim.AdamW(groups(rest), lr=lr, betas=(0.9, 0.95), eps=1e-8)]


def losses_of(folder, batches, max_norm, run):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", torch_dtype=torch.float32).eval()
    optimizers = optimizers_of(model, run)
    losses = []
    for step in range(STEPS):
        batch = batches[step % len(batches)]
        for optimizer in optimizers:
            optimizer.zero_grad()
        logits = model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    torch.set_num_threads(1)  # the order of sums
    home = pathlib.Path(__file__).resolve().parent / "hf"
    for name in sys.argv[1:] or MODELS:
        reference = json.loads((home / name / "reference.json").read_text())
        batches = [torch.tensor(batch) for batch in reference["batches"]]
        runs = []
        for run in RUNS:
            losses = losses_of(home / name, batches, reference["max_norm"], run)
            runs.append({**run, "max_norm": reference["max_norm"], "losses": losses})
            print(f"{name}, {run['optimizer']} {run['options']}: {losses[0]:.4f} to {losses[-1]:.4f}")
        made_with = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
        lines = ",\n".join("    " + json.dumps(run) for run in runs)
        (home / name / "optimizers.json").write_text(f'{{\n  "made_with": {json.dumps(made_with)},\n  "runs": [\n{lines}\n  ]\n}}\n')


if __name__ == "__main__":
    main()
