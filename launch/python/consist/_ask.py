"""Commands that answer at once: predict, advise, explain, prove, reproduce, plugins, show, verdict,
residual, doctor, machines."""
from __future__ import annotations

import os
from typing import Any, List, Mapping, Optional, Sequence, Union

from . import _options
from ._documents import (Advice, Examination, Explanation, Plugins, Prediction, Proof, Reproduction, Residual, Shown,
                         Verdict)
from ._process import Folder, answer, document
from ._run import Model

DIFFERS = 1  # the exit status of prove for a layout that is not the same training; it prints its JSON then, too
DOES_NOT_FIT = 1  # the exit status of predict for a plan that does not fit; it prints its JSON then, too


def predict(model: Model = None, strategy: Optional[str] = None, *, machine: Optional[str] = None,
            options: Optional[Mapping[str, Any]] = None, time_limit: Optional[float] = None, folder: Folder = None,
            **keywords: Any) -> Prediction:
    """Returns a step's predicted time and memory on a machine that need not be present.

    Keywords are the options of training, as in run(). A plan that does not fit the machine's memory has ``fits`` False.
    Raises ProgramError with the program's message, WaitTimeoutError after ``time_limit`` seconds (None: none).
    """
    words = _options.words({"model": model, "strategy": strategy, "machine": machine, **keywords}, options)
    return Prediction(document(["predict", "--json", *words], time_limit, (0, DOES_NOT_FIT), folder))


def advise(model: Model = None, strategy: Optional[str] = None, *, machine: Optional[str] = None,
           options: Optional[Mapping[str, Any]] = None, time_limit: Optional[float] = None, folder: Folder = None,
           **keywords: Any) -> Advice:
    """Returns changes that would make a configuration faster on a machine. Arguments and errors are predict()'s."""
    words = _options.words({"model": model, "strategy": strategy, "machine": machine, **keywords}, options)
    return Advice(document(["advise", "--json", *words], time_limit, folder=folder))


def explain(model: Model = None, strategy: Optional[str] = None, *, machine: Optional[str] = None,
            options: Optional[Mapping[str, Any]] = None, time_limit: Optional[float] = None, folder: Folder = None,
            **keywords: Any) -> Explanation:
    """Returns FLOPs, memory and communication of a configuration's step. Arguments and errors are predict()'s."""
    words = _options.words({"model": model, "strategy": strategy, "machine": machine, **keywords}, options)
    return Explanation(document(["explain", "--json", *words], time_limit, folder=folder))


def prove(model: Model = None, strategy: Optional[str] = None, *, small_only: bool = False,
          options: Optional[Mapping[str, Any]] = None, time_limit: Optional[float] = None, folder: Folder = None,
          **keywords: Any) -> Proof:
    """Returns the proof that a layout trains as one rank does, or where it does not (docs/prove.md).

    ``small_only`` leaves out the programs in full size. Other arguments and errors are predict()'s; a layout that
    differs is no error: ``equal`` is False then.
    """
    named = {"model": model, "strategy": strategy, "small_only": small_only or None, **keywords}
    words = _options.words(named, options)
    return Proof(document(["prove", "--json", *words], time_limit, (0, DIFFERS), folder))


NOT_EXPLAINED, CANNOT_BE_TOLD = 1, 3  # exit statuses of reproduce beside 0; it prints its JSON then, too


def reproduce(file: Union[str, "os.PathLike[str]"], published: Union[str, float], *, counting: Optional[str] = None,
              advise_seconds: Optional[float] = None, options: Optional[Mapping[str, Any]] = None,
              time_limit: Optional[float] = None, folder: Folder = None, **keywords: Any) -> Reproduction:
    """Returns whether a recipe of another trainer is predicted to reach its published speed (docs/reproduce.md).

    ``published`` is in tokens/s per GPU, or a text with a unit: "744T", "3.8s". Keywords are the options of
    training, which take precedence over the file. Raises UsageError for a file that cannot be read; other errors are
    predict()'s.
    """
    words = _options.words({"counting": counting, "advise_seconds": advise_seconds, **keywords}, options)
    command = ["reproduce", os.fspath(file), "--published", str(published), "--json", *words]
    return Reproduction(document(command, time_limit, (0, NOT_EXPLAINED, CANNOT_BE_TOLD), folder))


def plugins(name: Optional[str] = None, *, plugin: Any = None, time_limit: Optional[float] = 120) -> Plugins:
    """Returns the parts that are installed, or the one of this name, with their options.

    ``plugin`` names files or folders to look for plugins in, too.
    """
    words = _options.words({"plugin": plugin})
    return Plugins(document(["plugins", *([name] if name else []), "--json", *words], time_limit))


def show(archive: Union[str, "os.PathLike[str]"], *, price: Any = None, time_limit: Optional[float] = 120) -> Shown:
    """Returns the state of the run of an archive: progress, speed, memory, costs; also while it goes on.

    Its ``status`` may be ``cut off``: the archive says ``running``, and no process writes it any more.
    """
    words = _options.words({"price": price})
    return Shown(document(["show", os.fspath(archive), "--json", *words], time_limit))


Path = Union[str, "os.PathLike[str]"]
Side = Union[Path, Sequence[Path]]
Percentage = Union[str, float, None]
SLOWER, UNCLEAR = 1, 3  # exit statuses of verdict beside 0; it prints its JSON then, too


def verdict(a: Side, b: Side, *, slower: Percentage = None, confidence: Percentage = None, within: Percentage = None,
            run_spread: Percentage = None, time_limit: Optional[float] = 300) -> Verdict:
    """Judges the runs of ``b`` against those of ``a`` (docs/verdict.md).

    A side is an archive, a folder of archives, a row of compare's folder (``runs/compare/ROW``), or a list of these.
    Percentages are texts ("2%") or fractions (0.02); ``slower`` decides ``is_slower``. Raises UsageError for sides that
    are none, WaitTimeoutError after ``time_limit`` seconds (None: none).
    """
    given = {"slower": slower, "confidence": confidence, "within": within, "run_spread": run_spread}
    words = _options.words({name: _percent(value) for name, value in given.items()})
    return Verdict(document(["verdict", _side(a), _side(b), "--json", *words], time_limit, (0, SLOWER, UNCLEAR)))


def residual(runs: Side, *, time_limit: Optional[float] = 300) -> Residual:
    """Says why the measured step of a configuration's runs is not the predicted one (docs/residual.md).

    Raises UsageError where ``runs`` are none, WaitTimeoutError after ``time_limit`` seconds (None: none).
    """
    return Residual(document(["residual", _side(runs), "--json"], time_limit, (0, 1)))


IS_WRONG = 1  # the exit status of doctor where something is wrong; it prints its JSON then, too


def doctor(model: Model = None, strategy: Optional[str] = None, *, expect: Optional[Mapping[str, int]] = None,
           measure: bool = False, slower: Percentage = None, on: Optional[str] = None,
           options: Optional[Mapping[str, Any]] = None, time_limit: Optional[float] = 600, folder: Folder = None,
           **keywords: Any) -> Examination:
    """Checks this machine, or all hosts of a cluster (``on="slurm"``), as ``consist doctor`` does (docs/doctor.md).

    ``measure`` times devices and links, too. With a ``model`` and options of training as keywords, what is slow is
    judged by a step of that run, which may be ``slower`` by "2%". ``expect`` names counts: {"gpus": 8}. Something
    that is wrong is no error: ``healthy`` is False then. Raises UsageError for options that do not go together,
    ProgramError where a cluster's hosts cannot be reached, WaitTimeoutError after ``time_limit`` seconds.
    """
    counts = [f"{thing}={count}" for thing, count in (expect or {}).items()]
    named = {"model": model, "strategy": strategy, "expect": counts or None, "measure": measure or None,
             "slower": _percent(slower), "on": on, **keywords}
    words = _options.words(named, options)
    return Examination(document(["doctor", "--json", *words], time_limit, (0, IS_WRONG), folder))


def _percent(value: Percentage) -> Optional[str]:
    return value if value is None or isinstance(value, str) else f"{100 * value:.10g}%"


def _side(side: Side) -> str:
    paths = [side] if isinstance(side, (str, os.PathLike)) else list(side)
    return ",".join(os.fspath(path) for path in paths)


def machines(*, time_limit: Optional[float] = 60) -> List[str]:
    """Returns the names of the machines that the program knows, for ``machine=``."""
    # The program's own completion of command lines has them.
    found = answer(["complete", "bash", "predict", "--machine", ""], time_limit)
    return [line for line in found.splitlines() if line and not line.startswith(":")]
