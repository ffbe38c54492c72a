#!/usr/bin/env python3
"""Published training speeds, memory and layouts that ran out of it beside what `consist predict` says of the same configurations.

Predicts each row of sweeps.py, and prints tables in Markdown: the rows, worst first; errors of time and memory by group; the order of
each sweep's layouts; and who fits. No device is needed.

usage: predict.py [--consist PATH] [--machine-file NAME=FILE] [--jobs N] [--only TEXT] [--output results.csv] [--scores scores.json]

Error: predicted over published tokens/s per GPU, less 1. Returns 1 if a row could not be predicted.
"""
import argparse
import concurrent.futures
import csv
import json
import os
import shlex
import shutil
import subprocess
import sys

import score
import sweeps

MACHINES = {"b200": str(sweeps.HERE / "machines" / "b200.json")}  # that do not ship


def predict(consist, row, files=MACHINES):
    """The row with predicted tokens/s per GPU, memory in GiB and error. A plan that does not fit (status 1) is a prediction, too."""
    name, _, figures = row["machine"].partition(",")
    machine = ",".join(filter(None, (files.get(name, name), figures)))
    command = [consist, "predict", "--json", "--model", row["model"], "--ranks", row["gpus"], "--machine", machine]
    command += shlex.split(row["options"])
    run = subprocess.run(command, capture_output=True, text=True)
    answer = json.loads(run.stdout) if run.stdout else {}
    if "tokens_per_second" not in answer:
        return {**row, "failure": f"{shlex.join(command)}\n  status {run.returncode}: {run.stderr.strip()}"}
    predicted = answer["tokens_per_second"] / answer["ranks"]
    memory = max(stage["device_bytes"] for stage in answer["memory"]) / 2**30
    answered = {**row, "predicted": predicted, "planned_gib": memory, "fits": answer["fits"], "mfu": answer["model_flops_utilization"]}
    if row["tokens_per_second_per_gpu"]:
        answered["published"] = float(row["tokens_per_second_per_gpu"])
        answered["error"] = predicted / answered["published"] - 1
    return answered


def predict_all(consist, rows, files=MACHINES, jobs=1):
    """Predictions of all rows, and those of them that failed."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        answers = list(pool.map(lambda row: predict(consist, row, files), rows))
    return [r for r in answers if "failure" not in r], [r for r in answers if "failure" in r]


def groups_of(rows):
    groups = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    return groups


def scores_of(rows):
    """What is recorded of these rows, and held against by tests/python/test_published.py."""
    ordered = score.sweeps_of(rows)
    counts = score.fits_matrix(rows)
    errors = {name: [abs(r["error"]) for r in members if "error" in r] for name, members in groups_of(rows).items()}
    return {"order": {name: list(score.order(members)) for name, members in ordered.items()},
            "regret": {name: round(score.regret(members), 4) for name, members in ordered.items()},
            "fits": {f"{outcome}, {'fits' if fits else 'does not fit'}": number for (outcome, fits), number in counts.items()},
            "misjudged": [f"{r['group']}: {r['layout']}" for r in rows if r["fits"] != (r["outcome"] == "ran")],
            "mean_error": {name: round(sum(of) / len(of), 4) for name, of in errors.items() if of}}


def print_rows(rows):
    print("| group | model, GPUs | layout | published | predicted | error | memory, GiB: published, planned |")
    print("|---|---|---|---|---|---|---|")
    for r in sorted(rows, key=lambda r: -abs(r.get("error", 0))):
        memory = f"{float(r['memory_gib']):.1f}" if r["memory_gib"] else "out of memory" if r["outcome"] == "oom" else "-"
        memory += f", {r['planned_gib']:.1f}{'' if r['fits'] else ' (does not fit)'}"
        model = r["model"] if not r["model"].startswith("{") else r["group"]
        speed = f"{r['published']:,.0f} | {r['predicted']:,.0f} | {r['error']:+.1%}" if "error" in r else f"- | {r['predicted']:,.0f} | -"
        print(f"| {r['group']} | {model}, {r['gpus']} | {r['layout']} | {speed} | {memory} |")


def print_errors(rows):
    print("\n| group | rows | mean error | largest | mean ratio | around it: mean, largest | memory: rows, mean ratio | around it: mean, largest |")
    print("|---|---|---|---|---|---|---|---|")
    for name, members in [*groups_of(rows).items(), ("all", rows)]:
        timed = [r for r in members if "error" in r]
        sized = [r["planned_gib"] / float(r["memory_gib"]) for r in members if r["memory_gib"]]
        if not timed:
            continue
        ratio, around, widest = score.spread([1 + r["error"] for r in timed])
        memory = "- | -"
        if sized:
            mean, near, far = score.spread(sized)
            memory = f"{len(sized)}, {mean:.2f} | {near:.1%}, {far:.1%}"
        mean = sum(abs(r["error"]) for r in timed) / len(timed)
        print(f"| {name} | {len(timed)} | {mean:.1%} | {max((r['error'] for r in timed), key=abs):+.1%} | {ratio:.2f} | "
              f"{around:.1%}, {widest:.1%} | {memory} |")


def print_order(rows):
    print("\n| sweep | layouts | pairs: as published, the other way, predicted alike | Kendall's tau | speed lost by the predicted best |")
    print("|---|---|---|---|---|")
    total = [0, 0, 0]
    for name, members in score.sweeps_of(rows).items():
        counts = score.order(members)
        total = [a + b for a, b in zip(total, counts)]
        tau = score.kendall(counts)
        print(f"| {name} | {len(members)} | {counts[0]}, {counts[1]}, {counts[2]} | {'-' if tau is None else f'{tau:.2f}'} | "
              f"{score.regret(members):.1%} |")
    if sum(total):
        print(f"| all | | {total[0]}, {total[1]}, {total[2]} | {score.kendall(total):.2f} | |")


def print_fits(rows):
    counts = score.fits_matrix(rows)
    print("\n| | predicted to fit | predicted not to fit |\n|---|---|---|")
    for outcome, words in (("ran", "ran"), ("oom", "out of memory")):
        print(f"| {words} | {counts[outcome, True]} | {counts[outcome, False]} |")


def options_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--consist", default="consist", help="the program [consist, from PATH]")
    parser.add_argument("--machine-file", action="append", default=[], metavar="NAME=FILE",
                        help="a machine file, perhaps with figures behind commas, for the rows of machine NAME; repeatable")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2), help="predictions at a time")
    parser.add_argument("--only", default="", help="rows whose group, model or layout contains this")
    parser.add_argument("--output", help="CSV of the rows with their predictions")
    parser.add_argument("--scores", help="JSON of the scores")
    options = parser.parse_args()
    files = dict(pair.split("=", 1) for pair in options.machine_file if "=" in pair)
    if len(files) != len(options.machine_file):
        parser.error("--machine-file must be NAME=FILE, such as h100=here.json, once per name")
    return options, {**MACHINES, **files}


def main():
    options, files = options_of()
    rows = [r for r in sweeps.all_rows() if options.only in " ".join((r["group"], r["model"], r["layout"]))]
    if not shutil.which(options.consist):
        sys.exit(f"predict.py: there is no program '{options.consist}'; name it with --consist, such as build/bin/consist")
    if not rows:
        sys.exit(f"predict.py: no row contains '{options.only}' in its group, model or layout")
    rows, failed = predict_all(options.consist, rows, files, options.jobs)
    for show in (print_rows, print_errors, print_order, print_fits) if rows else ():
        show(rows)
    if options.output and rows:
        with open(options.output, "w", newline="") as file:
            names = list(dict.fromkeys(key for row in rows for key in row))
            writer = csv.DictWriter(file, fieldnames=names, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    if options.scores:
        with open(options.scores, "w") as file:
            json.dump(scores_of(rows), file, indent=1)
            file.write("\n")
    if failed:
        print(f"\n{len(failed)} rows could not be predicted; the first of them: {failed[0]['failure']}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
