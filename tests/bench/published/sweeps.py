"""The published rows, one form for all: rows.csv and memory.csv as they are, nanotron.csv and simumax.csv from what their authors state.

A row has `group`, `source`, `date`, `layout`, `model`, `gpus`, `machine`, `options`, `outcome` (ran, oom), and of one that ran perhaps
`tokens_per_second_per_gpu` and `memory_gib`. Rows with the same `sweep` are layouts of the same work, to be ranked."""
import csv
import json
import shlex
from pathlib import Path

HERE = Path(__file__).resolve().parent


def table(name):
    with open(HERE / name, newline="") as file:
        return list(csv.DictReader(file))


def llama(layers, hidden, feed_forward, heads, kv_heads, vocabulary, tied, sequence):
    """The text of a config.json."""
    return json.dumps({"architectures": ["LlamaForCausalLM"], "num_hidden_layers": layers, "hidden_size": hidden,
                       "intermediate_size": feed_forward, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
                       "vocab_size": vocabulary, "tie_word_embeddings": tied, "max_position_embeddings": sequence,
                       "rms_norm_eps": 1e-5, "rope_theta": 10000.0})


def rounded_up(value, step):
    return -(-value // step) * step


def degrees(**sizes):
    """"tp-sp=2+pipeline=4" without those of one rank; "ddp" if none is left."""
    return "+".join(f"{name.replace('_', '-')}={size}" for name, size in sizes.items() if size > 1) or "ddp"


def option(words, name):
    """The value behind --name, or None."""
    return words[words.index(name) + 1] if name in words else None


def as_published():
    """NVIDIA's and torchtitan's figures. A sweep: what a source says at one date of a model on as many GPUs, with sequences of one length."""
    for row in table("rows.csv"):
        sequence = option(shlex.split(row["options"]), "--sequence")
        yield {**row, "outcome": "ran", "sweep": " ".join((row["group"], row["date"], row["model"], row["gpus"], sequence))}


def out_of_memory():
    """What ran out of memory and what did not, of issues that state the layout; nothing is said of speed."""
    for row in table("memory.csv"):
        yield {**row, "tokens_per_second_per_gpu": "", "memory_gib": "", "sweep": ""}


def nanotron():
    """1B: bench_cluster's base_config.py and create_configs.py (ZeRO-1, gradients in fp32, 1F1B, no recomputation, collectives of TP not
    overlapped, 4,194,304 tokens a step). 3B: scripts/scaling_benchmarks.py, whose comments name the largest micro-batch of each TP, and that
    one GPU runs out of memory; twice the largest is taken as out of memory, too. The vocabulary is padded for TP."""
    for row in table("nanotron.csv"):
        dp, tp, pp = (int(row[name]) for name in ("dp", "tp", "pp"))
        words = ["--precision", "bf16", "--sequence", "4096", "--batch", row["micro_batch"], "--accumulation", row["accumulation"],
                 "--strategy", degrees(tp_sp=tp, pipeline=pp, zero2=dp)]
        if row["model"] == "1B":
            model = llama(24, 2048, 4096, 32, 32, rounded_up(50257, tp), True, 4096)
            source, date = "huggingface/bench_cluster, results of 8_GPUS and 64_GPUS", "2024-07"
            words += ["--tp-sp.overlap-parts", "1", "--tp-sp.delay-weight-gradients", "false"] if tp > 1 else []
            words += ["--zero2.stage", "1"] if dp > 1 else []
        else:
            model = llama(28, 3072, 8192, 32, 32, 131072, True, 4096)
            source, date = "huggingface/nanotron scripts/scaling_benchmarks.py", "2025-03"
            words += ["--tp-sp.gather-again", "true"] if tp > 1 else []
        speed = row["tokens_per_second_per_gpu"]
        if row["seconds"]:
            tokens = dp * int(row["micro_batch"]) * int(row["accumulation"]) * 4096
            speed = str(tokens / float(row["seconds"]) / int(row["gpus"]))
        yield {"group": f"nanotron, {row['model']}", "source": source, "date": date,
               "layout": f"bf16, DP {dp} TP {tp} PP {pp}, micro-batch {row['micro_batch']}", "model": model, "gpus": row["gpus"],
               "machine": "h100", "options": shlex.join(words), "outcome": row["outcome"], "tokens_per_second_per_gpu": speed,
               "memory_gib": str(float(row["memory_mib"]) / 1024) if row["memory_mib"] else "",
               "sweep": "nanotron, 1B, 8 GPUs" if row["model"] == "1B" and row["gpus"] == "8" else
               "nanotron, 3B, largest micro-batch" if speed and row["model"] == "3B" else ""}


def simumax():
    """Megatron-LM on 8 B200: distributed optimizer, gradients in fp32, sequence parallel, 1F1B, nothing overlapped, no recomputation
    (simu_tools/megatron_scripts); gathers instead of all-to-all where TP and CP divide heads both, which Consist does not do. The 12
    rows of DeepSeek-V2 and V3 are left out: Consist has no latent attention."""
    sizes = {"70b": (8192, 28672, 64, 8), "405b": (16384, 53248, 128, 16)}
    for row in table("simumax.csv"):
        dp, tp, pp, cp = (int(row[name]) for name in ("dp", "tp", "pp", "cp"))
        sequence, micro_batches = int(row["sequence"]), int(row["micro_batches"])
        hidden, feed_forward, heads, kv_heads = sizes[row["model"]]
        model = llama(int(row["layers"]), hidden, feed_forward, heads, kv_heads, rounded_up(128257, 128 * tp), False, sequence)
        words = ["--precision", "bf16", "--sequence", row["sequence"], "--batch", "1", "--accumulation", row["micro_batches"], "--strategy",
                 degrees(tp_sp=tp, cp=cp, zero2=dp, pipeline=pp) + ("+zero2" if cp > 1 else "")]
        words += ["--tp-sp.overlap-parts", "1", "--tp-sp.delay-weight-gradients", "false", "--tp-sp.gather-again", "true"] if tp > 1 else []
        words += ["--cp.attention", "gather" if tp > 1 else "ulysses"] if cp > 1 else []
        words += ["--zero2.stage", "1", "--zero2.overlap-comm", "false"] if dp > 1 or cp > 1 else []
        tokens = dp * micro_batches * sequence
        yield {"group": f"SimuMax, {row['model']}, {'context' if cp > 1 else 'sequence 4,096'}",
               "source": "MooreThreads/SimuMax docs/b200/b200_release_v1.2_summary.json", "date": "2026-05",
               "layout": f"bf16, {row['layers']} layers, DP {dp} TP {tp} PP {pp} CP {cp}, {sequence:,} x {micro_batches}", "model": model,
               "gpus": "8", "machine": "b200", "options": shlex.join(words), "outcome": "ran",
               "tokens_per_second_per_gpu": str(tokens / (float(row["milliseconds"]) / 1000) / 8), "memory_gib": row["allocated_gib"],
               "sweep": f"SimuMax, {row['model']}, {sequence:,} x {micro_batches}"}


def all_rows():
    return [*as_published(), *nanotron(), *simumax(), *out_of_memory()]
