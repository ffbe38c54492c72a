"""Types of the package and its syntax: mypy --strict, and the grammar of Python 3.9."""
from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Iterator

from conftest import ROOT

PACKAGE = ROOT / "launch" / "python"
MOST_LINES = 70  # of a function, as tests/checks/structure.py has it for C++


def test_mypy_is_content(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini", "--cache-dir", tmp_path / "cache"],
                            cwd=PACKAGE, capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_file_is_python_3_9() -> None:
    files = sorted((PACKAGE / "consist").rglob("*.py"))
    assert len(files) >= 3
    for file in files:
        ast.parse(file.read_text(encoding="utf-8"), str(file), feature_version=(3, 9))


def without_docstring(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The public classes, functions and methods without a docstring, and the module if it has none."""
    if not ast.get_docstring(tree):
        yield 1, "the module"
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    for node in [*tree.body, *(inner for outer in classes for inner in outer.body)]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield node.lineno, node.name


def test_lines_and_functions_are_short_and_public_names_documented() -> None:
    wrong = []
    for file in sorted((PACKAGE / "consist").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        wrong += [f"{file}:{n}: longer than 120 columns" for n, line in enumerate(text.splitlines(), 1) if len(line) > 120]
        tree = ast.parse(text)
        wrong += [f"{file}:{line}: {name} has no docstring" for line, name in without_docstring(tree)]
        wrong += [f"{file}:{node.lineno}: {node.name} has more than {MOST_LINES} lines" for node in ast.walk(tree)
                  if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= MOST_LINES]
    assert not wrong, "\n".join(wrong)
