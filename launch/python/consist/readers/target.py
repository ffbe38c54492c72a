"""The target of another trainer's values: options of a run, with what is said about each key."""
from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, NoReturn, Optional, Sequence, Set, Tuple

from .messages import UsageError, as_text, one_line, printable, shown

GOES_BEFORE = " is given and goes before the file"
MOST_RANKS = 65_536
MOST_STEPS = 10 ** 12

# Consist's own values of options that readers look at (core/config/option_table.cpp).
DEFAULTS = {"ranks": "1", "precision": "fp32", "device": "auto", "seed": "0", "steps": "100", "recompute": "none",
            "strategy": "ddp", "schedule": "constant", "learning-rate": "0.0003", "batch": "4", "accumulation": "1"}


@dataclass(frozen=True)
class Source:
    """A file as messages name it."""

    path: str
    format: str  # the first word of notes: "torchtitan"
    trainer: str  # whose defaults absent keys have: "torchtitan"
    example: str  # of a replacement: "parallelism.tensor_parallel_degree=2"
    option: str = "--from"  # that named it
    set_option: str = "--from-set"  # that replaces its values

    @property
    def where(self) -> str:
        """The beginning of messages."""
        return f"{self.option} {self.path}: "


@dataclass(frozen=True)
class Sizes:
    """What readers ask of a model."""

    layers: int
    experts: int = 0


@dataclass
class Context:
    """The command line that a file is read beside."""

    given: Mapping[str, str] = field(default_factory=dict)  # "steps", "zero2.stage": what the command line gives
    sizes: Optional[Sizes] = None  # of the model of the command line
    replacements: Sequence[str] = ()  # "a.b=VALUE", in place of the file's values
    each_key: bool = False  # notes have a line for each key instead of a summary


Strategy = Tuple[str, int]  # "tp-sp" of 2 ranks; 0: those that are left


def first_layers(count: int) -> str:
    """The first layers as options name them: "0-3"."""
    return f"0-{count - 1}" if count > 1 else "0"


def strategies_text(strategies: Sequence[Strategy]) -> str:
    """The value of --strategy: "tp-sp=2+zero3-offload"."""
    return "+".join(f"{name}={size}" if size else name for name, size in strategies)


HONOURED, WITHOUT_EFFECT, BEHIND_COMMAND_LINE = "honoured", "without effect", "behind the command line"


@dataclass
class Entry:
    """What became of a key."""

    key: str
    value: Any
    what: str
    fate: str


class Target:
    """The options of a run while a file is read into them. What the command line gives goes before the file."""

    def __init__(self, source: Source, context: Context) -> None:
        self.source = source
        self.context = context
        self.options: Dict[str, str] = {}  # that the file sets, or that follow from it
        self.stated: Set[str] = set()  # options that the file or the trainer's default has stated, given ones included
        self.entries: List[Entry] = []
        self.strategies: List[Strategy] = []  # as the file has them
        self.model_sizes: Optional[Sizes] = context.sizes
        self.preface: List[str] = []  # lines before all others: what of a script is not known
        self.remarks: List[str] = []  # lines that everybody gets, as differs() makes them
        self.refusals: List[str] = []
        self._details: List[str] = []
        self.defaults: List[str] = []

    # Refusals

    def refuse(self, key: str, why: str) -> NoReturn:
        """Raises UsageError about a key."""
        raise UsageError(f"{self.source.where}{one_line(key)} {why}")

    def attempt(self, step: Callable[[], None]) -> None:
        """Runs a step of a reader. What it refuses waits for throw_refusals(), which says all together."""
        try:
            step()
        except UsageError as refusal:
            text = str(refusal)
            where = self.source.where
            self.refusals.append(text[len(where):] if text.startswith(where) else text)

    def throw_refusals(self) -> None:
        """Raises UsageError with everything that attempt() has caught, if that is something."""
        if not self.refusals:
            return
        if len(self.refusals) == 1:
            raise UsageError(self.source.where + self.refusals[0])
        head = f"{self.source.where}{len(self.refusals)} things are not done here:"
        raise UsageError("\n  ".join([head, *self.refusals]))

    # Notes

    def note(self, key: str, value: Any, what: str) -> None:
        """Notes the effect of a key. A text that begins with "no effect" says that it has none here."""
        fate = (WITHOUT_EFFECT if what.startswith("no effect")
                else BEHIND_COMMAND_LINE if what.endswith(GOES_BEFORE) else HONOURED)
        self.entries.append(Entry(one_line(key), value, what, fate))
        self.detail(f"{one_line(key)} {shown(value)}: {what}")

    def detail(self, text: str) -> None:
        """A line for who asks what became of each key: "parallelism: --ranks 8"."""
        self._details.append(f"{self.source.format} {text}")

    def differs(self, text: str) -> None:
        """A line that everybody gets: what is done otherwise here, or could not be read."""
        self.remarks.append(f"{self.source.format} {text}")

    def notes(self) -> List[str]:
        """The lines about the file: the preface, each key or a summary, then those of differs()."""
        details = list(self._details)
        if self.defaults:
            details.append(f"{self.source.format} keys that are absent have {self.source.trainer}'s defaults: "
                           + ", ".join(self.defaults))
        return self.preface + (details if self.context.each_key else self._summary()) + self.remarks

    def _summary(self) -> List[str]:
        fates = {entry.key: entry.fate for entry in self.entries}
        honoured = sum(fate == HONOURED for fate in fates.values())
        line = (f"{self.source.option} {printable(self.source.path)}, of {self.source.trainer}: {honoured} "
                + ("key is taken over" if honoured == 1 else "keys are taken over"))
        if self.defaults:
            line += f", {len(self.defaults)} {'option has' if len(self.defaults) == 1 else 'options have'} its defaults"
        lines = [line + "; --from-notes says what became of each key"]
        for fate, what in ((WITHOUT_EFFECT, "keys without effect here"),
                           (BEHIND_COMMAND_LINE, "keys behind what the command line gives")):
            keys = sorted(key for key, of_key in fates.items() if of_key == fate)
            if keys:
                lines.append(f"{self.source.format} {what}: {', '.join(keys)}")
        return lines

    # Values of the file: each raises UsageError that names the key for a value of another kind

    def number(self, key: str, value: Any) -> float:
        """A number."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            self.refuse(key, f'is {shown(value)}; it must be a number or "auto"')
        return float(value)

    def whole(self, key: str, value: Any, least: int, most: int) -> int:
        """A whole number in a range."""
        read = self.number(key, value)
        if read != math.floor(read) or not least <= read <= most:
            self.refuse(key, f"is {shown(value)}; it must be a whole number from {least} to {most}")
        return int(read)

    def truth(self, key: str, value: Any) -> bool:
        """A truth value."""
        if not isinstance(value, bool):
            self.refuse(key, f'is {shown(value)}; it must be true, false or "auto"')
        return value

    # Options

    def given(self, option: str) -> bool:
        """True if the command line gives the option ("steps", "zero2.stage")."""
        return option in self.context.given

    def value(self, option: str) -> str:
        """The option's present value: of the command line, else of the file, else Consist's default, else ''."""
        given = self.context.given
        return given[option] if option in given else self.options.get(option, DEFAULTS.get(option, ""))

    def set(self, option: str, value: Any) -> None:
        """Sets an option without a note, unless the command line gives it."""
        self.stated.add(option)
        if not self.given(option):
            self.options[option] = as_text(value)

    def state(self, key: str, value: Any, option: str, wanted: Any) -> None:
        """The option takes `wanted`, which the value of `key` amounts to."""
        self.set(option, wanted)
        if self.given(option) and not _means(self.context.given[option], wanted):
            self.note(key, value, f"--{option} {_given_text(self.context.given[option], wanted)}{GOES_BEFORE}")
        else:
            self.note(key, value, f"--{option} {as_text(wanted)}")

    def absent(self, key: str, option: str, fallback: Any) -> None:
        """`key` is absent: the option has the trainer's default unless the command line or another key gives it."""
        if self.given(option) or option in self.stated:
            return
        self.set(option, fallback)
        self.defaults.append(f"--{option} {as_text(fallback)} ({key})")

    def state_plugin(self, key: str, value: Any, plugin: str, option: str, text: str) -> None:
        """The plugin's option takes `text`."""
        name = f"{plugin}.{option}"
        known = self.context.given.get(name)
        self.set(name, text)
        if known is not None and known != text:
            self.note(key, value, f"--{name} {known}{GOES_BEFORE}")
        else:
            self.note(key, value, f"--{name} {text}")

    def derive_plugin(self, origin: str, plugin: str, option: str, text: str) -> None:
        """The plugin's option takes what several keys say together."""
        name = f"{plugin}.{option}"
        self.set(name, text)
        self.detail(f"{origin}: --{name} " + (f"{self.context.given[name]} is given" if self.given(name) else text))

    def absent_plugin(self, key: str, plugin: str, option: str, fallback: str) -> None:
        """`key` is absent: the plugin's option has the trainer's default unless something else gives it."""
        self.absent(key, f"{plugin}.{option}", fallback)

    def state_strategies(self, key: str, strategies: Sequence[Strategy]) -> None:
        """Sets the strategies that the value of `key` amounts to."""
        self.strategies = list(strategies)
        text = strategies_text(strategies)
        asked = f"{key}: --strategy {text}"
        if self.given("strategy"):
            self.differs(f"{asked}; --strategy {self.value('strategy')}{GOES_BEFORE}")
        else:
            self.set("strategy", text)
            self.detail(asked)

    def state_recompute(self, what: str, layers: str = "") -> str:
        """Sets --recompute and its layers ("0-3"; '': all) without a note, which has the returned text."""
        self.stated.add("recompute")
        if self.given("recompute"):
            return f"--recompute {self.value('recompute')}{GOES_BEFORE}"
        self.set("recompute", what)
        if layers:
            self.set("recompute-layers", layers)
        return f"--recompute {what}" + (f" --recompute-layers {layers}" if layers else "")

    def sizes(self, key: str) -> Sizes:
        """The sizes of the run's model, which the meaning of `key` depends on. Raises UsageError if there is none."""
        if self.model_sizes is None:
            self.refuse(key, "depends on the model, which is not known: give --model")
        return self.model_sizes


def _means(given: str, wanted: Any) -> bool:
    """True if the text of the command line is that value."""
    if isinstance(wanted, (int, float)) and not isinstance(wanted, bool):
        try:
            return float(given) == wanted
        except ValueError:
            return False
    return given == as_text(wanted)


def _given_text(given: str, wanted: Any) -> str:
    return as_text(float(given)) if isinstance(wanted, float) else given
