"""Rules for the keys of another trainer's file: each is honoured, without effect for a reason, or refused by name."""
from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from .messages import DataError, UsageError, in_quotes, printable, same, shown
from .syntax import parse_json
from .target import Target

# Reasons that several formats have in common.
KEEPS_LOG = "the archive (--archive) and the progress line hold it"
COMPILES_ALWAYS = "every step is compiled to a program"
STATES_PROFILE = "--profile times every instruction"
SAYS_CHECKPOINTS = "--checkpoint says where checkpoints go; any layout reads them"
SAYS_DATA = "--dataset and its options say what is trained on"
EVALUATES = "--evaluate-every and --evaluate-sequences say when and on how much"


@dataclass(frozen=True)
class Rule:
    """The treatment of a key: "own", "no effect", "only", "group" or "off"."""

    kind: str
    argument: str = ""  # the reason; of "only" the legal values as JSON, separated by '|'


Rules = Dict[str, Rule]


def _rules(rule: Rule, keys: str) -> Rules:
    names = keys.split()
    if len(set(names)) < len(names):
        raise ValueError(f"a key is listed twice in {keys}")
    return {key: rule for key in names}


def own(keys: str) -> Rules:
    """Keys (separated by spaces) that code of their own reads."""
    return _rules(Rule("own"), keys)


def no_effect(why: str, keys: str) -> Rules:
    """Keys without effect here, whatever their values."""
    return _rules(Rule("no effect", why), keys)


def only(legal: str, keys: str) -> Rules:
    """Keys that are honoured if their value is one of `legal` (JSON, separated by '|'), else refused."""
    return _rules(Rule("only", legal), keys)


def group(keys: str) -> Rules:
    """Objects whose keys have rules themselves."""
    return _rules(Rule("group"), keys)


def off(keys: str, why: str = "") -> Rules:
    """Objects or flags that must not be enabled."""
    return _rules(Rule("off", why), keys)


def under(prefix: str, *tables: Rules) -> Rules:
    """A group and the rules of its keys, which are named without it."""
    inner = table(*tables)
    return {prefix: Rule("group"), **{f"{prefix}.{key}": rule for key, rule in inner.items()}}


def table(*tables: Rules) -> Rules:
    """The tables as one. Raises ValueError for a key that has two rules, or a rule that gives no reason."""
    joined: Rules = {}
    for one in tables:
        for key, rule in one.items():
            if key in joined:
                raise ValueError(f"{key} is listed twice")
            if rule.kind in ("no effect", "only") and not rule.argument:
                raise ValueError(f"{key} has no reason")
            joined[key] = rule
    return joined


class KeyReader:
    """A reader of one format: visits all keys by its table of rules, and reads by read_own() what they leave to it."""

    def __init__(self, target: Target, rules: Mapping[str, Rule]) -> None:
        self.target = target
        self.rules = rules

    def read_all(self, root: Mapping[str, Any], *steps: Callable[[], None]) -> None:
        """Visits all keys, then runs the steps that need several of them.

        Raises UsageError with all refusals of the keys, or, if there are none, with all of the steps.
        """
        self.visit(root)
        self.target.throw_refusals()
        self.run_steps(*steps)

    def run_steps(self, *steps: Callable[[], None]) -> None:
        """Runs all of them, and raises UsageError with all refusals."""
        for step in steps:
            self.target.attempt(step)
        self.target.throw_refusals()

    def visit(self, tree: Mapping[str, Any], prefix: str = "") -> None:
        """Treats every key of the object by the rule of its path."""
        for name in sorted(tree):
            self.target.attempt(partial(self._visit_key, name, prefix + name, tree[name]))

    def _visit_key(self, name: str, key: str, value: Any) -> None:
        rule = self.rule_of(key)
        if rule is not None:
            self.apply(rule, key, value)
        elif name.startswith(("_", "//")) or name == "comment":
            self.target.note(key, value, "a remark")
        else:
            self.refuse_unknown(key)

    def rule_of(self, key: str) -> Optional[Rule]:
        """The rule of a path; None if there is none."""
        return self.rules.get(key)

    def refuse_unknown(self, key: str) -> None:
        """Raises the error for a key that no rule knows."""
        self.target.refuse(in_quotes(key), "is not known here" + self.leave_out(key))

    def read_own(self, key: str, value: Any) -> None:
        """Reads a key whose rule is "own"."""
        raise NotImplementedError

    def apply(self, rule: Rule, key: str, value: Any) -> None:
        """Treats a key by its rule."""
        if rule.kind == "own":
            self.read_own(key, value)
        elif rule.kind == "no effect":
            self.target.note(key, value, "no effect here: " + rule.argument)
        elif rule.kind == "only":
            if not any(same(json.loads(legal), value) for legal in rule.argument.split("|")):
                self.target.refuse(key, f"is {shown(value)}, which is not done here; it may be {rule.argument}"
                                   + self.leave_out(key))
            self.target.note(key, value, "as it is here")
        elif rule.kind == "group":
            if not isinstance(value, dict):
                self.target.refuse(key, f"is {shown(value)}; it must be an object")
            self.visit(value, key + ".")
        elif is_enabled(value):
            why = "; " + rule.argument if rule.argument else ""
            self.target.refuse(key, "is asked for, which is not done here" + why + self.leave_out(key))
        else:
            self.target.note(key, value, "off")

    def leave_out(self, key: str) -> str:
        """The end of a refusal: how to leave the key out."""
        return f"; {self.target.source.set_option} {printable(key)}=null leaves it out"


def is_enabled(value: Any) -> bool:
    """True for what asks for something: no empty object, none that says "enabled": false, no false, null or ''."""
    if isinstance(value, dict):
        return bool(value) and value.get("enabled", True) is not False
    return value is not None and value is not False and value != ""


def drop_nulls(tree: Dict[str, Any], target: Target, prefix: str = "") -> None:
    """Takes keys that are null, which is how files say that they are not there, out of the object, with a note each."""
    for name in sorted(tree):
        if tree[name] is None:
            target.note(prefix + name, None, "as if it were absent")
            del tree[name]
        elif isinstance(tree[name], dict):
            drop_nulls(tree[name], target, f"{prefix}{name}.")


def find_value(root: Any, *path: str) -> Any:
    """The value at that path; None if it is not there."""
    for name in path:
        if not isinstance(root, dict) or name not in root:
            return None
        root = root[name]
    return root


def replace_values(replacements: Sequence[str], root: Dict[str, Any], target: Target) -> None:
    """Puts the value of each "a.b=VALUE" where the tree has, or would have, a.b. What is no JSON is a text.

    Raises UsageError for another form, and where no object could hold the key.
    """
    source = target.source
    for replacement in replacements:
        key, equals, text = replacement.partition("=")
        if not (equals and key and text):
            raise UsageError(f"{source.set_option} '{replacement}' must be KEY=VALUE, such as {source.example}")
        try:
            value = parse_json(text, source.set_option)
        except DataError:
            value = text
        holder, name = _holder(root, key.split("."))
        if holder is None:
            raise UsageError(f"{source.set_option} {replacement}: {source.path} has no object that could hold {key}")
        before = holder[name] if not isinstance(holder, dict) or holder.get(name) is not None else None
        target.detail(f"{printable(key)} {shown(value)} ({source.set_option}) in place of "
                      f"{'nothing' if before is None else shown(before)} in {printable(source.path)}")
        holder[name] = value


def _holder(root: Dict[str, Any], path: List[str]) -> Any:
    """The object or list that holds the last word of the path, with its key or index; (None, '') if none can."""
    holder: Any = root
    for position, name in enumerate(path):
        last = position + 1 == len(path)
        if isinstance(holder, list):
            if not name.isdigit() or int(name) >= len(holder):
                return None, ""
            if last:
                return holder, int(name)
            holder = holder[int(name)]
        elif not isinstance(holder, dict):
            return None, ""
        elif last:
            return holder, name
        else:
            if holder.get(name) is None:
                holder[name] = {}
            holder = holder[name]
    return None, ""
