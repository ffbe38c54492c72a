"""Hosts with a real sshd: of addresses of their own (tests/hosts) as root, else ports of this machine. Keys and configuration are their own."""
from __future__ import annotations

import getpass
import os
import socket
import subprocess
from pathlib import Path
from typing import Dict, List, Sequence

from hosts import SYSTEM_FOLDERS, Hosts, StartedCommands, not_installed, wait_for, why_no_network

PROGRAMS = {"sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client"}
SECONDS_TO_START = 20

SERVER = """
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
MaxStartups 100
"""
CLIENT = """
IdentityFile {folder}/user_key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
GlobalKnownHostsFile /dev/null
"""


# sshd of root's wants a folder of root's there.
IN_ITS_RUN = "mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec \"$@\""


def why_not() -> str:
    """What this machine lacks, or nothing."""
    missing = not_installed(PROGRAMS)
    if missing or os.geteuid() != 0:
        return missing
    tried = subprocess.run(["unshare", "--mount", "sh", "-c", IN_ITS_RUN, "sh", "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                           timeout=20)
    return "" if tried.returncode == 0 else "sshd as root needs /run/sshd, and no mounts of its own can be made here: " + tried.stderr.strip()


def processes_with(*words: str) -> List[int]:
    """Processes whose command line has all these words."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_text(errors="replace").replace("\0", " ")
        except OSError:
            continue  # it has ended
        if all(word in command for word in words):
            found.append(int(process.name))
    return found


def write_files(folder: Path, addresses: Dict[str, str]) -> None:
    """Keys, and what sshd and ssh read."""
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True, stdin=subprocess.DEVNULL, timeout=20)
    (folder / "sshd_config").write_text(SERVER.format(folder=folder))
    kind, key = (folder / "host_key.pub").read_text().split()[:2]
    (folder / "known_hosts").write_text(f"* {kind} {key}\n")
    hosts = "".join(f"Host {name}\n  HostName {address}\n" for name, address in addresses.items())
    (folder / "ssh_config").write_text(hosts + "Host *" + CLIENT.format(folder=folder).replace("\n", "\n  ") + "\n")


class SshNetwork(Hosts):
    """node1, node2, ... and the last one as a spare, which control and they themselves reach by name."""

    def __init__(self, folder: Path, hosts: int = 2) -> None:
        super().__init__(folder, "10.78.0", hosts + 1)
        *self.hosts, self.spare = self.addresses

    def set_up(self) -> None:
        write_files(self.folder, self.addresses)
        assert self.run(["sh", "-c", IN_ITS_RUN, "sh", "true"]).returncode == 0
        for name in self.addresses:
            self.start_node(name)

    def start_node(self, name: str) -> None:
        super().start_node(name)
        words = ["ssh", "-F", self.folder / "ssh_config", "-o", "BatchMode=yes", "-o", "ConnectTimeout=2", name, "true"]
        wait_for(lambda: self.run(words).returncode == 0, SECONDS_TO_START, f"{name} answers\n{self.logs()}")

    def daemon(self, name: str) -> List[str]:
        return ["/usr/sbin/sshd", "-D", "-e", "-f", str(self.folder / "sshd_config")]


class SshPorts(StartedCommands):
    """Two sshd of this user's on ports of this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__()
        write_files(folder, {})
        try:
            self.hosts = [f"{getpass.getuser()}@127.0.0.1:{self._start()}" for _ in range(2)]
        except BaseException:
            self.end()
            raise

    def _start(self) -> int:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        mounts = ["unshare", "--mount", "sh", "-c", IN_ITS_RUN, "sh"] if os.geteuid() == 0 else []
        words = ["setpriv", "--pdeathsig", "KILL", *mounts, "/usr/sbin/sshd", "-D", "-e", "-f", str(self.folder / "sshd_config"), "-p", str(port),
                 "-o", "ListenAddress=127.0.0.1"]
        with open(self.folder / f"sshd.{port}.out", "w", encoding="utf-8") as output:
            self._started.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, text=True))
        wait_for(lambda: self._listens(port), SECONDS_TO_START, f"sshd on port {port}")
        return port

    def _listens(self, port: int) -> bool:
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    def _environment(self, environment: Dict[str, str]) -> Dict[str, str]:
        return {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PATH": os.environ["PATH"] + SYSTEM_FOLDERS, **environment}

    def run(self, words: Sequence[object], cwd: Path = Path("/"), timeout: float = 60, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(list(map(str, words)), cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout,
                              env=self._environment(environment))

    def start(self, words: Sequence[object], cwd: Path = Path("/"), **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(list(map(str, words)), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=self._environment(environment))
        self._started.append(process)
        return process


def has_network() -> bool:
    return not why_no_network()
