"""Fixtures of the tests on hosts with a real sshd."""
from __future__ import annotations

from typing import Iterator, Union

import pytest
from program import program as program  # a fixture
from ssh_hosts import SshNetwork, SshPorts, has_network, why_not


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
