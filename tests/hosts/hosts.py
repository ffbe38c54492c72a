"""Hosts with addresses of their own on this machine, for the time of the tests.

Everything lies in one folder and in namespaces of its own (network, mounts, host names, processes). All of it ends with the process
namespace's first process, which the system kills when this process dies: nothing stays on the machine, whatever happens."""
from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence

HERE = Path(__file__).resolve().parent
PROGRAMS = {"ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux"}
SYSTEM_FOLDERS = ":/usr/sbin:/sbin"


def not_installed(programs: Mapping[str, str]) -> str:
    """The packages that this machine lacks of `programs` (by name), or nothing."""
    search = os.environ.get("PATH", "") + SYSTEM_FOLDERS
    missing = sorted({package for name, package in programs.items() if shutil.which(name, path=search) is None})
    return "not installed: " + ", ".join(missing) + " (tests/packages.txt)" if missing else ""


def why_no_network() -> str:
    """What this machine lacks for hosts of its own, or nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = not_installed(PROGRAMS)
    if missing:
        return missing
    tried = subprocess.run(["unshare", "--net", "--uts", "--mount", "--pid", "--fork", "ip", "link", "add", "bridge", "type", "bridge"],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20)
    return "" if tried.returncode == 0 else "no namespaces with a bridge here: " + tried.stderr.strip()


def wait_for(condition: Callable[[], Any], seconds: float, what: str) -> Any:
    """Returns the condition's value as soon as it is true."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"after {seconds:g} s there is still not: {what}"
        time.sleep(0.05)


class StartedCommands:
    """Commands that go on beside a test, until it ends them."""

    def __init__(self) -> None:
        self._started: List["subprocess.Popen[str]"] = []

    def signal(self, process: "subprocess.Popen[str]", number: int) -> None:
        os.kill(process.pid, number)

    def interrupt(self, process: "subprocess.Popen[str]") -> None:
        self.signal(process, signal.SIGINT)

    def end(self) -> None:
        for process in self._started:
            process.kill()
        for process in self._started:
            process.wait(timeout=20)
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()


class Hosts(StartedCommands):
    """A network with hosts node1, node2, ..., and a place beside them, `control`, where commands are given."""

    def __init__(self, folder: Path, network: str, nodes: int) -> None:
        self.folder = folder
        self.environment: Dict[str, str] = {}  # of all commands
        self.nodes: Dict[str, int] = {}  # the process of each host's daemon, as the network numbers it
        self.control = f"{network}.1"
        self.addresses = {f"node{n}": f"{network}.{10 + n}" for n in range(1, nodes + 1)}
        names = ["127.0.0.1 localhost", f"{self.control} control", *(f"{address} {name}" for name, address in self.addresses.items())]
        (folder / "hosts").write_text("\n".join(names) + "\n")
        super().__init__()
        try:
            self.first = self._start_network()
            self.set_up()
        except BaseException:
            self.end()
            raise

    def set_up(self) -> None:
        """Starts what belongs to the network, the hosts among it."""
        raise NotImplementedError

    def daemon(self, name: str) -> List[str]:
        """The command that a host runs."""
        raise NotImplementedError

    def _start_network(self) -> int:
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child=KILL",
                 "--mount-proc", "bash", str(HERE / "network.sh"), str(self.folder), self.control]
        outer = self._popen(words)
        said = outer.stdout.readline() if outer.stdout else ""
        assert said == "ready\n", f"the network does not start: {said}{outer.communicate(timeout=10)[0]}"
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        return int(children[0])

    def _popen(self, words: Sequence[str]) -> "subprocess.Popen[str]":
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env={**os.environ, "PATH": os.environ.get("PATH", "") + SYSTEM_FOLDERS})
        self._started.append(process)
        return process

    def start_node(self, name: str) -> None:
        """Starts a host, or starts one again that has vanished."""
        words = [*self._enter(), "bash", str(HERE / "host.sh"), str(self.folder), name, self.addresses[name], *self.daemon(name)]
        process = self._popen(words)
        said = process.stdout.readline() if process.stdout else ""
        assert said.strip().isdigit(), f"{name} does not start: {said}{process.communicate(timeout=10)[0]}"
        self.nodes[name] = int(said)

    def lose_node(self, name: str) -> None:
        """Takes the host's link away and then kills all that runs on it, as if its power were gone."""
        self.run(["ip", "link", "set", name, "down"])
        for process in self.processes_of(name):
            with contextlib.suppress(ProcessLookupError):  # it has ended with another one
                os.kill(process, signal.SIGKILL)

    def processes_of(self, name: str, words: str = "") -> List[int]:
        """What runs on a host with these words in its command line."""
        net = self.run(["readlink", f"/proc/{self.nodes[name]}/ns/net"]).stdout.strip()
        assert net
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                command = (process / "cmdline").read_text(errors="replace").replace("\0", " ")
                if os.readlink(process / "ns" / "net") == net and words in command:
                    found.append(int(process.name))
            except OSError:
                continue  # it has ended, or is a thread of the kernel
        return found

    def _enter(self) -> List[str]:
        return ["nsenter", "--target", str(self.first), "--mount", "--net", "--uts", "--pid", "--"]

    def words(self, words: Sequence[object], cwd: Path, environment: Mapping[str, str]) -> List[str]:
        """A command as it is run in the network's namespaces, beside the hosts."""
        settings = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive", "PATH": os.environ["PATH"] + SYSTEM_FOLDERS,
                    **self.environment, **environment}
        return [*self._enter(), "env", "-C", str(cwd), *(f"{name}={value}" for name, value in settings.items()), *map(str, words)]

    def run(self, words: Sequence[object], cwd: Path = Path("/"), timeout: float = 60, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.words(words, cwd, environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)

    def start(self, words: Sequence[object], cwd: Path = Path("/"), **environment: str) -> "subprocess.Popen[str]":
        """The same, which goes on beside the test."""
        process = subprocess.Popen(self.words(words, cwd, environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self._started.append(process)
        return process

    def start_daemon(self, name: str, words: Sequence[object]) -> None:
        """A daemon beside the hosts, whose words go to a file."""
        with open(self.folder / f"{name}.out", "w", encoding="utf-8") as output:
            self._started.append(subprocess.Popen(self.words(words, Path("/"), {}), stdin=subprocess.DEVNULL, stdout=output,
                                                  stderr=subprocess.STDOUT, text=True))

    def signal(self, process: "subprocess.Popen[str]", number: int) -> None:
        """Sends a signal to the command that start() has started, which nsenter waits for."""
        child, = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), number)

    def logs(self) -> str:
        return "".join(f"{path.name}:\n{path.read_text(errors='replace')[-1500:]}\n" for path in sorted(self.folder.glob("*.out")))
