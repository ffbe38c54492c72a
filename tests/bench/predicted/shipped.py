#!/usr/bin/env python3
"""A machine file that ships, with what was measured on such a machine. Usage: shipped.py [--add OP,... | --power | --links] CALIBRATED.json core/cost/machines/NAME.json

What the calibration did not measure, whole ops or sizes of an op far from all that it did, stays, at the same speed beside the ops that both files have.

With --add, takes the times of these ops alone (a * at the end stands for the rest of a name), which the second file has not yet: those of
mixtures of experts, say, of a file that `consist calibrate --models qwen3-30b-a3b` wrote. With --power, takes the power alone. With --links, takes what several ranks of one node
measured of each other: curves of collectives of that many members within a node, by transport (those of other numbers of members stay), what they and kernels leave each other, the
host's links and the skew of ranks. Without, takes the times of ops, the power, what the load does to the clock and the host's links from a file of `consist calibrate`, and rewrites the second
file with them. Peaks, links between GPUs and nodes, and what several GPUs leave each other of the host's links stay as they are there."""
import argparse
import fnmatch
import json
import math
import pathlib
import statistics
import sys

MEASURED = "measured on such a machine"


def marked(value):
    """What was measured there was not measured here."""
    if isinstance(value, dict):
        return {k: MEASURED if k == "source" else marked(v) for k, v in value.items()}
    if isinstance(value, list):
        return [float(f"{v:.6g}") if isinstance(v, float) else marked(v) for v in value]
    return value


def text_of(value, depth=0):
    """JSON in which a list of numbers is one line."""
    pad = "  " * (depth + 1)
    if isinstance(value, dict) and any(isinstance(v, (dict, list)) for v in value.values()):
        return "{\n" + ",\n".join(f"{pad}{json.dumps(k)}: {text_of(v, depth + 1)}" for k, v in value.items()) + "\n" + pad[2:] + "}"
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        return "[\n" + ",\n".join(pad + text_of(v, depth + 1) for v in value) + "\n" + pad[2:] + "]"
    return json.dumps(value)


def unloaded(times, point, device):
    """Seconds of a point at no load (cost.h, Throttling)."""
    sensitivity = 1 if point[0] > 0 else device["throttling"]["memory_bound"]["value"]
    return point[2] / (1 + sensitivity * point[3])


def of(times):
    return times["op"], times["dtype"], times.get("depth")


def compared(first, second, alone=None):
    """What "no load" is differs between two fits. By how much times of the second device file are longer than the first's where both have an
    op at like sizes, and the second's demands: by whether it is a product. Of one op alone, or of all but attention."""
    there = {of(times): times for times in second["times"]}
    ratios, demands = {True: [], False: []}, {True: [], False: []}
    for times in first["times"]:
        if of(times) not in there or (times["op"].startswith("attention") if alone is None else of(times) != alone):
            continue
        like = there[of(times)]
        for point in times["points"]:
            nearest = min(like["points"], key=lambda p: abs(math.log(max(p[1], 1) / max(point[1], 1))) + abs(math.log(max(p[0], 1) / max(point[0], 1))))
            if all(x == y or 0.8 < x / max(y, 1) < 1.25 for x, y in zip(nearest[:2], point[:2])):
                work = (point[0] or point[1]) / (nearest[0] or nearest[1])
                ratios[point[0] > 0].append(unloaded(like, nearest, second) * work / unloaded(times, point, first))
                demands[point[0] > 0].append(like["demand"])
    return ratios, demands


def brought(times, points, ratio, first):
    """Points of the first device file as the second has them."""
    return [p[:2] + [unloaded(times, p, first) * ratio, 0.0] + p[4:] for p in points]


def add(calibrated, known, names):
    there = {of(times) for times in known["times"]}
    ratios, demands = compared(calibrated, known)
    for times in calibrated["times"]:
        if not any(fnmatch.fnmatch(times["op"], name) for name in names):
            continue
        if of(times) in there:
            sys.exit(f"the known file has times of {times['op']}")
        product = times["points"][-1][0] > 0
        if not ratios[product]:
            sys.exit(f"the files have no times of like sizes that those of {times['op']} could be compared by")
        ratio = statistics.median(ratios[product])
        known["times"].append(marked({**times, "demand": statistics.median(demands[product]),
                                      "points": brought(times, times["points"], ratio, calibrated)}))
        print(f"{times['op']}: {ratio:.3f} of the times there, by {len(ratios[product])} points")


def far(point, points):
    """More than three times the work of every other point, or less than a third."""
    return all(abs(math.log(max(p[i], 1) / max(point[i], 1))) > math.log(3) for p in points for i in (0 if point[0] > 0 else 1,))


def keep(known, calibrated):
    """What the file had that the new one lacks."""
    ratios, demands = compared(known, calibrated)
    there = {of(times): times for times in calibrated["times"]}
    for times in known["times"]:
        product = times["points"][-1][0] > 0
        ratio = statistics.median(ratios[product])
        if of(times) not in there:
            calibrated["times"].append({**times, "demand": statistics.median(demands[product]),
                                        "points": brought(times, times["points"], ratio, known)})
            print(f"{times['op']} stays, {ratio:.3f} of its times")
            continue
        new = there[of(times)]
        kept = [p for p in times["points"] if far(p, new["points"])]
        if not kept:
            continue
        ratio = statistics.median(compared(known, calibrated, of(times))[0][product])
        new["points"] = sorted(new["points"] + brought(times, kept, ratio, known))
        for point in kept:
            print(f"{times['op']} of {point[0]:.3g} FLOPs and {point[1]:.3g} bytes stays, {ratio:.3f} of its time")


def take_power(calibrated, known):
    """Of a file that measured it; the limit stays the data sheet's."""
    power = calibrated.get("power", {})
    for name in ("idle", "loads"):
        if "loads" in power:
            known.setdefault("power", {})[name] = marked(power[name])


def take_node_links(calibrated, known):
    """Between ranks of a node. Curves of other numbers of members stay; the fallback for all others stays the known file's."""
    def is_new(curve):
        return curve["op"] != "*" and not any(c["op"] == curve["op"] and c["members"] == curve["members"] for c in measured)
    measured = [{**curve, "source": MEASURED} for curve in calibrated["curves"] if curve["op"] != "*" and curve["source"].startswith("measured")]
    if not measured:
        sys.exit("no link was measured there")
    known["curves"] = measured + [curve for curve in known["curves"] if curve["op"] == "*" or is_new(curve)]
    for name in ("beside_compute", "compute_beside"):
        known[name] = marked(calibrated[name])


def take_links(calibrated, known):
    take_node_links(calibrated["node"], known["node"])
    for name, links in calibrated["transports"].items():
        there = known["transports"].get(name, {}).get("node")
        if isinstance(there, dict) and links["node"]["curves"][0]["source"].startswith("measured") and name != "nvlink":
            take_node_links(links["node"], there)
    for name in ("host_shared", "host_both", "rank_skew"):
        known[name] = marked(calibrated[name])
    known["host_shared_ranks"] = calibrated["host_shared_ranks"]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--add", type=lambda text: text.split(","))
    options.add_argument("--power", action="store_true")
    options.add_argument("--links", action="store_true")
    options.add_argument("calibrated", type=pathlib.Path)
    options.add_argument("known", type=pathlib.Path)
    given = options.parse_args()
    calibrated = json.loads(given.calibrated.read_text())
    path = given.known
    known = json.loads(path.read_text())
    if given.add:
        add(calibrated["device"], known["device"], given.add)
        path.write_text(text_of(known) + "\n")
        return
    if given.power or given.links:
        (take_power if given.power else take_links)(calibrated, known)
        path.write_text(text_of(known) + "\n")
        return
    keep(known["device"], calibrated["device"])
    for name in ("throttling", "times"):
        known["device"][name] = marked(calibrated["device"][name])
    # One rank has no skew, and alone it has more of a link that both directions share than several have.
    for name in ("host_alone",) if calibrated["ranks_per_node"] == 1 else ("host_alone", "host_both", "rank_skew"):
        if calibrated.get(name, {}).get("value"):
            known[name] = marked(calibrated[name])
    take_power(calibrated, known)
    path.write_text(text_of(known) + "\n")


main()
