#!/usr/bin/env python3
"""Loads an exported adapter with PEFT, and the model that it was merged into with transformers, and compares their logits.

Usage: check_peft_export.py BASE ADAPTER MERGED TOKENS_JSON

BASE is the folder of the model without the adapter. TOKENS_JSON is a file with a list of rows of token ids, all of one length; row[:-1]
predicts row[1:]. Prints one line of JSON: the mean cross-entropy without and with the adapter, and the largest difference between logits
with the adapter and logits of the merged model. Everything is computed in f32. Exits with 1 if weights are missing or left over.
"""

import argparse
import json
import pathlib
import sys

import peft
import torch
import transformers


def load(folder):
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True, output_loading_info=True)
    problems = {what: sorted(map(str, names)) for what, names in report.items() if names}
    if problems:
        print(f"{folder}: {json.dumps(problems)}", file=sys.stderr)
        raise SystemExit(1)
    return model.eval()


def load_adapter(base, folder):
    config = peft.PeftConfig.from_pretrained(folder)
    model = peft.get_peft_model(base, config)
    report = peft.set_peft_model_state_dict(model, peft.load_peft_weights(folder, device="cpu"))
    missing = [name for name in report.missing_keys if "lora_" in name]
    if missing or report.unexpected_keys:
        print(f"{folder}: missing {missing}, left over {report.unexpected_keys}", file=sys.stderr)
        raise SystemExit(1)
    return model.eval()


def logits_and_loss(model, rows):
    with torch.no_grad():
        logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    return logits, torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1)).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("base", "adapter", "merged", "tokens"):
        parser.add_argument(name, type=pathlib.Path)
    arguments = parser.parse_args()
    rows = torch.tensor(json.loads(arguments.tokens.read_text()), dtype=torch.long)
    _, without = logits_and_loss(load(arguments.base), rows)
    with_adapter, loss = logits_and_loss(load_adapter(load(arguments.base), arguments.adapter), rows)
    merged, of_merged = logits_and_loss(load(arguments.merged), rows)
    print(json.dumps({"loss_without": without, "loss": loss, "loss_of_merged": of_merged,
                      "largest_difference": (with_adapter - merged).abs().max().item()}))


if __name__ == "__main__":
    main()
