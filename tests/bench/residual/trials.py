#!/usr/bin/env python3
"""Plants causes of a slow step on GPUs, and looks which one `consist residual` names first.

usage: trials.py [--consist PATH] [--plugins FOLDER] [--machine h100] [--only NAME,...] [--output trials.json]

Each trial is a run of some seconds. A cause is planted in the machine's file (the device is then slower than its file says), in
options, in the environment, or by other work beside. Returns 1 if a run failed.
"""
import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SMALL = "--model qwen3-0.6b --from-scratch --precision bf16 --batch 4 --sequence 4096 --steps 40"
EXPERTS = "--model FOLDER --from-scratch --precision bf16 --batch 2 --sequence 4096 --steps 30"
# Qwen3-30B-A3B with 4 of its 48 layers.
EXPERTS_CONFIG = dict(architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", hidden_size=2048, intermediate_size=6144,
                      moe_intermediate_size=768, num_hidden_layers=4, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
                      num_experts=128, num_experts_per_tok=8, norm_topk_prob=True, vocab_size=151936, rms_norm_eps=1e-6,
                      rope_theta=1e6, tie_word_embeddings=False, max_position_embeddings=40960, hidden_act="silu",
                      decoder_sparse_step=1, mlp_only_layers=[], attention_bias=False)


def machine_file(name):
    """The machine's file as JSON."""
    source = Path(__file__).resolve().parents[3] / "core" / "cost" / "machines" / f"{name}.json"
    return json.loads("\n".join(line for line in source.read_text().splitlines() if not line.lstrip().startswith("//")))


def faster(machine, ops, factor):
    """The machine with times of these ops (a function of op and FLOPs) times `factor`."""
    for times in machine["device"].get("times", []):
        for point in times["points"]:
            if ops(times["op"], point[0]):
                point[2] *= factor
    return machine


def computes(op, flops):
    return flops > 0 and op not in ("adamw",) and ("linear" in op or "attention" in op or "lm_head" in op)


def faster_clock(machine):
    power = machine.setdefault("power", {})
    if "clock" in power:
        power["clock"]["value"] /= 0.85
    return faster(machine, computes, 0.85)


def faster_host(machine):
    for key in ("host_alone", "host_shared"):
        machine[key]["value"] *= 2.5
    return machine


def trials():
    """Name, cause, GPUs, options, and what is planted: file (of the machine), environment, beside (a command), on (its GPU)."""
    yield dict(name="nothing", cause="none", gpus=1, options=SMALL)
    yield dict(name="clock in the file", cause="clock", gpus=1, options=SMALL, file=faster_clock)
    yield dict(name="memory in the file", cause="memory", gpus=1, options=SMALL,
               file=lambda m: faster(m, lambda op, flops: not computes(op, flops), 0.5))
    yield dict(name="one product in the file", cause="kernel", gpus=1, options=SMALL,
               file=lambda m: faster(m, lambda op, flops: "lm_head" in op, 0.4))
    yield dict(name="another attention kernel", cause="kernel", gpus=1, options=SMALL + " --cuda.deterministic true")
    yield dict(name="plain products of experts", cause="kernel", gpus=1, options=EXPERTS + " --cuda.grouped-products plain")
    yield dict(name="slow data", cause="data", gpus=1,
               options=SMALL + " --dataset planted --planted.delay 0.3")
    yield dict(name="host with other work", cause="host", gpus=1, cores=1, hogs=6,
               options="--model qwen3-0.6b --from-scratch --precision bf16 --batch 1 --sequence 512 --steps 60 --cuda.graphs false")
    yield dict(name="other work on the GPU", cause="device", gpus=1, options=SMALL, beside=SMALL.replace("--steps 40", "--steps 4000"), on="0")
    yield dict(name="slow link to the host in use", cause="host-link", gpus=1, file=faster_host,
               options="--model qwen3-1.7b --from-scratch --precision bf16 --batch 1 --sequence 2048 --steps 30 --strategy zero3-offload "
                       "--zero3-offload.offload-optimizer.device cpu")
    yield dict(name="NCCL with one channel", cause="link", gpus=2, options=SMALL + " --ranks 2 --strategy ddp",
               environment={"NCCL_MAX_NCHANNELS": "1", "NCCL_MIN_NCHANNELS": "1"})
    yield dict(name="rank 1 with other work", cause="rank", gpus=2, options=SMALL + " --ranks 2 --strategy ddp",
               beside=SMALL.replace("--steps 40", "--steps 4000"), on="1")
    yield dict(name="rank 0 with other work", cause="rank", gpus=2, options=SMALL + " --ranks 2 --strategy ddp",
               beside=SMALL.replace("--steps 40", "--steps 4000"), on="0")
    yield dict(name="tokens that crowd on few experts", cause="experts", gpus=2,
               options=EXPERTS + " --ranks 2 --strategy ep=2 --dataset planted --planted.distinct 3 --profile")


def planted_file(trial, machine, folder):
    changed = trial["file"](machine_file(machine))
    changed["name"] = machine
    path = folder / "machine.json"
    path.write_text(json.dumps(changed))
    return path


def run(consist, plugins, machine, trial, folder):
    archive = folder / "run.h5"
    named = planted_file(trial, machine, folder) if "file" in trial else machine
    (folder / "config.json").write_text(json.dumps(EXPERTS_CONFIG))
    options = [str(folder) if word == "FOLDER" else word for word in shlex.split(trial["options"])]
    command = [consist, "train", *options, "--machine", str(named), "--archive", str(archive), "--overwrite"]
    if "--dataset planted" in trial["options"]:
        command += ["--plugin", plugins]
    elif "--dataset" not in trial["options"]:
        command += ["--dataset", "synthetic"]
    if "cores" in trial:
        command = ["taskset", "-c", "0", *command]
    environment = {**os.environ, **trial.get("environment", {})}
    others = [subprocess.Popen(["taskset", "-c", "0", "sh", "-c", "while :; do :; done"]) for _ in range(trial.get("hogs", 0))]
    if "beside" in trial:
        beside = [consist, "train", *shlex.split(trial["beside"]), "--dataset", "synthetic"]
        others.append(subprocess.Popen(beside, env={**os.environ, "CUDA_VISIBLE_DEVICES": trial["on"]},
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(15)
    try:
        trained = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    finally:
        for other in others:
            other.terminate()
        for other in others:
            other.wait()
    if trained.returncode != 0:
        return {"failure": trained.stderr[-2000:] or trained.stdout[-2000:]}
    answer = subprocess.run([consist, "residual", str(archive), "--json"], capture_output=True, text=True)
    text = subprocess.run([consist, "residual", str(archive)], capture_output=True, text=True).stdout
    return {"residual": json.loads(answer.stdout), "text": text}


def row_of(trial, result):
    residual = result.get("residual", {})
    if "terms" not in residual:
        return f"| {trial['name']} | {trial['cause']} | {result.get('failure') or residual.get('problem')} | | | |"
    difference = residual["measured_seconds"] - residual["predicted_seconds"]
    causes = residual["causes"]
    first = causes[0]["cause"] if causes else "none"
    missed = sum(term["seconds"] for term in residual["terms"]) - difference
    listed = ", ".join(f"{one['cause']} {1e3 * one['seconds']:+.1f}" for one in causes[:3])
    return (f"| {trial['name']} | {trial['cause']} | {first}{'' if first == trial['cause'] else ' (WRONG)'} | {1e3 * residual['predicted_seconds']:.1f} "
            f"to {1e3 * residual['measured_seconds']:.1f} ms | {listed} | {abs(missed) / max(abs(difference), 1e-12):.2%} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--consist", default="build/bin/consist")
    parser.add_argument("--plugins", default="build/lib/consist/test-plugins")
    parser.add_argument("--machine", default="h100")
    parser.add_argument("--only", default="", help="names of trials, with commas between")
    parser.add_argument("--output")
    arguments = parser.parse_args()
    gpus = len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())
    rows, results, failed, left_out = [], {}, False, []
    for trial in trials():
        if arguments.only and trial["name"] not in arguments.only.split(","):
            continue
        if trial["gpus"] > gpus:
            left_out.append(trial["name"])
            continue
        with tempfile.TemporaryDirectory() as folder:
            started = time.time()
            results[trial["name"]] = result = run(arguments.consist, arguments.plugins, arguments.machine, trial, Path(folder))
        failed = failed or "failure" in result
        rows.append(row_of(trial, result))
        print(f"{rows[-1]}  {time.time() - started:.0f} s", flush=True)
        if arguments.output:
            Path(arguments.output).write_text(json.dumps(results, indent=1))
    print("\n| planted | cause | first | step | causes, ms | sum missed by |\n|---|---|---|---|---|---|\n" + "\n".join(rows))
    if left_out:
        print(f"left out, for want of GPUs: {', '.join(left_out)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
