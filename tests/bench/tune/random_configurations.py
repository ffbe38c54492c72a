#!/usr/bin/env python3
"""Draws random legal configurations and compares them with what `consist tune` finds: none should be faster by more than 1%.

    tests/bench/tune/random_configurations.py --consist build/bin/consist [--case llama-3.1-70b] [--draws 200] [--seed 1] [--jobs 2]

The draws know nothing of the search: they divide the ranks, choose a micro-batch, recomputation and options of the strategies at random, and
`consist predict` plans and simulates each whole. What is refused or does not fit is drawn again. Status 1 if one is better by more than 1%.
"""
import argparse
import concurrent.futures
import json
import random
import re
import subprocess
import sys
import time

LLAMA_405B = json.dumps({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
    "num_attention_heads": 128, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0, "tie_word_embeddings": False})

CASES = {
    "llama-3.1-70b": dict(ranks=640, global_batch=320, sequence=4096, machine="h100", layers=80, kv=8, experts=0),
    "llama-3.1-70b-1280": dict(model="llama-3.1-70b", ranks=640, global_batch=1280, sequence=4096, machine="h100", layers=80, kv=8, experts=0),
    "qwen3-30b-a3b": dict(ranks=16, global_batch=32, sequence=32768, machine="h200", layers=48, kv=4, experts=128),
    "llama-3.1-405b": dict(model=LLAMA_405B, ranks=1024, global_batch=512, sequence=4096, machine="h100", layers=126, kv=8, experts=0),
}


def divisors(number):
    return [d for d in range(1, number + 1) if number % d == 0]


def draw(case, rng):
    """A configuration as options of predict; it may turn out to be illegal."""
    left = case["ranks"]
    tensor = rng.choice([d for d in divisors(min(left, 8)) if left % d == 0 and case["kv"] % d == 0])
    left //= tensor
    stages = rng.choice([d for d in divisors(left) if d <= case["layers"]])
    left //= stages
    context = rng.choice([d for d in divisors(left) if case["sequence"] % (2 * d * tensor) == 0 and case["sequence"] // d >= 2048])
    left //= context
    experts = rng.choice([d for d in divisors(left) if case["experts"] and case["experts"] % d == 0] or [1])
    data = left // experts
    if case["global_batch"] % (data * experts):
        return None
    sequences = case["global_batch"] // (data * experts)
    batch = rng.choice(divisors(sequences))
    strategy = rng.choice(["ddp", "zero2", "zero3-offload"])
    parts = [f"{name}={size}" for name, size in [("tp-sp", tensor), ("cp", context), ("ep", experts), ("pipeline", stages)] if size > 1]
    words = ["--batch", str(batch), "--recompute", rng.choice(["none", "none", "swiglu,rms_norm", "full"])]
    if data > 1 or context * experts > 1:
        parts.append(strategy)
        if strategy == "zero2":
            words += ["--zero2.stage", rng.choice("12")]
        if strategy == "zero3-offload":
            words += ["--zero3-offload.reduce_each_micro_batch", rng.choice(["true", "false"])]
    if not parts:
        return None
    if tensor > 1:
        words += ["--tp-sp.gather-again", rng.choice(["true", "false"])]
    if stages > 1:
        schedule = rng.choice(["1f1b", "interleaved", "zero-bubble", "zero-bubble-h2"])
        words += ["--pipeline.schedule", schedule]
        if schedule == "interleaved":
            chunks = [c for c in range(2, case["layers"] // stages + 1)]
            if not chunks:
                return None
            words += ["--pipeline.chunks", str(rng.choice(chunks))]
    return ["--strategy", "+".join(parts)] + words


def base_of(name):
    case = CASES[name]
    return ["--model", case.get("model", name), "--ranks", str(case["ranks"]), "--global-batch", str(case["global_batch"]), "--sequence",
            str(case["sequence"]), "--precision", "bf16", "--machine", case["machine"]]


def predicted(consist, base, words):
    """Seconds of a step; None if it is refused or does not fit."""
    done = subprocess.run([consist, "predict", *base, *words, "--json"], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return None
    answer = json.loads(done.stdout)
    return answer["step_seconds"]["value"] if answer["fits"] else None


def tuned(consist, base):
    began = time.monotonic()
    done = subprocess.run([consist, "tune", *base, "--measure", "0"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)
    print(done.stdout, end="")
    row = re.search(r"^ *([0-9.]+) .*--strategy", done.stdout, re.M)
    return float(row[1]) / 1e3, time.monotonic() - began


def compare(name, options):
    base = base_of(name)
    best, seconds = tuned(options.consist, base)
    print(f"{name}: tune says {best * 1e3:.1f} ms, in {seconds:.1f} s")
    rng = random.Random(options.seed)
    legal, drawn, better = [], 0, 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        while len(legal) < options.draws:
            words = [w for w in (draw(CASES[name], rng) for _ in range(options.jobs * 4)) if w]
            drawn += len(words)
            for word, step in zip(words, pool.map(lambda w: predicted(options.consist, base, w), words)):
                if step is None or len(legal) == options.draws:
                    continue
                legal.append(step)
                if step < 0.99 * best:
                    better += 1
                    print(f"  better: {step * 1e3:.1f} ms: {' '.join(word)}", flush=True)
    print(f"{name}: of {len(legal)} legal ones ({drawn} drawn) the best takes {min(legal) * 1e3:.1f} ms, "
          f"{min(legal) / best:.3f} times tune's; {better} are better by more than 1%", flush=True)
    return better


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--consist", required=True)
    parser.add_argument("--case", choices=sorted(CASES), action="append")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    sys.exit(1 if sum(compare(name, options) for name in options.case or sorted(CASES)) else 0)


if __name__ == "__main__":
    main()
