#!/usr/bin/env python3
"""Published training speeds of others beside what `consist predict` says of the same configurations.

Reads rows.csv, predicts each row's step, and prints a table in Markdown, worst first, and the errors by group. No device is needed.

usage: predict.py [--consist PATH] [--rows rows.csv] [--machine-file NAME=FILE] [--jobs N] [--only TEXT] [--output results.csv]

Error: predicted over published tokens/s per GPU, less 1. Returns 1 if a row could not be predicted.
"""
import argparse
import concurrent.futures
import csv
import json
import math
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def predict(consist, files, row):
    """The row with predicted tokens/s per GPU, memory in GiB and error. A plan that does not fit (status 1) is a prediction, too."""
    name, _, figures = row["machine"].partition(",")
    machine = ",".join(filter(None, (files.get(name, name), figures)))
    command = [consist, "predict", "--json", "--model", row["model"], "--ranks", row["gpus"], "--machine", machine]
    command += shlex.split(row["options"])
    run = subprocess.run(command, capture_output=True, text=True)
    try:
        answer = json.loads(run.stdout)
    except json.JSONDecodeError:
        return {**row, "failure": f"{shlex.join(command)}\n  status {run.returncode}: {run.stderr.strip()}"}
    published = float(row["tokens_per_second_per_gpu"])
    predicted = answer["tokens_per_second"] / answer["ranks"]
    memory = max(stage["device_bytes"] for stage in answer["memory"])
    return {**row, "predicted": predicted, "error": predicted / published - 1, "planned_gib": memory / 2**30,
            "fits": answer["fits"], "mfu": answer["model_flops_utilization"]}


def spread(errors):
    """Geometric mean of predicted over published; mean and largest distance from it, as fractions."""
    ratios = [1 + e for e in errors]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    distances = [abs(r / mean - 1) for r in ratios]
    return mean, sum(distances) / len(distances), max(distances)


def table(rows):
    print("| group | model, GPUs | layout | published | predicted | error | memory, GiB: published, planned |")
    print("|---|---|---|---|---|---|---|")
    for r in sorted(rows, key=lambda r: -abs(r["error"])):
        memory = f"{r['memory_gib'] or '-'}, {r['planned_gib']:.1f}{'' if r['fits'] else ' (does not fit)'}"
        print(f"| {r['group']} | {r['model']}, {r['gpus']} | {r['layout']} | {float(r['tokens_per_second_per_gpu']):,.0f} | "
              f"{r['predicted']:,.0f} | {r['error']:+.1%} | {memory} |")


def summary(rows):
    print("\n| group | rows | mean error | largest | mean ratio | around it: mean, largest |")
    print("|---|---|---|---|---|---|")
    groups = list(dict.fromkeys(r["group"] for r in rows))
    for name, of in [(g, [r for r in rows if r["group"] == g]) for g in groups] + [("all", rows)]:
        errors = [r["error"] for r in of]
        ratio, around, widest = spread(errors)
        mean = sum(map(abs, errors)) / len(errors)
        print(f"| {name} | {len(of)} | {mean:.1%} | {max(errors, key=abs):+.1%} | {ratio:.2f} | {around:.1%}, {widest:.1%} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--consist", default="consist", help="the program [consist, from PATH]")
    parser.add_argument("--rows", default=str(HERE / "rows.csv"))
    parser.add_argument("--machine-file", action="append", default=[], metavar="NAME=FILE",
                        help="a machine file for the rows of machine NAME; repeatable")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="predictions at a time")
    parser.add_argument("--only", default="", help="rows whose group, model or layout contains this")
    parser.add_argument("--output", help="CSV of the rows with their predictions")
    options = parser.parse_args()

    files = dict(pair.split("=", 1) for pair in options.machine_file if "=" in pair)
    if len(files) != len(options.machine_file):
        parser.error("--machine-file must be NAME=FILE, such as h100=here.json, once per name")

    with open(options.rows, newline="") as file:
        rows = [r for r in csv.DictReader(file) if options.only in " ".join((r["group"], r["model"], r["layout"]))]
    if not shutil.which(options.consist):
        sys.exit(f"predict.py: there is no program '{options.consist}'; name it with --consist, such as build/bin/consist")
    if not rows:
        sys.exit(f"predict.py: no row of {options.rows} contains '{options.only}' in its group, model or layout")
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda row: predict(options.consist, files, row), rows))
    failed = [r for r in rows if "failure" in r]
    rows = [r for r in rows if "failure" not in r]
    if rows:
        table(rows)
        summary(rows)
    if options.output and rows:
        with open(options.output, "w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if failed:
        print(f"\n{len(failed)} rows could not be predicted; the first of them: {failed[0]['failure']}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
