"""Answers of commands as objects: every key of the program's JSON is an attribute; notebooks show them as tables."""
from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from . import _tables
from ._frames import frame_of_rows
from .archive import flat_parts

if TYPE_CHECKING:
    import pandas as pd

Rows = List[Dict[str, Any]]


class Document:
    """An answer of the program. ``data`` is its JSON, whose keys are attributes."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = dict(data)

    def __getattr__(self, name: str) -> Any:
        data = self.__dict__.get("data", {})  # empty while a copy is made
        try:
            return data[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no attribute '{name}'; it has {', '.join(data)}") from None

    def __dir__(self) -> List[str]:
        return sorted({*super().__dir__(), *self.data})

    def _facts(self) -> Dict[str, Any]:
        return {name: value for name, value in self.data.items()
                if name != "version" and not isinstance(value, (dict, list))}

    def _rows(self) -> Iterator[Tuple[str, Rows]]:
        """Tables that follow the facts, each with its heading."""
        return iter(())

    def __str__(self) -> str:
        parts = [_tables.facts_as_text(self._facts())]
        parts += [f"{heading}\n{_tables.rows_as_text(rows)}" for heading, rows in self._rows() if rows]
        return "\n\n".join(part for part in parts if part)

    def __repr__(self) -> str:
        known = ", ".join(f"{name}={_tables.cell(name, value)}" for name, value in list(self._facts().items())[:4])
        return f"{type(self).__name__}({known})"

    def _repr_html_(self) -> str:
        tables = [f"<p><b>{html.escape(heading)}</b></p>{_tables.rows_as_html(rows)}"
                  for heading, rows in self._rows() if rows]
        return _tables.facts_as_html(self._facts()) + "".join(tables)


class Prediction(Document):
    """A step's predicted time and memory (docs/predict.md).

    ``step_seconds`` is the predicted value; 95% of measured steps lie between ``step_seconds_low`` and
    ``step_seconds_high`` (None: the error is not known).
    """

    @property
    def step_seconds(self) -> float:
        """Predicted seconds of a step."""
        return float(self.data["step_seconds"]["value"])

    @property
    def step_seconds_low(self) -> Any:
        """The lower end of the interval of measured steps."""
        return self.data["step_seconds"]["low"]

    @property
    def step_seconds_high(self) -> Any:
        """The upper end of the interval of measured steps."""
        return self.data["step_seconds"]["high"]

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all ranks a second."""
        return float(self.data["tokens_per_second"])

    @property
    def fits(self) -> bool:
        """True if the plan fits the machine's memory."""
        return bool(self.data["fits"])

    @property
    def mfu(self) -> Any:
        """Model FLOPs over the peak, as a fraction; None where the peak is not known."""
        return self.data["model_flops_utilization"]

    @property
    def device_bytes(self) -> int:
        """Device memory of the rank that needs the most."""
        return max(int(stage["device_bytes"]) for stage in self.data["memory"])

    @property
    def parts(self) -> Dict[str, float]:
        """The parts of the step's time in seconds, which sum to it; exposed communication by axis."""
        return flat_parts(self.data["seconds"])

    @property
    def critical_path(self) -> "pd.DataFrame":
        """The groups of instructions with the most time on the critical path."""
        return frame_of_rows(self.data["critical_path"])

    def _facts(self) -> Dict[str, Any]:
        return {"machine": self.data["machine"], "ranks": self.data["ranks"], "step_seconds": self.step_seconds,
                "step_seconds_low": self.step_seconds_low, "step_seconds_high": self.step_seconds_high,
                "tokens_per_second": self.tokens_per_second, "mfu": self.mfu, "fits": self.fits,
                "device_bytes": self.device_bytes, "capacity_bytes": self.data["capacity_bytes"] or None,
                "cost_per_billion_tokens": self.data["cost_per_billion_tokens"],
                "joules_per_billion_tokens": self.data["joules_per_billion_tokens"]}

    def _rows(self) -> Iterator[Tuple[str, Rows]]:
        whole = sum(self.parts.values()) or 1.0
        yield "parts of the step's time", [{"part": name, "seconds": seconds, "share": seconds / whole}
                                           for name, seconds in self.parts.items() if seconds]
        if len(self.data["memory"]) > 1:
            yield "memory of the ranks of each stage", self.data["memory"]
        yield "critical path", self.data["critical_path"][:5]


class Advice(Document):
    """Changes that make a configuration faster (docs/predict.md): ``advice`` is a list, the fastest first."""

    @property
    def table(self) -> "pd.DataFrame":
        """A row per change: its options, its speed over the present one, its memory, and what else it changes."""
        return frame_of_rows(self.data["advice"], ("options", "speed", "device_bytes", "caution"))

    def _rows(self) -> Iterator[Tuple[str, Rows]]:
        yield "alternatives", self.data["advice"]
        for key, heading in (("together_same_training", "together, the training as it is"),
                             ("together", "all together")):
            if self.data.get(key):
                yield heading, [self.data[key]]


class Proof(Document):
    """The proof that a layout trains as one rank does: ``equal``, its ``statements``, and the ``first_difference``."""

    def __bool__(self) -> bool:
        return bool(self.data["equal"])

    @property
    def table(self) -> "pd.DataFrame":
        """A row per statement: whether it holds, what was shown or is wrong, and the seconds that it took."""
        return frame_of_rows(self._statements())

    def _statements(self) -> Rows:
        return [{"statement": row["name"], "holds": row["holds"], "seconds": row["seconds"],
                 "shown": row["text"] if row["holds"] else "; ".join(row["wrong"])} for row in self.data["statements"]]

    def _rows(self) -> Iterator[Tuple[str, Rows]]:
        yield "statements", self._statements()
        if self.data["first_difference"]:
            yield "first difference", [{"what": name, "value": value} for name, value
                                       in self.data["first_difference"].items() if not isinstance(value, list)]


class Reproduction(Document):
    """A published speed beside the prediction of its recipe.

    It has ``outcome``, ``published``, ``predicted``, ``contract`` and ``missing``, and is true if it is explained.
    """

    def __bool__(self) -> bool:
        return bool(self.data["outcome"] == "explained")

    @property
    def table(self) -> "pd.DataFrame":
        """A row for each thing that the prediction takes for granted of the measurement."""
        return frame_of_rows(self.data["contract"])

    def _rows(self) -> Iterator[Tuple[str, Rows]]:
        for key in ("published", "predicted"):
            yield key, [{"what": name, "value": value} for name, value in self.data[key].items()
                        if not isinstance(value, list)]
        yield "contract", self.data["contract"]
        yield "missing", self.data["missing"]["parts"]
        yield "advice", self.data["missing"]["advice"]


class Plugins(Document, Sequence[Document]):
    """The parts that are installed, and their options. A sequence of parts; ``part("zero2")`` is one by name."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        super().__init__(data)
        self._parts = [Plugin(part) for part in self.data["plugins"]]

    def __getitem__(self, index: Any) -> Any:
        return self._parts[index]

    def __len__(self) -> int:
        return len(self._parts)

    def part(self, name: str) -> "Plugin":
        """Returns the part of this name; raises KeyError."""
        for part in self._parts:
            if part.name == name:
                return part
        raise KeyError(f"there is no plugin '{name}'; there are {', '.join(part.name for part in self._parts)}")

    @property
    def table(self) -> "pd.DataFrame":
        """A row per part."""
        return frame_of_rows([part._facts() for part in self._parts])

    def _facts(self) -> Dict[str, Any]:
        return {}

    def _rows(self) -> Iterator[Tuple[str, Rows]]:
        yield "plugins", [{"kind": part.kind, "name": part.name, "available": part.available,
                           "description": part.description, "reason": part.reason or None} for part in self._parts]

    def __repr__(self) -> str:
        return f"Plugins({', '.join(part.name for part in self._parts)})"


class Plugin(Document):
    """An installed part: ``kind``, ``name``, ``path``, ``description``, ``available``, ``reason``, ``options``."""

    def _rows(self) -> Iterator[Tuple[str, Rows]]:
        yield "options", [dict(option) for option in self.data["options"]]


class Shown(Document):
    """A run on one screen (docs/watch.md): state, progress, speed, memory, costs, evaluations, events."""

    def _facts(self) -> Dict[str, Any]:
        rate = self.data["tokens_per_second"] or {}
        return {**super()._facts(), "model": self.data["model"]["name"], "parameters": self.data["model"]["parameters"],
                "tokens_per_second": rate.get("median")}

    def _rows(self) -> Iterator[Tuple[str, Rows]]:
        yield "evaluations", self.data["evaluations"]
        yield "events", self.data["events"]


class Verdict(Document):
    """A verdict on two sides of archives (docs/verdict.md): ``speed``, ``memory``, ``loss``, ``energy``, ``reason``.

    Each judgement has ``call`` ("better", "worse", "same", "unclear"), ``ratio`` of B over A with ``low`` and ``high``,
    ``problem`` and ``assumption``. ``differences`` say what makes the sides incomparable.
    """

    @property
    def speed(self) -> Document:
        """The judgement of tokens a second."""
        return self._judgement("speed")

    @property
    def memory(self) -> Document:
        """The judgement of the largest memory that a rank took."""
        return self._judgement("memory")

    @property
    def loss(self) -> Document:
        """The judgement of the loss after as many steps."""
        return self._judgement("loss")

    @property
    def energy(self) -> Document:
        """The judgement of the energy of a billion tokens."""
        return self._judgement("energy")

    @property
    def is_slower(self) -> Optional[bool]:
        """True if B is slower by more than ``slower``, None if that cannot be told or was not asked."""
        if self.data["slower"] is None:
            return None
        return {0: False, 1: True}.get(self.data["status"])

    @property
    def table(self) -> "pd.DataFrame":
        """A row per quantity."""
        return frame_of_rows(self._judged())

    def _judgement(self, quantity: str) -> Document:
        return Document(next(one for one in self.data["judgements"] if one["quantity"] == quantity))

    def _judged(self) -> Rows:
        names = ("quantity", "words", "a", "b", "ratio", "low", "high", "method", "problem")
        return [{name: one[name] for name in names} for one in self.data["judgements"]]

    def _facts(self) -> Dict[str, Any]:
        return {"a": self.data["a"]["name"], "b": self.data["b"]["name"], "speed": self.speed.sentence,
                "gate": self.data["gate"]}

    def _rows(self) -> Iterator[Tuple[str, Rows]]:
        yield "differences", self.data["differences"]
        yield "judgements", self._judged()
        yield "parts of the step's time", self.data["reason"].get("parts", [])


class Examination(Document):
    """The checks of a machine or of a cluster's hosts (docs/doctor.md): ``checks``, ``counts``, ``measured``, ``step``.

    Each check has ``check`` (its name), ``status`` ("wrong", "warning", "unknown", "not_applicable", "ok"),
    ``expected``, ``found``, ``remedy`` and ``cost`` (None where no step was judged). Of a cluster there are ``hosts``,
    ``keep`` and ``leave_out``, too.
    """

    @property
    def healthy(self) -> bool:
        """True if nothing is wrong; there may be warnings."""
        return bool(self.data["counts"]["wrong"] == 0)

    @property
    def complaints(self) -> List[Document]:
        """The checks that are wrong, that warn, or whose answer is not known."""
        return [Document(check) for check in self.data["checks"] if check["status"] in ("wrong", "warning", "unknown")]

    @property
    def cost(self) -> Optional[float]:
        """The fraction by which what was measured makes the step slower than predicted; None if none was judged."""
        step = self.data["step"]
        return None if step is None else float(step["cost_fraction"])

    def check(self, name: str) -> Document:
        """The check of that name; of a cluster the worst one. Raises KeyError if there is none."""
        for check in self.data["checks"]:
            if check["check"] == name:
                return Document(check)
        raise KeyError(name)

    @property
    def table(self) -> "pd.DataFrame":
        """A row per check."""
        return frame_of_rows(self._checked())

    def _checked(self) -> Rows:
        rows = []
        for check in self.data["checks"]:
            cost = check["cost"]
            rows.append({"status": check["status"], "check": check["check"], "found": check["found"],
                         "remedy": check["remedy"], "cost": None if cost is None else cost["fraction"]})
        return rows

    def _facts(self) -> Dict[str, Any]:
        counts = self.data["counts"]
        return {"host": self.data["host"], "wrong": counts["wrong"], "warnings": counts["warning"]}

    def _rows(self) -> Iterator[Tuple[str, Rows]]:
        yield "complaints", [row for row in self._checked() if row["status"] in ("wrong", "warning", "unknown")]


class Residual(Document):
    """Why a measured step is not the predicted one (docs/residual.md): ``terms``, ``causes``, ``predicted_seconds``.

    ``problem`` says why nothing can be said; there are no terms then.
    """

    @property
    def table(self) -> "pd.DataFrame":
        """A row per term; their seconds sum to the difference of the measured and the predicted step."""
        return frame_of_rows(self._terms())

    @property
    def cause(self) -> Optional[str]:
        """The likeliest cause of the largest share, as ``causes`` names it; None where none is."""
        return next((one["cause"] for one in self.data.get("causes", [])), None)

    def _terms(self) -> Rows:
        names = ("part", "cause", "seconds", "text")
        return [{name: one[name] for name in names} for one in self.data.get("terms", [])]

    def _rows(self) -> Iterator[Tuple[str, Rows]]:
        yield "terms", self._terms()
        yield "causes", self.data.get("causes", [])


class Explanation(Document):
    """FLOPs, memory and communication of a configuration's step: ``stages`` of a pipeline, or the one of all ranks.

    ``step`` has the estimated time on the machine, if one was named.
    """

    @property
    def table(self) -> "pd.DataFrame":
        """A row per pipeline stage."""
        return frame_of_rows(self._stages())

    def collectives(self) -> "pd.DataFrame":
        """Returns a row per stage, axis and collective: how many, and the bytes that a rank sends."""
        return frame_of_rows([{"rank": stage["rank"], **row} for stage in self.data["stages"]
                              for row in stage["collectives"]], ("rank", "axis", "op", "count", "bytes", "bytes_sent"))

    def _stages(self) -> Rows:
        return [{name: value for name, value in stage.items()
                 if not isinstance(value, (dict, list)) and name not in ("peak_at", "parts")}
                for stage in self.data["stages"]]

    def _rows(self) -> Iterator[Tuple[str, Rows]]:
        step = self.data["step"]
        if step and step.get("seconds"):
            yield "parts of the step's time", [{"part": name, "seconds": seconds}
                                               for name, seconds in flat_parts(step["seconds"]).items() if seconds]
        yield "stages" if len(self.data["stages"]) > 1 else "program", self._stages()
        yield "collectives", [{"rank": stage["rank"], **row} for stage in self.data["stages"]
                              for row in stage["collectives"]]
