"""Steps and the learning rate of Megatron-LM's arguments.

Rates are those of megatron/core/optimizer_param_scheduler.py, which counts samples; where these are no whole steps, the
nearest step is taken and said.
"""
from __future__ import annotations

import math

from .messages import as_text
from .stored import StoredValues
from .target import GOES_BEFORE, MOST_STEPS, Target

_MOST_SAMPLES = 10 ** 15
_OF_SCHEDULE = ("lr-decay-iters", "lr-decay-samples", "lr-warmup-iters", "lr-warmup-samples", "lr-warmup-fraction",
                "lr-warmup-init", "min-lr", "lr-wsd-decay-style", "lr-wsd-decay-iters", "lr-wsd-decay-samples")


class Schedule:
    """Steps, the peak, and the options of the schedule."""

    def __init__(self, values: StoredValues) -> None:
        self.values = values
        self.target: Target = values.target

    def read(self) -> None:
        """Reads all of it. Raises UsageError for a schedule that is not done here."""
        values, target = self.values, self.target
        self._read_steps()
        if values.has("lr"):
            values.state("lr", "learning-rate", values.number("lr", 0))
        self.name = values.choice("lr-decay-style", "linear", ("constant", "linear", "cosine", "WSD")).lower()
        values.state("lr-decay-style", "schedule", self.name)
        if target.value("schedule") != self.name:
            values.note(f"--schedule {target.value('schedule')}{GOES_BEFORE}", *_OF_SCHEDULE)
            return
        values.note(f"options of --schedule {self.name}", *_OF_SCHEDULE)
        self.until = max(self._steps("lr-decay", int(target.value("steps")), 1), 1)
        self._read_warmup()
        if self.name != "constant":
            self._read_decay()

    def _read_steps(self) -> None:
        values, target = self.values, self.target
        if values.has("train-samples"):
            if values.has("train-iters"):
                values.refuse("train-samples", "is given beside train-iters, which Megatron-LM refuses, too")
            values.state("train-samples", "steps", self._steps_of("train-samples"))
        elif values.has("train-iters"):
            values.state("train-iters", "steps", values.whole("train-iters", 0, 1, MOST_STEPS))
        else:
            target.differs(f"train-iters is absent: --steps {target.value('steps')}")

    def _steps(self, name: str, fallback: int, least: int = 0, most: int = MOST_STEPS) -> int:
        """The steps of NAME-samples or NAME-iters."""
        if self.values.has(f"{name}-samples"):
            return self._steps_of(f"{name}-samples")
        return self.values.whole(f"{name}-iters", fallback, least, most)

    def _steps_of(self, name: str) -> int:
        """Samples as steps of the global batch, the nearest."""
        values = self.values
        samples = values.number(name, 0)
        if not 0 <= samples <= _MOST_SAMPLES:
            values.refuse(name, f"is {as_text(samples)}; it must be a number of samples")
        batch = int(self.target.value("global-batch") or 0)
        if samples and not batch:
            values.refuse(name, "counts samples, so that steps follow from global-batch-size, which is not given; give "
                                "--global-batch")
        return self._nearest(name, samples / batch, f" of {batch} samples") if samples else 0

    def _nearest(self, name: str, steps: float, unit: str = "") -> int:
        nearest = math.floor(steps + 0.5)
        if nearest != steps:
            self.values.note(f"{as_text(steps)} steps{unit}: taken as {nearest}", name)
        return nearest

    def _derive(self, origin: str, option: str, value: float) -> None:
        self.target.derive_plugin(origin, self.name, option, as_text(value))

    def _read_warmup(self) -> None:
        values, name = self.values, "lr-warmup-fraction"
        if values.has(name):
            fraction = values.number(name, 0)
            if not 0 <= fraction <= 1:
                values.refuse(name, f"is {as_text(fraction)}; it must be from 0 to 1")
            warmup = self._nearest(name, fraction * self.until)
        else:
            warmup = self._steps("lr-warmup", 0)
        self._derive("warm-up", "warmup", warmup)
        if warmup:  # step k has init + (peak - init) k/w, so that the first one has init
            self._derive("warm-up", "warmup-from", values.number("lr-warmup-init", 0))

    def _read_decay(self) -> None:
        values, target = self.values, self.target
        peak, least = float(target.value("learning-rate")), values.number("min-lr", 0)
        if not 0 <= least <= peak:
            values.refuse("min-lr", f"is {as_text(least)}; it must be from 0 to the peak {as_text(peak)}")
        self._derive("min-lr", "final-rate", least / peak if peak else 0)
        if self.until != int(target.value("steps")):
            self._derive("lr-decay-iters", "decay-until", self.until)
        if self.name != "wsd":
            return
        shape = values.choice("lr-wsd-decay-style", "exponential", ("linear", "cosine", "minus_sqrt"))
        target.derive_plugin("lr-wsd-decay-style", "wsd", "decay-shape", "1-sqrt" if shape == "minus_sqrt" else shape)
        if not values.has("lr-wsd-decay-iters") and not values.has("lr-wsd-decay-samples"):
            values.refuse("lr-wsd-decay-iters", "is not given, which the style WSD needs")
        self._derive("lr-wsd-decay-iters", "decay", self._steps("lr-wsd-decay", 0, most=self.until) / self.until)
