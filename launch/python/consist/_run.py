"""Runs of training from Python."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Union

from . import _options, events
from ._frames import frame_of_rows
from ._process import Folder
from ._stream import Stream
from .events import Event, RunResult, RunStarted
from .observers import Observer, listener_of

if TYPE_CHECKING:
    import pandas as pd

    from .archive import Archive

Model = Union[str, "os.PathLike[str]", Mapping[str, Any], None]


class Run(Stream[RunResult]):
    """A run of ``consist train``. Iterate over it for its events as they come; run() makes one.

    As a context manager it ends with its block. A run whose Python ends is asked to end, too.
    """

    _kinds = events.TRAIN
    _result_kind = RunResult

    @property
    def archive_path(self) -> Optional[str]:
        """The path of the run's archive, once the run has begun; None without one."""
        for event in self.seen:
            if isinstance(event, RunStarted):
                return event.archive
        return None

    @property
    def archive(self) -> "Archive":
        """The run's archive, also while it goes on. Raises ArchiveError if there is none (yet)."""
        from .archive import Archive
        from .errors import ArchiveError
        path = self.archive_path
        if path is None:
            raise ArchiveError("the run has no archive (yet): name one with archive='run.h5'")
        return Archive(path)

    @property
    def steps(self) -> "pd.DataFrame":
        """The steps so far, one row each."""
        return self._frame(events.Step)

    @property
    def evaluations(self) -> "pd.DataFrame":
        """The evaluations so far."""
        return self._frame(events.Evaluation)

    @property
    def samples(self) -> "pd.DataFrame":
        """The samples of text so far."""
        return self._frame(events.Sample)

    def _frame(self, kind: type) -> "pd.DataFrame":
        rows: List[Dict[str, Any]] = [event.columns for event in self.seen if isinstance(event, kind)]
        frame = frame_of_rows(rows, ("event", "step"))
        return frame.drop(columns="event").set_index("step")

    def facts(self) -> Dict[str, Any]:
        """Returns what is shown of the run: its state and its newest step."""
        steps = [event for event in self.seen if isinstance(event, events.Step)]
        found = super().facts()
        if steps:
            last = steps[-1]
            found.update(step=last.step, loss=last.loss, tokens_per_second=last.tokens_per_second)
        return found


def run(model: Model = None, strategy: Optional[str] = None, *, options: Optional[Mapping[str, Any]] = None,
        observers: Sequence[Observer] = (), folder: Folder = None, environment: Optional[Mapping[str, str]] = None,
        show_log: bool = False, **keywords: Any) -> Run:
    """Starts ``consist train`` and returns the run, whose events come while it goes on.

    Keywords are the options of the command: ``global_batch=8``, ``archive="run.h5"``. Those of a plugin are
    ``zero2__reduce_bucket_size=5e7`` or ``options={"zero2.reduce-bucket-size": 5e7}``. A list becomes a list with
    commas, True a switch, None leaves an option out; ``from_`` is ``--from``. Options are checked by the program: one
    that it refuses raises UsageError from result() and at the end of a loop over the run.

    ``observers`` are told of every event; ``folder`` is the one that the command runs in; ``environment`` adds
    variables; ``show_log`` passes on what the program writes to standard error. Raises ProgramNotFoundError.
    """
    words = _options.words({"model": model, "strategy": strategy, **keywords}, options)
    return run_words(["train", "--json", *words], observers, folder, environment, show_log)


def run_words(words: Sequence[str], observers: Sequence[Observer] = (), folder: Folder = None,
              environment: Optional[Mapping[str, str]] = None, show_log: bool = False) -> Run:
    """Starts the command of these words, ``train --json ...``."""
    return Run(words, [listener_of(observer) for observer in observers], folder, environment, show_log)


__all__ = ["Event", "Run", "run", "run_words"]
