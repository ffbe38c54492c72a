#!/usr/bin/env python3
"""Writes tests/golden/losses.json: losses of a tiny model on the losses of tests/external/losses, by PyTorch and transformers.

Usage: make_loss_references.py     (needs tests/golden/requirements.txt and the folders that make_hf_references.py makes)

fields of the file
  model, teacher   folders in hf/
  ids, mask        one text of token ids, and whether each is to be learnt; row k of 32 tokens begins at 32 k, and its targets are the ids behind
  pairs            a prompt with a chosen and a rejected answer, each scored by itself
  rows             of a step; pairs of a step
  runs             loss, the options that Consist is given, and the loss and the metrics of each of five steps, before its update; the
                   metrics of preferences are those that TRL's DPOTrainer logs as rewards/accuracies and rewards/margins
AdamW is torch.optim.AdamW with beta2 0.95 and decay of matrices alone, gradients are clipped by torch.nn.utils.clip_grad_norm_. Everything is
computed in f32 on one CPU thread.
"""

import copy
import json
import pathlib

import torch
import transformers
from torch.nn.functional import cross_entropy, kl_div, log_softmax, logsigmoid

STEPS, ROWS, LENGTH = 5, 4, 32
MODEL, TEACHER = "llama-tied", "qwen3-untied"
SETTINGS = {"learning_rate": 3e-3, "weight_decay": 0.1, "max_norm": 1.0}
RUNS = [
    {"loss": "my-z-loss", "options": {"weight": "0.01"}},
    {"loss": "my-distillation", "options": {"temperature": "1", "share": "1"}},
    {"loss": "my-distillation", "options": {"temperature": "2.5", "share": "0.4"}},
    {"loss": "my-dpo", "options": {"beta": "0.5"}},
]


def load(folder):
    home = pathlib.Path(__file__).resolve().parent / "hf"
    return transformers.AutoModelForCausalLM.from_pretrained(home / folder, attn_implementation="eager", dtype=torch.float32).eval()


def logits_of(model, ids):
    return model(input_ids=ids, use_cache=False).logits


class Text:
    """Losses of rows of the text: means over the targets that count."""

    def __init__(self, ids, mask, teacher):
        self.ids, self.mask, self.teacher = torch.tensor(ids), torch.tensor(mask).bool(), teacher

    def loss(self, model, step, run):
        first = [LENGTH * (step * ROWS + row) for row in range(ROWS)]
        ids = torch.stack([self.ids[f : f + LENGTH] for f in first])
        targets = torch.stack([self.ids[f + 1 : f + LENGTH + 1] for f in first])
        counts = torch.stack([self.mask[f + 1 : f + LENGTH + 1] for f in first])
        logits, targets = logits_of(model, ids)[counts], targets[counts]
        if run["loss"] == "my-z-loss":
            return cross_entropy(logits, targets) + float(run["options"]["weight"]) * torch.logsumexp(logits, dim=-1).square().mean(), {}
        t, share = float(run["options"]["temperature"]), float(run["options"]["share"])
        with torch.no_grad():
            aim = log_softmax(logits_of(self.teacher, ids)[counts] / t, dim=-1)
        soft = kl_div(log_softmax(logits / t, dim=-1), aim, log_target=True, reduction="batchmean")
        return share * t * t * soft + (1 - share) * cross_entropy(logits, targets), {"divergence": soft.item()}


class Pairs:
    def __init__(self, pairs, reference):
        self.pairs, self.reference = pairs, reference

    @staticmethod
    def likelihood(model, prompt, answer):
        ids = torch.tensor([prompt + answer])
        chosen = log_softmax(logits_of(model, ids[:, :-1]), dim=-1).gather(2, ids[:, 1:, None])
        return chosen[0, len(prompt) - 1 :].sum()

    def margin(self, model, pair):
        return self.likelihood(model, pair["prompt"], pair["chosen"]) - self.likelihood(model, pair["prompt"], pair["rejected"])

    def loss(self, model, step, run):
        margins = []
        for pair in self.pairs[step * ROWS : (step + 1) * ROWS]:
            with torch.no_grad():
                reference = self.margin(self.reference, pair)
            margins.append(float(run["options"]["beta"]) * (self.margin(model, pair) - reference))
        margins = torch.stack(margins)
        metrics = {"preference_accuracy": (margins > 0).float().mean().item(), "reward_margin": margins.mean().item()}
        return -logsigmoid(margins).mean(), metrics


def steps_of(model, data, run):
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    groups = [{"params": matrices, "weight_decay": SETTINGS["weight_decay"]}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=SETTINGS["learning_rate"], betas=(0.9, 0.95), eps=1e-8)
    losses, metrics = [], {}
    for step in range(STEPS):
        optimizer.zero_grad()
        loss, own = data.loss(model, step, run)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), SETTINGS["max_norm"])
        optimizer.step()
        losses.append(loss.item())
        for name, value in own.items():
            metrics.setdefault(name, []).append(value)
    return {"losses": losses, "metrics": metrics}


def main():
    torch.set_num_threads(1)  # the order of sums
    model, teacher = load(MODEL), load(TEACHER)
    generator = torch.Generator().manual_seed(5)
    vocabulary = model.config.vocab_size

    def words(count):
        return torch.randint(vocabulary, (count,), generator=generator).tolist()

    def length(least, most):
        return int(torch.randint(least, most + 1, (1,), generator=generator))

    ids = words(LENGTH * ROWS * STEPS + 1)
    mask = (torch.rand(len(ids), generator=generator) < 0.7).int().tolist()
    pairs = [{"prompt": words(length(2, 6)), "chosen": words(length(3, 9)), "rejected": words(length(3, 9))} for _ in range(ROWS * STEPS)]
    runs = []
    for run in RUNS:
        data = Pairs(pairs, model) if run["loss"] == "my-dpo" else Text(ids, mask, teacher)
        runs.append({**run, **steps_of(copy.deepcopy(model), data, run)})
        print(run["loss"], run["options"], runs[-1]["losses"], runs[-1]["metrics"])
    made_with = {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__}
    facts = {"made_with": made_with, "model": MODEL, "teacher": TEACHER, "rows": ROWS, **SETTINGS, "ids": ids, "mask": mask}
    text = "".join(f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in facts.items())
    for name, values in (("pairs", pairs), ("runs", runs)):
        lines = ",\n".join("    " + json.dumps(value) for value in values)
        text += f"  {json.dumps(name)}: [\n{lines}\n  ]" + (",\n" if name == "pairs" else "\n")
    path = pathlib.Path(__file__).resolve().parent / "losses.json"
    path.write_text("{\n" + text + "}\n")
    print(path)


if __name__ == "__main__":
    main()
