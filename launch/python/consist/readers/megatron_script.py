"""Megatron-LM's arguments as users keep them: in a shell script that starts it, in a file of arguments, in YAML."""
from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from .messages import DataError, in_quotes, shown
from .shell_script import Script
from .target import Target

_MOST_SCRIPTS = 4  # one within the other, in quotes
_MOST_DEPTH = 4  # of objects around an argument
_OF_TRAINING = ("num-layers", "micro-batch-size", "tensor-model-parallel-size", "hidden-size", "seq-length")
_OF_TREES = ("MODEL_ARGS", "language_model", "model_parallel", "num_layers", "tensor_model_parallel_size")


def is_config(root: Dict[str, Any]) -> bool:
    """True for a tree of YAML or JSON with the arguments: under MODEL_ARGS, as keys with --, or by their names."""
    return any(key in _OF_TREES or key.startswith("--") for key in root)


def arguments_of_tree(root: Dict[str, Any], target: Target) -> Dict[str, Any]:
    """The arguments of such a tree by name, without those that are false or null, which leaves them out."""
    arguments = root.get("MODEL_ARGS", root)
    if not isinstance(arguments, dict):
        raise DataError(f"{target.source.where}MODEL_ARGS is {shown(arguments)}; it must be arguments with values")
    every: Dict[str, Any] = {}

    def add(tree: Dict[str, Any], depth: int) -> None:
        for key in sorted(tree):
            value = tree[key]
            if isinstance(value, dict):
                if depth > _MOST_DEPTH:
                    raise DataError(f"{target.source.where}{in_quotes(key)} lies too deep for arguments of Megatron-LM")
                add(value, depth + 1)
            elif value is not None and value is not False:
                every[_key_of(key)] = value

    add(arguments, 0)
    return every


def arguments_of_script(text: str, target: Target) -> Dict[str, Any]:
    """The arguments of the first command that starts a *.py with them.

    They are {"num-layers": "32", "swiglu": True, "betas": ["0.9", "0.95"]}; those of torchrun stand under "torchrun".
    The script is followed, not run; `target` is told of what is passed over. Without such a command the arguments are
    those of all words that begin with --. Raises DataError where there are none, and as Script.follow() does.
    """
    name = f"{target.source.option} {target.source.path}"

    def tell(note: str) -> None:
        target.preface.append(f"{target.source.format} {note}")

    script = Script(name, tell)
    found: List[Dict[str, Any]] = []
    others: List[str] = []  # of lines that begin with an argument

    def look_at(words: List[str], depth: int) -> None:
        if found:
            return
        program = next((at for at, word in enumerate(words) if word.endswith(".py")), None)
        if program is not None:
            arguments = _arguments_of(words[program + 1:])
            if _trains(arguments):
                found.append({**arguments, "torchrun": _arguments_of(words[:program])})
                return
        for word in words if depth < _MOST_SCRIPTS else []:
            if ".py " in word and " --" in word:  # srun sh -c "..."
                script.follow(word, lambda inner: look_at(inner, depth + 1))

    def run(words: List[str]) -> None:
        look_at(words, 0)
        if _is_option(words[0]):
            others.extend(words)

    script.follow(text, run)
    if found:
        return found[0]
    arguments = _arguments_of(script.words_of_variables() + others)
    if not _trains(arguments):
        raise DataError(f"{name} starts no program with arguments of Megatron-LM (such as pretrain_gpt.py --num-layers "
                        "32 ...), and holds none")
    tell("no command starts a program here: read are the arguments that variables and lines hold")
    return arguments


def _is_option(word: str) -> bool:
    return word.startswith("--") and word.strip("-") != ""


def _key_of(option: str) -> str:
    """Makes "num-layers" of "--num_layers"."""
    return option.lstrip("-").replace("_", "-")


def _arguments_of(words: Sequence[str]) -> Dict[str, Any]:
    """The arguments as argparse takes them: the last of several counts."""
    every: Dict[str, List[str]] = {}
    values: Optional[List[str]] = None
    for word in words:
        if _is_option(word):
            option, equals, value = word.partition("=")
            values = every[_key_of(option)] = [value] if equals else []
        elif word == "\\":
            values = None
        elif values is not None:
            values.append(word)
    return {key: of_key if len(of_key) > 1 else of_key[0] if of_key else True for key, of_key in every.items()}


def _trains(arguments: Dict[str, Any]) -> bool:
    return any(key in arguments for key in _OF_TRAINING)
