"""Fixtures of the tests on hosts with a real sshd. The environment variable CONSIST names the program; without it build/bin/consist is taken."""
from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator, Union

import pytest
from ssh_hosts import SshNetwork, SshPorts, has_network, why_not

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def program() -> str:
    """The executable of the build under test."""
    path = os.environ.get("CONSIST", str(ROOT / "build" / "bin" / "consist"))
    assert os.access(path, os.X_OK), f"there is no program {path}: build it, or name it by the environment variable CONSIST"
    return path


@pytest.fixture(scope="session")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshPorts]:
    """Two ports of this machine."""
    if why_not():
        pytest.skip(why_not())
    made = SshPorts(tmp_path_factory.mktemp("ports"))
    yield made
    made.end()


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory, ports: SshPorts) -> Iterator[Union[SshNetwork, SshPorts]]:
    """Two hosts with addresses of their own where this user may make them, else the ports."""
    if not has_network():
        yield ports
        return
    made = SshNetwork(tmp_path_factory.mktemp("network"))
    yield made
    made.end()
