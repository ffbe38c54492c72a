"""Learning rates of a configuration, by the formulas of the schedules (plugins/schedules)."""
from __future__ import annotations

import math

from consist.readers.target import Target


def rate(target: Target, done: int) -> float:
    """The rate of the step after `done` steps."""
    name, peak = target.value("schedule"), float(target.value("learning-rate"))

    def real(option: str, fallback: float) -> float:
        return float(target.options.get(f"{name}.{option}", fallback))

    warmup, last = int(real("warmup", 0)), real("final-rate", 0)
    if done < warmup:
        begin = target.options.get(f"{name}.warmup-from")
        return peak * (done + 1) / (warmup + 1) if begin is None else float(begin) + (peak - float(begin)) * done / warmup
    if name == "constant":
        return peak
    end = int(real("decay-until", 0)) or int(target.value("steps"))
    begin = warmup if name != "wsd" else max(end - math.floor(real("decay", 0.2) * end + 0.5), warmup)
    if done < begin:
        return peak
    part = min(max((done - begin) / max(end - begin, 1), 0), 1)
    shape = target.options.get("wsd.decay-shape", "1-sqrt") if name == "wsd" else name
    left = {"linear": 1 - part, "cosine": 0.5 * (1 + math.cos(math.pi * part)), "1-sqrt": 1 - math.sqrt(part)}[shape]
    return peak * (last + (1 - last) * left)
