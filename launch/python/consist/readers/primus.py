"""Reads experiments of AMD Primus (YAML), whose module names presets of Primus and overrides their values."""
from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import torchtitan
from .megatron_fields import FieldReader, expect_object
from .messages import in_quotes, listed, shown
from .primus_keys import FAMILIES, MEGATRON_RULES, TORCHTITAN_RULES
from .rules import Rule, drop_nulls
from .syntax import parse, plain_scalar, read_text
from .target import Target

Tree = Dict[str, Any]
_FRAMEWORKS = ("megatron", "torchtitan")
_VARIABLE = re.compile(r"\$\{([^:{}]+)(?::([^}]*))?\}")
_MOST_PRESETS = 64
_PRESETS = os.path.join("primus", "configs")
# Presets that all models and modules of Megatron-LM extend. Values that nothing changes are Primus' own defaults.
_OWN = ("modules/", "models/megatron/language_model.yaml", "models/megatron/primus_megatron_model.yaml")


def is_config(root: Tree) -> bool:
    """True for an experiment: modules with a framework."""
    modules = root.get("modules")
    return isinstance(modules, dict) and any(isinstance(module, dict) and "framework" in module
                                             for module in modules.values())


def prepare(root: Tree, target: Target) -> Tree:
    """The values of the experiment's module over those of its presets, with the framework under "framework"."""
    root = _resolve(root, target)
    if "extends" in root:
        target.refuse("extends", "lays this file over another; write the values of both into one")
    modules: Tree = root["modules"]
    if list(modules) != ["pre_trainer"]:
        target.refuse("modules", f"has {listed(sorted(modules))}; one pre_trainer is done")
    module = expect_object(target, "modules.pre_trainer", modules["pre_trainer"])
    framework = module.get("framework")
    if framework not in _FRAMEWORKS:
        target.refuse("modules.pre_trainer.framework", f"is {shown(framework)}, which is not done here; it may be "
                      + listed(_FRAMEWORKS))
    for key, value in (*((key, root[key]) for key in sorted(root) if key != "modules"),
                       *((f"modules.pre_trainer.{key}", module[key]) for key in sorted(module) if key != "overrides")):
        target.note(key, value, "its values are read" if key.startswith("modules.") else
                    "no effect here: --archive, --export and --checkpoint say where results go")
    presets = _Presets(target, str(framework))
    own, values = presets.of_module(module)
    values = _merged(values, expect_object(target, "modules.pre_trainer.overrides", module.get("overrides") or {}))
    if framework == "megatron":
        reader, whole = _MegatronReader(target), len(values)
        values = {key: value for key, value in values.items()
                  if key not in own or own[key] != value or _matters(reader.rule_of(key), value)}
        target.detail(f"{whole - len(values)} values of Primus' own presets, which nothing changes, have no effect "
                      "here")
    values.pop("includes", None)
    return {"framework": framework, **values}


def _matters(rule: Optional[Rule], value: Any) -> bool:
    """True if the rule looks at the value of Primus' own, which is no way to say that something is off."""
    return rule is not None and rule.kind != "no effect" and value is not None and not (
        rule.kind == "off" and value is False)


def read(root: Tree, target: Target) -> None:
    """Sets what the values state."""
    if root.pop("framework") == "torchtitan":
        _TorchtitanReader(target, TORCHTITAN_RULES).run(root)
    else:
        _MegatronReader(target).run(root)


def _resolve(value: Any, target: Target) -> Any:
    """The value with ${NAME:DEFAULT} replaced: by the environment's NAME, as Primus does, else by the default."""
    if isinstance(value, dict):
        return {key: _resolve(entry, target) for key, entry in value.items()}
    if isinstance(value, list):
        return [_resolve(entry, target) for entry in value]
    if not isinstance(value, str):
        return value

    def replacement(found: "re.Match[str]") -> str:
        name, default = found.group(1), found.group(2)
        if name in os.environ:
            target.differs(f"${{{name}}} is {in_quotes(os.environ[name])}, as the environment has it")
            return os.environ[name]
        if default is None:
            target.refuse(f"${{{name}}}", "is a variable of the environment, which is not set; set it, or write its "
                          "value")
        return default

    text = _VARIABLE.sub(replacement, value)
    return plain_scalar(text) if text != value else value


def _merged(lower: Tree, upper: Tree) -> Tree:
    """The values of both; where both have one, that of `upper`, and for two objects their values merged."""
    both = dict(lower)
    for key, value in upper.items():
        below = both.get(key)
        both[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return both


def _folders_above(path: str) -> Iterator[str]:
    while True:
        yield path
        above = os.path.dirname(path)
        if above == path:
            return
        path = above


class _Presets:
    """The presets of the checkout of Primus in which the file lies, or the working folder."""

    def __init__(self, target: Target, framework: str) -> None:
        self.target = target
        self.framework = framework
        starts = (os.path.dirname(os.path.abspath(target.source.path)), os.getcwd())
        folders = [os.path.join(folder, _PRESETS) for start in starts for folder in _folders_above(start)]
        found = [folder for folder in folders if os.path.isdir(os.path.join(folder, "models"))]
        if not found:
            target.refuse("modules.pre_trainer.model", f"is a preset of Primus, but there is no {_PRESETS} in a folder "
                          "above the file or the working folder: keep the file in its checkout of Primus, or work in "
                          "one")
        self.root = found[0]
        self.read = 0

    def of_module(self, module: Tree) -> Tuple[Tree, Tree]:
        """The values of Primus' own presets, and those of all presets that the module names."""
        own: Tree = {}
        values: Tree = {}
        for key, kind in (("config", "modules"), ("model", "models")):
            name = module.get(key)
            where = f"modules.pre_trainer.{key}"
            if not isinstance(name, str) or not name:
                self.target.refuse(where, f"is {shown(name)}; it must be the name of a preset")
            name = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
            for path, tree in self._chain(where, os.path.join(kind, self.framework, name), []):
                values = _merged(values, tree)
                own = _merged(own, tree) if path.startswith(_OWN) else own
        return own, values

    def _chain(self, where: str, path: str, above: List[str]) -> Iterator[Tuple[str, Tree]]:
        """The presets that one extends, then itself."""
        path = os.path.normpath(path)
        self.read += 1
        whole = os.path.join(self.root, path)
        if path.startswith("..") or path in above or self.read > _MOST_PRESETS or not os.path.isfile(whole):
            self.target.refuse(where, f"needs the preset {in_quotes(path)}, which is not in {self.root}, or extends "
                               "itself")
        name = f"{self.target.source.where}{where} {whole}"
        tree = expect_object(self.target, where, _resolve(parse(read_text(whole), "yaml", name) or {}, self.target))
        extended = tree.pop("extends", [])
        for entry in extended if isinstance(extended, list) else [extended]:
            yield from self._chain(where, os.path.join(os.path.dirname(path), str(entry)), [*above, path])
        yield path, tree


class _MegatronReader(FieldReader):
    def __init__(self, target: Target) -> None:
        super().__init__(target, MEGATRON_RULES, FAMILIES)


class _TorchtitanReader(torchtitan.Reader):
    """torchtitan's tables, with those of Primus-Turbo's kernels."""

    def run(self, root: Tree) -> None:
        """Reads the tables."""
        model = root.get("model")
        if isinstance(model, dict) and isinstance(model.get("converters"), list):
            model["converters"] = [entry for entry in model["converters"] if entry != "primus_turbo"]
        drop_nulls(root, self.target)
        super().run(root)
