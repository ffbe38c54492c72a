#!/usr/bin/env python3
"""Makes generated.json: what transformers generates from, and measures of, tiny models, for tests of `consist generate` and `consist evaluate`.

Usage: make_generate_references.py [--consist PROGRAM] [--model FOLDER]

By model: the folders hf/<name> (after make_hf_references.py), and the presets llama-tiny and qwen3-tiny with the initial weights that PROGRAM (default:
build/bin/consist) makes of a seed, which are the same bits on every machine.

  prompt    token ids
  tokens    the 200 that follow by greedy choice, with no regard to tokens that end a text
  margin    the smallest difference between the largest logit and the next one on the way: how far from a tie the tokens are
  seed      only of presets
  loss      only of folders: mean cross-entropy over the sequences of 32 tokens that follow one another in all batches of reference.json, row behind row

In f32 on one CPU thread, with eager attention; models have 512 positions. With --model: the same of one folder, printed and not written.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
PRESETS = ["llama-tiny", "qwen3-tiny"]
COUNT, POSITIONS, SEQUENCE = 200, 512, 32
PROMPT = [7, 3, 11, 42, 5, 9, 23]


def load(folder):
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    config.max_position_embeddings = POSITIONS
    config.output_router_logits = False  # which generation does not need, and trips over
    return transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager",
                                                             local_files_only=True).eval()


def generate(model):
    prompt = torch.tensor([PROMPT])
    with torch.no_grad():
        made = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=COUNT, min_new_tokens=COUNT, do_sample=False, num_beams=1,
                              eos_token_id=None, pad_token_id=0, return_dict_in_generate=True, output_logits=True)
    best = [step.topk(2).values[0] for step in made.logits]
    return {"prompt": PROMPT, "tokens": made.sequences[0, len(PROMPT):].tolist(), "margin": min((a - b).item() for a, b in best)}


def loss(model, batches):
    stream = torch.tensor(batches).flatten()
    windows = torch.stack([stream[at:at + SEQUENCE + 1] for at in range(0, len(stream) - SEQUENCE, SEQUENCE)])
    with torch.no_grad():
        logits = model(input_ids=windows[:, :-1], use_cache=False).logits.double()
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten()).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--consist", default=str(HERE.parent.parent / "build/bin/consist"))
    parser.add_argument("--model")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.model:
        print(json.dumps(generate(load(arguments.model))))
        return
    made = {}
    for reference in sorted((HERE / "hf").glob("*/reference.json")):
        model = load(reference.parent)
        made[reference.parent.name] = generate(model) | {"loss": loss(model, json.loads(reference.read_text())["batches"])}
    with tempfile.TemporaryDirectory() as folder:
        for preset in PRESETS:
            for seed in range(1, 20):
                exported = f"{folder}/{preset}-{seed}"
                subprocess.run([arguments.consist, "train", "--model", preset, "--device", "cpu", "--dataset", "synthetic", "--steps", "1", "--batch", "1",
                                "--sequence", "16", "--learning-rate", "0", "--seed", str(seed), "--export", exported], check=True)
                made[preset] = generate(load(exported)) | {"seed": seed}
                if made[preset]["margin"] > 1e-4:  # far enough from a tie that rounding decides no token
                    break
    lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in made.items()]
    (HERE / "generated.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
