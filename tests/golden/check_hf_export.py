#!/usr/bin/env python3
"""Loads an exported folder with transformers and prints the loss on given tokens.

Usage: check_hf_export.py FOLDER TOKENS_JSON

TOKENS_JSON is a file with a list of rows of token ids, all of one length; row[:-1] predicts row[1:]. Prints one line of JSON: the mean
cross-entropy in nats over all predicted tokens, the number of parameters (a tied head once) and the class that was loaded. Everything is
computed in f32 whatever the folder's dtype. Exits with 1 if a weight is missing from the folder, left over in it, or of another shape.
"""

import argparse
import json
import pathlib
import sys

import torch
import transformers


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("tokens", type=pathlib.Path)
    arguments = parser.parse_args()

    rows = torch.tensor(json.loads(arguments.tokens.read_text()), dtype=torch.long)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise SystemExit(f"{arguments.tokens}: expected rows of at least 2 tokens, found shape {list(rows.shape)}")

    if not (arguments.folder / "config.json").is_file():
        raise SystemExit(f"{arguments.folder}: there is no config.json")
    # local_files_only: whatever the folder lacks is an error, not something to look for on the network.
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        arguments.folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True, output_loading_info=True)
    problems = {what: sorted(map(str, names)) for what, names in report.items() if names}
    if problems:
        print(f"{arguments.folder}: {json.dumps(problems)}", file=sys.stderr)
        raise SystemExit(1)
    vocabulary = model.config.vocab_size
    if rows.min() < 0 or rows.max() >= vocabulary:
        raise SystemExit(f"{arguments.tokens}: ids from {rows.min()} to {rows.max()}, but the model's vocabulary has {vocabulary}")

    with torch.no_grad():
        logits = model.eval()(input_ids=rows[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), rows[:, 1:].reshape(-1))
    print(json.dumps({"loss": loss.item(), "parameters": sum(p.numel() for p in model.parameters()), "class": type(model).__name__}))


if __name__ == "__main__":
    main()
