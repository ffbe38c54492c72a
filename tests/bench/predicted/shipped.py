#!/usr/bin/env python3
"""A machine file that ships, with what was measured on such a machine. Usage: shipped.py CALIBRATED.json core/cost/machines/NAME.json

Takes the times of ops, what the load does to the clock and the host's links from a file of `consist calibrate`, and rewrites the second
file with them. Peaks, links between GPUs and nodes, and what several GPUs leave each other of the host's links stay as they are there."""
import json
import pathlib
import sys

MEASURED = "measured on such a machine"


def marked(value):
    """What was measured there was not measured here."""
    if isinstance(value, dict):
        return {k: MEASURED if k == "source" else marked(v) for k, v in value.items()}
    if isinstance(value, list):
        return [marked(v) for v in value]
    return value


def text_of(value, depth=0):
    """JSON in which a list of numbers is one line."""
    pad = "  " * (depth + 1)
    if isinstance(value, dict) and any(isinstance(v, (dict, list)) for v in value.values()):
        return "{\n" + ",\n".join(f"{pad}{json.dumps(k)}: {text_of(v, depth + 1)}" for k, v in value.items()) + "\n" + pad[2:] + "}"
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        return "[\n" + ",\n".join(pad + text_of(v, depth + 1) for v in value) + "\n" + pad[2:] + "]"
    return json.dumps(value)


def main():
    calibrated = json.loads(pathlib.Path(sys.argv[1]).read_text())
    path = pathlib.Path(sys.argv[2])
    known = json.loads(path.read_text())
    for name in ("throttling", "times"):
        known["device"][name] = marked(calibrated["device"][name])
    for name in ("host_alone", "host_both", "rank_skew"):
        if name in calibrated:
            known[name] = marked(calibrated[name])
    path.write_text(text_of(known) + "\n")


main()
