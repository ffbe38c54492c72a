"""``python -m consist.observers wandb|mlflow [OPTIONS] (-- consist train OPTIONS | ARCHIVE...)``."""
from __future__ import annotations

import argparse
import sys
from typing import List, Sequence

from ..archive import Archive
from ..errors import ConsistError, ProgramError
from . import Observer
from .replay import replay

INTERRUPTED = 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m consist.observers",
        description="Tells Weights & Biases or MLflow of a run while it goes on, or of runs that have ended.",
        epilog="Behind -- stands the run: consist train --model qwen3-tiny ...")
    parser.add_argument("observer", choices=("wandb", "mlflow"))
    parser.add_argument("archives", nargs="*", metavar="ARCHIVE", help="archives of runs that have ended")
    parser.add_argument("--folder", help="where to write: [.] of wandb, [mlruns] of mlflow, which also takes a URI")
    parser.add_argument("--project", default="consist", help="project of wandb, experiment of mlflow [consist]")
    parser.add_argument("--name", help="name of the run")
    return parser


def _observer(options: argparse.Namespace) -> Observer:
    if options.observer == "wandb":
        from .wandb import WandbObserver
        return WandbObserver(options.folder or ".", options.project, options.name)
    from .mlflow import MlflowObserver
    return MlflowObserver(options.folder or "mlruns", options.project, options.name)


def _observe_run(words: Sequence[str], options: argparse.Namespace) -> int:
    from .._run import run_words
    if words[:1] and words[0].rsplit("/", 1)[-1] == "consist":
        words = words[1:]
    if words[:1] != ["train"]:
        raise ConsistError("behind -- stands the run: consist train OPTIONS")
    words = [word for word in words[1:] if word != "--json"]
    with run_words(["train", "--json", *words], [_observer(options)], show_log=True) as run:
        run.result()
    return 0


def main(arguments: List[str]) -> int:
    """Runs the command and returns its exit status: that of the run."""
    parser = _parser()
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    options, words = parser.parse_args(arguments[:cut]), arguments[cut + 1:]
    if bool(words) == bool(options.archives):
        parser.error("name archives, or a run behind --")
    try:
        if words:
            return _observe_run(words, options)
        for path in options.archives:
            replay(Archive(path), _observer(options))
        return 0
    except ProgramError as error:  # the program has said why
        return error.status if error.status >= 0 else 128 - error.status
    except ConsistError as error:
        print(f"consist.observers: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
