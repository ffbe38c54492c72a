#!/usr/bin/env python3
"""Generates greedily with transformers, for tests of `consist generate`.

Usage: greedy_tokens.py COUNT IDS FOLDER...

FOLDER is a Hugging Face folder, IDS the prompt as token ids with commas between them. Prints a line of JSON for each folder: the COUNT tokens
that follow the prompt, in f32 with eager attention, with no regard to tokens that end a text; and the smallest margin between the
largest logit and the next one on the way, which says how far from a tie the tokens are.
"""

import argparse
import json

import torch
import transformers


def generate(folder, prompt, count):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True).eval()
    with torch.no_grad():
        made = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=count, min_new_tokens=count, do_sample=False, num_beams=1,
                              eos_token_id=None, pad_token_id=0, return_dict_in_generate=True, output_logits=True)
    best = [step.topk(2).values[0] for step in made.logits]
    return {"tokens": made.sequences[0, prompt.shape[1]:].tolist(), "margin": min((a - b).item() for a, b in best)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("ids")
    parser.add_argument("folders", nargs="+")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    prompt = torch.tensor([[int(token) for token in arguments.ids.split(",")]])
    for folder in arguments.folders:
        print(json.dumps(generate(folder, prompt, arguments.count)))


if __name__ == "__main__":
    main()
