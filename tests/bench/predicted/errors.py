#!/usr/bin/env python3
"""Errors of machines that ship, by kind of step, from the measured steps of rows.csv. Usage: errors.py [--consist build/bin/consist] [--write] [MACHINE...]

Predicts every row of a machine with the file that ships, and takes the errors of the kinds of step (docs/predict.md) that the row
is one of. --write puts them into core/cost/machines/NAME.json; without it nothing is written, and the status is 1 if the file has
others. No device is needed."""
import argparse
import json
import math
import re
import sys

from measured_rows import ROOT, prediction_of, read_rows, shipped_machine

LEAST = 3  # least_measured_steps of core/cost/step_errors.h
ONE_DEVICE = "one device"


def student_t(freedom):
    """The 97.5% quantile, by halving what the density's integral leaves."""
    scale = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)

    def below(t, parts=2000):  # Simpson, from 0
        density = [scale * (1 + (t * n / parts) ** 2 / freedom) ** (-(freedom + 1) / 2) for n in range(parts + 1)]
        return t / parts / 3 * (density[0] + density[-1] + 4 * sum(density[1:-1:2]) + 2 * sum(density[2:-1:2]))

    low, high = 0.0, 20.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < 0.475 else (low, middle)
    return low


def half_width(errors):
    """As launch/measure/step_errors.h."""
    return student_t(len(errors)) * math.sqrt(sum(error * error for error in errors) / len(errors))


def combined(widths, kinds):
    """As error_bar() of core/cost/step_errors.h; None where a kind is not known."""
    if any(kind not in widths for kind in kinds):
        return None
    device = widths[ONE_DEVICE] ** 2
    return math.sqrt(device + sum(max(0, widths[kind] ** 2 - device) for kind in kinds))


def level(kind):
    return 0 if kind == ONE_DEVICE else 1 if kind.endswith((" within a node", " between nodes")) else 2


def by_kind(rows):
    """{kind: errors}. A row counts as counts_for() of core/cost/step_errors.h says."""
    errors = {}
    for kinds, error in rows:
        for kind in kinds:
            if level(kind) == max(map(level, kinds)):
                errors.setdefault(kind, []).append(error)
    return errors


def widths_of(rows):
    return {kind: half_width(errors) for kind, errors in by_kind(rows).items() if len(errors) >= LEAST}


def errors_of(consist, machine):
    rows = []
    for row in read_rows():
        if shipped_machine(row) != machine:
            continue
        said = prediction_of(consist, row, machine)
        predicted, measured = said["step_seconds"]["value"], float(row["measured_ms"]) / 1e3
        kinds = [kind["kind"] for kind in said["step_error"]["kinds"]]
        rows.append((kinds, (predicted / measured - 1) if predicted > measured else -(measured / predicted - 1), row))
    return rows


def covered(rows):
    """(known, inside): rows whose error is known, and those that lie within the one that the others alone would give them."""
    known = inside = 0
    for n, (kinds, error) in enumerate(rows):
        width = combined(widths_of(rows[:n] + rows[n + 1:]), kinds)
        known += width is not None
        inside += width is not None and abs(error) <= width
    return known, inside


def text_of(errors):
    lines = ",\n".join(f'    {{"kind": {json.dumps(kind)}, "value": {width:.4g}, "steps": {steps}, "source": "measured on such a machine"}}'
                       for kind, width, steps in errors)
    return '"step_errors": [\n' + lines + "\n  ]"


def put(machine, errors, write):
    """Whether the file had them already."""
    path = ROOT / "core/cost/machines" / (machine + ".json")
    before = path.read_text()
    after = re.sub(r'"step_error(s": \[.*?\n  \]|": \{.*?\})', lambda _: text_of(errors), before, count=1, flags=re.DOTALL)
    if write:
        path.write_text(after)
    return before == after


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--consist", default="build/bin/consist")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("machines", nargs="*", default=[])
    arguments = parser.parse_args()
    same = True
    for machine in arguments.machines or sorted({shipped_machine(row) for row in read_rows()}):
        found = errors_of(arguments.consist, machine)
        for kinds, error, row in sorted(found, key=lambda one: -abs(one[1])):
            print(f"{error:+7.1%}  {row['measured_ms']:>8} ms  {', '.join(kinds)}: {row['options'].replace('--', '')}"
                  + (f" ({row['layers']} layers)" if row["layers"] else ""))
        rows = [(kinds, error) for kinds, error, _ in found]
        widths = widths_of(rows)
        for kind, errors in by_kind(rows).items():
            print(f"{machine}, {kind}: {len(errors)} steps, " + (f"±{widths[kind]:.1%}" if kind in widths else "not known"))
        print("%s: of %d steps whose error the others give, %d lie within it" % (machine, *covered(rows)))
        same = put(machine, [(kind, widths[kind], len(errors)) for kind, errors in by_kind(rows).items() if kind in widths],
                   arguments.write) and same
    sys.exit(0 if same or arguments.write else 1)


if __name__ == "__main__":
    main()
