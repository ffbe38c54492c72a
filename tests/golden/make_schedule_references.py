#!/usr/bin/env python3
"""Writes tests/golden/schedules.json: shares of the peak that the schedules of transformers have at each step.

Usage: make_schedule_references.py [optimization.py]     (default: that of the transformers that is installed; 4.57.1 made the file)

The functions get_*_schedule* hand these to torch's LambdaLR. They are taken from the file's text, since importing it needs torch, which
they do not.

fields of the file
  runs    the schedule's name here, its options here, the number of steps, and the shares of the peak of the steps, two beyond the last
"""

import importlib.util
import json
import math
import pathlib
import sys

source = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(importlib.util.find_spec("transformers").origin).parent / "optimization.py"


def functions_of(text):
    """The private functions, which compute with math alone. The second of the two cosine functions also has the least rate."""
    names = {"math": math, "Optional": __import__("typing").Optional}
    for part in text.split("\ndef ")[1:]:
        if part.startswith("_get_"):
            exec("def " + part.split("\n\n\n")[0], names)
    return names


f = functions_of(source.read_text())
runs = []


def add(name, options, steps, shares):
    runs.append({"schedule": name, "options": options, "steps": steps, "shares": [float(shares(k)) for k in range(steps + 3)]})


for warmup, steps in ((0, 1), (0, 12), (4, 12), (5, 40), (11, 12)):
    given = {"warmup": str(warmup), "warmup-from": "0"}
    add("constant", given, steps, lambda k: f["_get_constant_schedule_with_warmup_lr_lambda"](k, num_warmup_steps=warmup))
    add("linear", given | {"final-rate": "0"}, steps,
        lambda k: f["_get_linear_schedule_with_warmup_lr_lambda"](k, num_warmup_steps=warmup, num_training_steps=steps))
    for last in (0.0, 0.25):
        # Beyond the last step the cosine of transformers rises again; here a schedule stays where it ends.
        add("cosine", given | {"final-rate": str(last)}, steps,
            lambda k: f["_get_cosine_schedule_with_warmup_lr_lambda"](min(k, steps), num_warmup_steps=warmup,
                                                                      num_training_steps=steps, num_cycles=0.5, min_lr_rate=last))
    for shape in ("linear", "cosine", "1-sqrt"):
        for last in (0.0, 0.25):
            decay = steps // 4
            if decay == 0 or warmup + decay > steps:
                continue
            add("wsd", {"warmup": str(warmup), "warmup-from": str(last), "decay": "0.25", "decay-shape": shape, "final-rate": str(last)}, steps,
                lambda k: f["_get_wsd_scheduler_lambda"](k, num_warmup_steps=warmup, num_stable_steps=steps - warmup - decay,
                                                         num_decay_steps=decay, warmup_type="linear", decay_type=shape,
                                                         min_lr_ratio=last, num_cycles=0.5))

lines = ",\n    ".join(json.dumps(run) for run in runs)
(pathlib.Path(__file__).parent / "schedules.json").write_text('{\n  "source": "transformers 4.57.1, optimization.py",\n  "runs": [\n    ' + lines + "\n  ]\n}\n")
