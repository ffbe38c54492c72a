"""Fixtures of the tests of packages: what the steps made, by their names."""
from __future__ import annotations

from typing import Any, Iterator

import pytest
from steps import Steps


@pytest.fixture(scope="session")
def steps(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Steps]:
    """Steps that the chosen cases need, begun."""
    made = Steps(tmp_path_factory.mktemp("packages"))
    made.begin([name for item in request.session.items for name in getattr(item, "fixturenames", ())])
    yield made
    made.end()


def _fixture_of(step: str) -> Any:
    @pytest.fixture(name=step)
    def made(steps: Steps) -> Any:
        return steps.take(step)

    return made


for _step in Steps.ORDER:
    globals()[f"_{_step}"] = _fixture_of(_step)
