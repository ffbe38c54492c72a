#!/usr/bin/env python3
"""Trains llama-32m with Consist and with PyTorch in turn, on the same threads, and prints their rates beside each other.

Usage: side_by_side.py --consist build/bin/consist [--rounds 3] [--steps 12] [--warmup 3] [--threads 2] [--json FILE] [--check]

Every contender runs once per round in a process of its own, so that a machine that slows down or speeds up does so for all. A rate is the
median over a run's steps after the warm-up; the table shows the median over the rounds, and the slowest and fastest round. The share is of the
machine's sgemm rate in model FLOP/s (docs/metrics.md): of the faster of torch.mm on 2048 x 2048 matrices, measured before each run of PyTorch, and
oneDNN on the shape of the model's largest linear, which each run of Consist measures. (MKL, which PyTorch calls, may be the slower one.)

--check exits with 1 unless Consist's fp32 is at least as fast as the faster of PyTorch's modes, and its bf16 on widened products ("emulated":
what a processor without bf16 instructions runs) reaches 0.85 of its fp32.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import h5py

import torch_cpu

LEAST_FP32, LEAST_BF16 = 1.0, 0.85
CONSIST = {"Consist fp32": ["--precision", "fp32"],
           "Consist bf16": ["--precision", "bf16"],
           "Consist bf16 emulated": ["--precision", "bf16", "--cpu.bf16", "emulated"]}
TORCH = {"PyTorch fp32 eager": "eager", "PyTorch fp32 compiled": "compile"}
RUN_SECONDS = 1800  # no run may take longer


def flops_per_token(sequence):
    layer = 4 * torch_cpu.HIDDEN * torch_cpu.HEADS * torch_cpu.HEAD_DIM + 3 * torch_cpu.HIDDEN * torch_cpu.FFN
    matrices = torch_cpu.LAYERS * layer + torch_cpu.VOCABULARY * torch_cpu.HIDDEN
    return 6 * matrices + 6 * torch_cpu.LAYERS * torch_cpu.HEADS * torch_cpu.HEAD_DIM * sequence


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def run_consist(configuration, arguments):
    """Tokens per second, and the measured rate of its largest linear in FLOP/s."""
    with tempfile.TemporaryDirectory() as folder:
        archive = str(pathlib.Path(folder) / "run.h5")
        run([str(arguments.consist), "train", "--model", "llama-32m", "--dataset", "synthetic", "--sequence", str(arguments.sequence), "--batch",
             str(arguments.batch), "--steps", str(arguments.warmup + arguments.steps), "--device", "cpu", "--cpu.threads", str(arguments.threads),
             "--archive", archive, *configuration])
        with h5py.File(archive) as file:
            seconds = file["steps/seconds"][arguments.warmup:]
            tokens = file["steps/tokens"][0]
            bound = json.loads(file["result"].asstr()[()])["bound_flops_per_second"] or float("nan")  # null: it could not be measured
    if len(seconds) != arguments.steps:
        raise SystemExit(f"Consist's archive has {len(seconds)} steps after the warm-up, not {arguments.steps}")
    return float(tokens / statistics.median(seconds)), bound


def run_torch(mode, arguments):
    """Tokens per second, and the rate of torch.mm in FLOP/s."""
    script = pathlib.Path(__file__).resolve().parent / "torch_cpu.py"
    line = run([sys.executable, str(script), "--modes", mode] +
               [f"--{name}={getattr(arguments, name)}" for name in ("threads", "steps", "warmup", "sequence", "batch")])
    result = json.loads(line)
    return result["tokens_per_second"], result["sgemm_gflops"] * 1e9


def print_table(rates, sgemm, sequence):
    fastest_torch = max(statistics.median(rates[name]) for name in TORCH)
    print(f"\n{'':24}{'tokens/s':>9}{'slowest':>9}{'fastest':>9}{'of sgemm':>10}{'of PyTorch':>12}")
    for name, runs in rates.items():
        rate = statistics.median(runs)
        print(f"{name:24}{rate:9.0f}{min(runs):9.0f}{max(runs):9.0f}{rate * flops_per_token(sequence) / sgemm:10.0%}{rate / fastest_torch:11.2f}x")


def check(fp32, bf16):
    passed = fp32 >= LEAST_FP32 and bf16 >= LEAST_BF16
    print(f"fp32 over the faster PyTorch: {fp32:.2f} (at least {LEAST_FP32}); bf16 emulated over fp32: {bf16:.2f} (at least {LEAST_BF16})"
          f": {'passed' if passed else 'FAILED'}")
    return passed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--consist", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="timed steps of each run")
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sequence", type=int, default=512)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--json", type=pathlib.Path, help="also write the rates to this file")
    parser.add_argument("--check", action="store_true", help="fail below the required ratios")
    arguments = parser.parse_args()
    if min(arguments.rounds, arguments.steps, arguments.warmup, arguments.threads) < 1:
        parser.error("--rounds, --steps, --warmup and --threads must be at least 1")

    rates = {name: [] for name in [*CONSIST, *TORCH]}
    sgemm = {"torch.mm": [], "oneDNN": []}
    for number in range(1, arguments.rounds + 1):
        for name, configuration in CONSIST.items():
            rate, bound = run_consist(configuration, arguments)
            rates[name].append(rate)
            if name == "Consist fp32":
                sgemm["oneDNN"].append(bound)
            print(f"round {number}: {name} {rates[name][-1]:.0f} tokens/s", flush=True)
        for name, mode in TORCH.items():
            rate, machine = run_torch(mode, arguments)
            rates[name].append(rate)
            sgemm["torch.mm"].append(machine)
            print(f"round {number}: {name} {rate:.0f} tokens/s, torch.mm {machine / 1e9:.0f} GFLOP/s", flush=True)
    machine = {name: statistics.median(measured) for name, measured in sgemm.items()}
    print_table(rates, max(machine.values()), arguments.sequence)
    print("sgemm: " + ", ".join(f"{name} {rate / 1e9:.0f} GFLOP/s" for name, rate in machine.items()))
    if arguments.json:
        arguments.json.write_text(json.dumps({"tokens_per_second": rates, "sgemm_flops_per_second": sgemm, "rounds": arguments.rounds,
                                              "steps": arguments.steps, "threads": arguments.threads}, indent=2) + "\n")
    median = {name: statistics.median(runs) for name, runs in rates.items()}
    passed = check(median["Consist fp32"] / max(median[name] for name in TORCH), median["Consist bf16 emulated"] / median["Consist fp32"])
    return 0 if passed or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
