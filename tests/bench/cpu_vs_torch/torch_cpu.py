#!/usr/bin/env python3
"""PyTorch's side of the CPU benchmark: tokens per second of training llama-32m in f32.

Usage: torch_cpu.py [--threads 2] [--steps 20] [--warmup 3] [--modes eager,compile] [--sequence 512] [--batch 4] ...

Prints one line of JSON per mode: mode, tokens_per_second (median over the steps after the warm-up), the slowest and fastest step, the first
and last loss, and sgemm_gflops, what torch.mm reaches on 2048 x 2048 matrices on as many threads: the measure of the machine. The other
side is `consist train --model llama-32m` with the same batch, sequence and threads.

The model is what Consist's preset llama-32m is, written as one would in PyTorch: fused causal attention, fused RMSNorm and the fused AdamW,
gradients clipped to a norm of 1. A step is forward, backward, clipping and update on tokens that are in memory already.
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

HIDDEN, LAYERS, HEADS, HEAD_DIM, FFN, VOCABULARY = 512, 8, 8, 64, 1408, 8192
EPSILON, THETA, INITIALIZER_RANGE = 1e-5, 10000.0, 0.02


def rope_table(sequence):
    frequencies = 1.0 / THETA ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.float32) / HEAD_DIM)
    angles = torch.outer(torch.arange(sequence, dtype=torch.float32), frequencies)
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()  # each [sequence, HEAD_DIM]


def rope(x, cosine, sine):
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat([-second, first], dim=-1) * sine


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_norm = nn.RMSNorm(HIDDEN, eps=EPSILON)
        self.q, self.k, self.v = (nn.Linear(HIDDEN, HEADS * HEAD_DIM, bias=False) for _ in range(3))
        self.o = nn.Linear(HEADS * HEAD_DIM, HIDDEN, bias=False)
        self.middle_norm = nn.RMSNorm(HIDDEN, eps=EPSILON)
        self.gate, self.up = (nn.Linear(HIDDEN, FFN, bias=False) for _ in range(2))
        self.down = nn.Linear(FFN, HIDDEN, bias=False)

    def forward(self, x, cosine, sine):
        batch, sequence, _ = x.shape
        y = self.input_norm(x)
        q, k, v = (w(y).view(batch, sequence, HEADS, HEAD_DIM).transpose(1, 2) for w in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(rope(q, cosine, sine), rope(k, cosine, sine), v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, sequence, HEADS * HEAD_DIM))
        y = self.middle_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, sequence):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(HIDDEN, eps=EPSILON)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        cosine, sine = rope_table(sequence)
        self.register_buffer("cosine", cosine, persistent=False)
        self.register_buffer("sine", sine, persistent=False)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=INITIALIZER_RANGE)

    def forward(self, ids, targets):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.cosine, self.sine)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCABULARY), targets.reshape(-1))


def measure_sgemm(size=2048, repetitions=5):
    """GFLOP/s of the fastest repetition."""
    a, b, c = (torch.randn(size, size) for _ in range(3))
    torch.mm(a, b, out=c)
    seconds = []
    for _ in range(repetitions):
        start = time.perf_counter()
        torch.mm(a, b, out=c)
        seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds) / 1e9


def measure(mode, arguments):
    torch.manual_seed(arguments.seed)
    model = Llama(arguments.sequence)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    vectors = [p for p in model.parameters() if p.ndim != 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
    forward = torch.compile(model) if mode == "compile" else model
    seconds, losses = [], []
    for _ in range(arguments.warmup + arguments.steps):
        tokens = torch.randint(0, VOCABULARY, (arguments.batch, arguments.sequence + 1))
        start = time.perf_counter()
        loss = forward(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    timed = seconds[arguments.warmup:]
    tokens_per_step = arguments.batch * arguments.sequence
    return {
        "mode": mode,
        "tokens_per_second": tokens_per_step / statistics.median(timed),
        "slowest_step_seconds": max(timed),
        "fastest_step_seconds": min(timed),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20, help="timed steps")
    parser.add_argument("--warmup", type=int, default=3, help="steps before, compilation among them")
    parser.add_argument("--modes", default="eager,compile")
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    modes = arguments.modes.split(",")
    if any(mode not in ("eager", "compile") for mode in modes):
        parser.error(f"--modes {arguments.modes}: each is eager or compile")
    if arguments.steps < 1 or arguments.warmup < 1:
        parser.error("--steps and --warmup must be at least 1")

    torch.set_num_threads(arguments.threads)
    common = {"torch": torch.__version__, "threads": arguments.threads, "batch": arguments.batch, "sequence": arguments.sequence,
              "steps": arguments.steps, "sgemm_gflops": measure_sgemm()}
    for mode in modes:
        print(json.dumps({**measure(mode, arguments), **common}), flush=True)


if __name__ == "__main__":
    main()
