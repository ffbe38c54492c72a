"""Consist from Python: start runs, read archives, predict and search.

The program ``consist`` does the work; this package starts it and reads what it prints and writes. docs/python.md is a
tour.
"""
from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from . import errors as errors
    from . import events as events
    from . import observers as observers
    from ._ask import advise as advise
    from ._ask import doctor as doctor
    from ._ask import explain as explain
    from ._ask import machines as machines
    from ._ask import plugins as plugins
    from ._ask import predict as predict
    from ._ask import prove as prove
    from ._ask import reproduce as reproduce
    from ._ask import residual as residual
    from ._ask import show as show
    from ._ask import verdict as verdict
    from ._compare import Comparison as Comparison
    from ._compare import compare as compare
    from ._documents import Advice as Advice
    from ._documents import Examination as Examination
    from ._documents import Explanation as Explanation
    from ._documents import Plugins as Plugins
    from ._documents import Prediction as Prediction
    from ._documents import Proof as Proof
    from ._documents import Reproduction as Reproduction
    from ._documents import Residual as Residual
    from ._documents import Shown as Shown
    from ._documents import Verdict as Verdict
    from ._run import Run as Run
    from ._run import run as run
    from ._tune import Search as Search
    from ._tune import tune as tune
    from .archive import Archive as Archive
    from .archives import Archives as Archives
    from .archives import open_archive as open
    from .errors import ArchiveError as ArchiveError
    from .errors import ConsistError as ConsistError
    from .errors import MissingPackageError as MissingPackageError
    from .errors import ProgramError as ProgramError
    from .errors import ProgramNotFoundError as ProgramNotFoundError
    from .errors import UsageError as UsageError
    from .errors import WaitTimeoutError as WaitTimeoutError

# Public names and their modules. They are imported when they are asked for: the wheel's command starts without them.
_MODULES = {
    "_ask": ["advise", "doctor", "explain", "machines", "plugins", "predict", "prove", "reproduce", "residual",
             "show", "verdict"],
    "_compare": ["Comparison", "compare"],
    "_documents": ["Advice", "Examination", "Explanation", "Plugins", "Prediction", "Proof", "Reproduction",
                   "Residual", "Shown", "Verdict"],
    "_run": ["Run", "run"],
    "_tune": ["Search", "tune"],
    "archive": ["Archive"],
    "archives": ["Archives", "open"],
    "errors": ["ArchiveError", "ConsistError", "MissingPackageError", "ProgramError", "ProgramNotFoundError",
               "UsageError", "WaitTimeoutError"],
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}
_OTHER_NAMES = {"open": "open_archive"}  # inside the package they have names that hide nothing
_PARTS = ("errors", "events", "observers")  # modules that users name: consist.events.Step
__all__ = sorted(_PLACES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return import_module(f"{__name__}.{name}")
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{place}"), _OTHER_NAMES.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted({*globals(), *_PLACES, *_PARTS})
