#!/usr/bin/env python3
"""Measured steps beside what `consist predict` says of them now. Usage: predict.py [--consist build/bin/consist] [--machine NAME] [--markdown]

rows.csv holds a row per measured configuration: a machine that ships, or a machine file (here; made by `consist calibrate`, not by these
steps) of the GPUs it ran on, or of others of the kind, the layers if it is not the whole model, its options, the median of its steps and its planned memory. No device is needed. Prints errors, worst first, and in
how many comparisons of three configurations of one model and number of GPUs the one that is predicted to be fastest is it."""
import argparse
import itertools

from measured_rows import HERE, prediction_of, read_rows, shipped_machine, value_of


def predicted(consist, row, machine):
    options = row["options"].split()
    own = row["machine"] if not row["machine"].endswith(".json") else str(HERE / row["machine"])
    said = prediction_of(consist, row, machine or own)
    row["measured"] = float(row["measured_ms"])
    row["predicted"] = 1e3 * said["step_seconds"]["value"]
    row["error"] = row["predicted"] / row["measured"] - 1
    row["bar"] = said["step_error"]["value"]
    row["inside"] = row["bar"] is not None and 1e3 * said["step_seconds"]["low"] <= row["measured"] <= 1e3 * said["step_seconds"]["high"]
    row["memory"] = max(rank["device_bytes"] for rank in said["memory"]) / 2**30
    row["model"] = value_of(options, "--model", "")
    row["ranks"] = int(value_of(options, "--ranks", "1"))
    strategy = value_of(options, "--strategy", "ddp")
    data = row["ranks"] // (2 if "tp-sp" in strategy or "pipeline" in strategy else 1)
    sizes = [int(value_of(options, name, "1")) for name in ("--batch", "--accumulation", "--sequence")]
    row["tokens"] = sizes[0] * sizes[1] * sizes[2] * data


def comparisons(rows):
    """(all, right): triples of one model and number of GPUs whose fastest is more than 2% ahead of the next."""
    groups = {}
    for row in rows:
        groups.setdefault((shipped_machine(row), row["model"], row["layers"], row["ranks"]), []).append(row)
    count, right = 0, 0
    for group in groups.values():
        for three in itertools.combinations(group, 3):
            by_speed = sorted(three, key=lambda row: row["measured"] / row["tokens"])
            if by_speed[1]["measured"] / by_speed[1]["tokens"] < 1.02 * by_speed[0]["measured"] / by_speed[0]["tokens"]:
                continue
            count += 1
            right += min(three, key=lambda row: row["predicted"] / row["tokens"]) is by_speed[0]
    return count, right


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--consist", default="build/bin/consist")
    parser.add_argument("--markdown", action="store_true", help="as docs/results/predicted.md has it")
    parser.add_argument("--machine", help="one that ships, h200 or h100: all rows of such GPUs, by that machine instead of their own")
    arguments = parser.parse_args()
    rows = [row for row in read_rows() if not arguments.machine or shipped_machine(row) == arguments.machine]
    for row in rows:
        predicted(arguments.consist, row, arguments.machine)
    rows.sort(key=lambda row: -abs(row["error"]))
    for row in rows:
        line = [row["options"].replace("--", ""), row["machine"].removesuffix(".json") + ("" if row["measured_on"] == "the same GPUs" else ", another"), f"{row['measured']:.1f}",
                f"{row['error']:+.1%}", "not known" if row["bar"] is None else "" if row["inside"] else "no", f"{row['memory']:.1f} / {row['planned_gib']} GiB"]
        print("| " + " | ".join(line) + " |" if arguments.markdown else "  ".join(line[1:] + line[:1]))
    for name, some in (("all", rows), ("same GPUs", [row for row in rows if row["measured_on"] == "the same GPUs"])):
        summarize(name, some)
    print("comparisons of three: %d, the fastest is the one that was predicted in %d" % comparisons(rows))


def summarize(name, rows):
    errors = [abs(row["error"]) for row in rows]
    print(f"{name}: {len(rows)} rows, mean {sum(errors) / len(errors):.2%}, largest {max(errors):.1%}, "
          f"mean of the signed errors {sum(row['error'] for row in rows) / len(rows):+.2%}, "
          f"{sum(row['inside'] for row in rows)} within the error bar of {sum(row['bar'] is not None for row in rows)} that have one")


if __name__ == "__main__":
    main()
