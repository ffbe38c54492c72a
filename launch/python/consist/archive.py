"""Archives of runs as frames of pandas. docs/archive.md says what each field means."""
from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Dict, List, Union

from . import _tables
from ._frames import frame_of, frame_of_rows
from ._hdf5 import Input, modules, opened
from .errors import ArchiveError

if TYPE_CHECKING:
    import pandas as pd

Path = Union[str, "os.PathLike[str]"]
KNOWN_VERSIONS = (1, 2)


class Archive:
    """The archive of a run, or of ``consist evaluate``.

    Every property reads the file anew, so that it shows how far a run is that goes on. Frames have units in their
    column names (``device_power_watts``); that of a loss, nat/token mostly, is in ``attrs["units"]["loss"]``. What the
    run has not written (yet) is an ArchiveError that says so, or an empty frame where rows may still come.
    """

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        self.name = os.path.splitext(os.path.basename(self.path))[0]
        with self._opened():
            pass

    def _opened(self) -> Any:
        return _OpenedRun(self.path)

    # State

    @property
    def status(self) -> str:
        """``running``, ``finished``, ``failed`` or ``stopped``. One that was cut off leaves ``running``: ask show()."""
        with self._opened() as file:
            return str(file.attribute("status")).rstrip("\0")

    @property
    def reason(self) -> str:
        """Why the run failed or stopped; empty otherwise."""
        with self._opened() as file:
            return str(file.attribute("reason") or "").rstrip("\0")

    # Documents

    @property
    def configuration(self) -> Dict[str, Any]:
        """Every option with its value; in ``plugin_options`` those of parts that were given."""
        return self._document("config")

    @property
    def environment(self) -> Dict[str, Any]:
        """Host, processor, device, plugins, and versions of drivers and libraries."""
        return self._document("environment")

    @property
    def topology(self) -> Dict[str, Any]:
        """Ranks and axes of the mesh, with the path that each transport was verified to take."""
        return self._document("topology")

    @property
    def program(self) -> Dict[str, Any]:
        """FLOPs, bytes per collective and planned memory of rank 0."""
        return self._document("program")

    @property
    def start(self) -> Dict[str, float]:
        """Seconds of the run's start, by part."""
        return {part: float(seconds) for part, seconds in self._document("start").items()}

    @property
    def communication(self) -> Dict[str, Any]:
        """Bytes that rank 0 sent."""
        return self._document("comm")

    @property
    def result(self) -> Dict[str, Any]:
        """Totals of a run that has ended: rates, memory, final loss, seconds by kind."""
        return self._document("result")

    @property
    def evaluation(self) -> Dict[str, Any]:
        """The result of ``consist evaluate``."""
        return self._document("evaluation")

    @property
    def programs(self) -> Dict[int, str]:
        """The program of each class of ranks as text, by the class's first rank."""
        with self._opened() as file:
            found = file.packed_json("programs")
        if found is None:
            raise self._lacks("programs")
        return {part["rank"]: part["text"] for part in found["classes"]}

    # Frames

    @property
    def steps(self) -> "pd.DataFrame":
        """One row per step: loss, gradient norm, learning rate, seconds, rates, sensors of the device."""
        return self._rows("steps").set_index("step")

    @property
    def evaluations(self) -> "pd.DataFrame":
        """One row per evaluation."""
        return self._rows("evaluations").set_index("step")

    @property
    def events(self) -> "pd.DataFrame":
        """Checkpoints, advice, samples, failures: time, kind and text."""
        with self._opened() as file:
            return frame_of(*file.columns("events"))

    @property
    def samples(self) -> "pd.DataFrame":
        """Samples of text: step, text, time."""
        rows: List[Dict[str, Any]] = []
        events = self.events
        for time, kind, text in zip(events["time"], events["kind"], events["text"]) if len(events) else ():
            if kind == "sample":
                try:
                    rows.append({**json.loads(text), "time": time})
                except ValueError:
                    continue  # the event was cut where it is too long
        return frame_of_rows(rows, ("step", "text", "time"))

    @property
    def profile(self) -> "pd.DataFrame":
        """Mean seconds of every instruction of rank 0, of a run with ``profile=True``."""
        return frame_of_rows(self._document("profile")["instructions"])

    @property
    def timeline(self) -> "pd.DataFrame":
        """Mean times of the instructions of a step, of each class of ranks.

        ``begin_seconds`` counts from the start of the step; ``exposed_seconds`` is how long compute waited; ``bytes``
        of a collective are the rank's input; ``layer`` and ``micro_batch`` are -1 where there is none.
        """
        _, pandas = modules()
        frames = []
        for part in self._timeline()["classes"]:
            frame = pandas.DataFrame(part["instructions"])
            frame.insert(0, "rank", part["rank"])
            frame.insert(1, "ranks", part["ranks"])
            frames.append(frame.rename(columns={"begin": "begin_seconds", "exposed": "exposed_seconds"}))
        whole: pd.DataFrame = pandas.concat(frames, ignore_index=True)
        return whole

    @property
    def parts(self) -> "pd.DataFrame":
        """The parts of the step's time, which sum to it, of each class of ranks, and those of the simulated step."""
        rows = []
        for part in self._timeline()["classes"]:
            measured, simulated = flat_parts(part["parts"]), flat_parts(part.get("simulated_parts") or {})
            for name in {**measured, **simulated}:
                rows.append({"rank": part["rank"], "ranks": part["ranks"], "part": name,
                             "seconds": measured.get(name, 0.0), "simulated_seconds": simulated.get(name)})
        return frame_of_rows(rows)

    @property
    def memory(self) -> "pd.DataFrame":
        """The planned memory over a step, of each class of ranks: bytes of each role that live at an instruction."""
        _, pandas = modules()
        frames = []
        for part in self._timeline()["classes"]:
            memory = part["memory"]
            roles = {f"{role}_bytes": values for role, values in memory["roles"].items()}
            frame = pandas.DataFrame({"instruction": memory["instruction"], "begin_seconds": memory["begin"], **roles})
            frame["total_bytes"] = frame[list(roles)].sum(axis=1)
            frame.insert(0, "rank", part["rank"])
            frames.append(frame)
        whole: pd.DataFrame = pandas.concat(frames, ignore_index=True)
        return whole

    @property
    def expert_load(self) -> "pd.DataFrame":
        """Balance of experts: choices of the most chosen expert over the mean, by step (rows) and layer (columns)."""
        _, pandas = modules()
        with self._opened() as file:
            if not file.has("experts/choices"):
                raise ArchiveError(f"{self.path}: the model has no experts")
            choices = file.array("experts/choices")
            steps, layers = file.array("experts/step"), file.array("experts/layer")
        rows = min(len(choices), len(steps))
        load = choices[:rows].max(2) / choices[:rows].mean(2)
        balance: pd.DataFrame = pandas.DataFrame(load, index=pandas.Index(steps[:rows], name="step"),
                                                 columns=pandas.Index(layers, name="layer"))
        return balance

    # Access

    def _document(self, name: str) -> Dict[str, Any]:
        with self._opened() as file:
            found = file.json(name)
        if found is None:
            raise self._lacks(name)
        if not isinstance(found, dict):
            raise ArchiveError(f"{self.path}: /{name} is not an object of JSON")
        return found

    def _timeline(self) -> Any:
        with self._opened() as file:
            found = file.packed_json("timeline")
        if not found or not found.get("classes"):
            raise self._lacks("timeline")
        return found

    def _rows(self, group: str) -> "pd.DataFrame":
        with self._opened() as file:
            columns, units = file.columns(group)
        frame = frame_of(columns, units)
        if "step" not in frame.columns:
            return frame.assign(step=[])
        # A run that was killed may leave a row that was never written.
        return frame[frame["step"] >= 0].reset_index(drop=True)

    def _lacks(self, name: str) -> ArchiveError:
        status = self.status
        if name == "profile":
            why = "the run was not asked for one: train with profile=True (--profile)"
        elif status == "running":
            why = "its run has not written it yet, or was cut off before it did"
        elif name == "evaluation":
            why = "it is of a run that trains; its evaluations are in .evaluations"
        else:
            why = f"its run, which {'was ' if status == 'stopped' else ''}{status}, did not write it"
        return ArchiveError(f"{self.path} has no {name}: {why}")

    # Display

    def facts(self) -> Dict[str, Any]:
        """Returns the row that tables of archives show."""
        with self._opened() as file:
            configuration, result = file.json("config") or {}, file.json("result") or {}
            status = str(file.attribute("status")).rstrip("\0")
        names = ("model", "strategy", "ranks", "precision", "global_batch", "sequence")
        totals = ("steps", "tokens_per_second", "share_of_bound", "mfu", "measured_peak_bytes", "final_loss")
        return {"run": self.name, "status": status, **{name: configuration.get(name) for name in names},
                **{name: result.get(name) for name in totals}}

    def __repr__(self) -> str:
        return f"Archive({self.path!r})"

    def __str__(self) -> str:
        return _tables.facts_as_text(self.facts())

    def _repr_html_(self) -> str:
        return _tables.facts_as_html(self.facts())


class _OpenedRun:
    """An open archive whose version is known."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._context = opened(path)

    def __enter__(self) -> Input:
        file = self._context.__enter__()
        try:
            version = file.attribute("consist_archive_version")
            if version is None:
                raise ArchiveError(f"{self.path} is an HDF5 file, but no archive of Consist")
            if version not in KNOWN_VERSIONS:
                raise ArchiveError(f"{self.path} is an archive of version {version}; this package reads versions "
                                   f"{KNOWN_VERSIONS[0]} to {KNOWN_VERSIONS[-1]}: install a newer one")
        except BaseException as error:
            self._context.__exit__(type(error), error, error.__traceback__)
            raise
        return file

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)


def flat_parts(parts: Dict[str, Any]) -> Dict[str, float]:
    """Returns the parts of a step's time; exposed communication by axis becomes ``exposed_communication data``."""
    flat: Dict[str, float] = {}
    for name, value in parts.items():
        if isinstance(value, dict):
            flat.update({f"{name} {axis}": float(seconds) for axis, seconds in value.items()})
        else:
            flat[name] = float(value)
    return flat
