"""Several archives at once: a comparison, a folder, or files that the caller names."""
from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, Mapping, Optional, Union

from . import _tables
from ._frames import frame_of, frame_of_rows, joined
from ._hdf5 import opened
from .archive import Archive, Path
from .errors import ArchiveError

if TYPE_CHECKING:
    import pandas as pd

COMPARISON = "comparison.h5"


class Archives(Mapping[str, Archive]):
    """Archives by name. Frames are those of each archive below one another, with a first column ``run``."""

    def __init__(self, runs: Mapping[str, Archive], comparison: Optional[str] = None) -> None:
        self._runs = dict(runs)
        self.comparison = comparison

    def __getitem__(self, name: str) -> Archive:
        return self._runs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._runs)

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def table(self) -> "pd.DataFrame":
        """A row per configuration of a comparison, as its file has them; else a row per archive."""
        if self.comparison is None:
            return frame_of_rows([archive.facts() for archive in self._runs.values()]).set_index("run")
        with opened(self.comparison) as file:
            return frame_of(*file.columns("summary")).set_index("run")

    @property
    def configuration(self) -> Dict[str, Dict[str, Any]]:
        """The configuration of each run."""
        return {name: run.configuration for name, run in self._runs.items()}

    @property
    def environment(self) -> Dict[str, Dict[str, Any]]:
        """The environment of each run."""
        return {name: run.environment for name, run in self._runs.items()}

    @property
    def result(self) -> Dict[str, Dict[str, Any]]:
        """The totals of each run."""
        return {name: run.result for name, run in self._runs.items()}

    @property
    def steps(self) -> "pd.DataFrame":
        """The steps of all runs."""
        return self._joined(lambda run: run.steps)

    @property
    def evaluations(self) -> "pd.DataFrame":
        """The evaluations of all runs."""
        return self._joined(lambda run: run.evaluations)

    @property
    def events(self) -> "pd.DataFrame":
        """The events of all runs."""
        return self._joined(lambda run: run.events)

    @property
    def samples(self) -> "pd.DataFrame":
        """The samples of text of all runs."""
        return self._joined(lambda run: run.samples)

    @property
    def profile(self) -> "pd.DataFrame":
        """The profiles of all runs."""
        return self._joined(lambda run: run.profile)

    @property
    def timeline(self) -> "pd.DataFrame":
        """The timelines of all runs."""
        return self._joined(lambda run: run.timeline)

    @property
    def parts(self) -> "pd.DataFrame":
        """The parts of the step's time of all runs."""
        return self._joined(lambda run: run.parts)

    @property
    def memory(self) -> "pd.DataFrame":
        """The planned memory over a step of all runs."""
        return self._joined(lambda run: run.memory)

    def _joined(self, frame: Callable[[Archive], "pd.DataFrame"]) -> "pd.DataFrame":
        return joined({name: frame(run) for name, run in self._runs.items()}, "run")

    def __repr__(self) -> str:
        return f"Archives({', '.join(self._runs)})"

    def __str__(self) -> str:
        return _tables.rows_as_text([run.facts() for run in self._runs.values()])

    def _repr_html_(self) -> str:
        return _tables.rows_as_html([run.facts() for run in self._runs.values()])


def open_archive(*paths: Path) -> Union[Archive, Archives]:
    """Opens results: ``consist.open("run.h5")`` is an Archive.

    A comparison's file, the folder of a comparison (or any folder with archives), and several paths are Archives.
    Raises ArchiveError. Nothing but the named files and, of a comparison, the archives beside it is read.
    """
    if not paths:
        raise ArchiveError("no archive is named")
    if len(paths) > 1:
        return Archives(dict(_numbered(Archive(path) for path in paths)))
    path = os.fspath(paths[0])
    if os.path.isdir(path):
        comparison = os.path.join(path, COMPARISON)
        return _comparison(comparison) if os.path.isfile(comparison) else _folder(path)
    with opened(path) as file:
        is_comparison = file.attribute("consist_comparison_version") is not None
    return _comparison(path) if is_comparison else Archive(path)


def _numbered(archives: Iterator[Archive]) -> Iterator[Any]:
    """Archives of different folders may have one name: the second one is name (2)."""
    seen: Dict[str, int] = {}
    for archive in archives:
        seen[archive.name] = seen.get(archive.name, 0) + 1
        if seen[archive.name] > 1:
            archive.name = f"{archive.name} ({seen[archive.name]})"
        yield archive.name, archive


def _comparison(path: str) -> Archives:
    with opened(path) as file:
        version = file.attribute("consist_comparison_version")
        if version != 1:
            raise ArchiveError(f"{path} is a comparison of version {version}; this package reads version 1")
        links = {label: file.link(f"runs/{label}") for label in file.names("runs")}
    runs = {}
    for label, archive in links.items():
        if os.path.isfile(archive):  # a comparison may be moved without the runs
            runs[label] = Archive(archive)
            runs[label].name = label
    return Archives(runs, comparison=path)


def _folder(path: str) -> Archives:
    found = {}
    for name in sorted(glob.glob(os.path.join(glob.escape(path), "*.h5"))):
        try:
            archive = Archive(name)
        except ArchiveError:
            continue  # other files may be HDF5, too
        found[archive.name] = archive
    if not found:
        raise ArchiveError(f"the folder {path} has no archive (*.h5) and no {COMPARISON}")
    return Archives(found)
