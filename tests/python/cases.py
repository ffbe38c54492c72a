"""Plugin of pytest: cases as entries of ctest see them (tests/cases.py).

--shard I/N takes every N-th file, from the I-th on; --results FILE writes outcome, seconds and name of each case; GTEST_FILTER
narrows the cases, as it does those of GoogleTest: python.test_program.test_name. A case that takes longer than --limit seconds fails."""
from __future__ import annotations

import fnmatch
import os
import signal
from typing import Any, Dict, Iterator, List, Tuple

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cases")
    group.addoption("--shard", default="1/1")
    group.addoption("--results", default="")
    group.addoption("--limit", type=int, default=300)


def name_of(nodeid: str) -> str:
    """readers/test_yaml.py::test_x[a] as python.readers.test_yaml.test_x[a]"""
    file, _, case = nodeid.partition("::")
    return ".".join(["python", *file.replace(".py", "").split("/"), *filter(None, case.split("::"))])


def is_chosen(name: str, patterns: str) -> bool:
    """Applies a filter of GoogleTest: patterns that match, then behind '-' those that must not."""
    wanted, _, refused = patterns.partition("-")

    def matches(texts: str) -> bool:
        return any(fnmatch.fnmatchcase(name, text.replace("[", "[[]")) for text in texts.split(":") if text)

    return (not wanted or matches(wanted)) and not matches(refused)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: List[pytest.Item]) -> None:
    index, count = map(int, config.getoption("--shard").split("/"))
    files = sorted({item.nodeid.partition("::")[0] for item in items})
    mine = set(files[index - 1::count])
    patterns = os.environ.get("GTEST_FILTER", "")
    kept = [item for item in items if item.nodeid.partition("::")[0] in mine and is_chosen(name_of(item.nodeid), patterns)]
    left = [item for item in items if item not in kept]
    items[:] = kept
    config.hook.pytest_deselected(items=left)


class Results:
    """The outcomes of a run of pytest, for the file that tests/cases.py reads."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.outcomes: Dict[str, Tuple[str, float]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome != "passed":
            self.outcomes[name_of(report.nodeid)] = (report.outcome, 0.0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = name_of(report.nodeid)
        before, seconds = self.outcomes.get(name, ("passed", 0.0))
        outcome = before if report.outcome == "passed" else report.outcome
        self.outcomes[name] = (outcome, seconds + report.duration)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        with open(self.path, "w", encoding="utf-8") as file:
            file.writelines(f"{outcome} {seconds:.3f} {name}\n" for name, (outcome, seconds) in self.outcomes.items())
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:  # none of this shard's cases is chosen
            session.exitstatus = pytest.ExitCode.OK


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--results")
    if path:
        config.pluginmanager.register(Results(os.path.abspath(path)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    limit: int = item.config.getoption("--limit")

    def end(number: int, frame: Any) -> None:
        raise TimeoutError(f"the case takes longer than {limit} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(limit)
    try:
        return (yield)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
