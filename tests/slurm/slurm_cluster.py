"""A real Slurm of Debian's packages on this machine, for the time of the tests: a slurmctld and nodes with addresses of their own.

Everything lies in one folder and in namespaces of its own (network, mounts, host names, processes). All of it ends with the process
namespace's first process, which the system kills when this process dies: nothing stays on the machine, whatever happens."""
from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence

HERE = Path(__file__).resolve().parent
PROGRAMS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge", "ip": "iproute2",
            "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux"}
SECONDS_TO_START = 30

# The times are those in which the tests want answers; production has minutes. No cgroups: they belong to the machine.
CONFIGURATION = """
ClusterName=test
SlurmctldHost=control(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
TmpFS={folder}/tmp.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdTimeout=3
MessageTimeout=2
TCPTimeout=1
KillWait=3
MinJobAge=600
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PartitionName=main Nodes=ALL Default=YES State=UP
"""


def why_not() -> str:
    """What this machine lacks, or nothing."""
    if os.geteuid() != 0:
        return "Slurm's daemons and network namespaces need root"
    search = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
    missing = sorted({package for name, package in PROGRAMS.items() if shutil.which(name, path=search) is None})
    if missing:
        return "not installed: " + ", ".join(missing) + " (tests/packages.txt)"
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


class Slurm:
    """The cluster: nodes node1, node2, ... of eight made-up processors each, in a partition `main`."""

    def __init__(self, folder: Path, nodes: int = 4) -> None:
        self.folder = folder
        self.nodes: Dict[str, int] = {}  # the process of each node's slurmd, as its cluster numbers it
        self.addresses = {f"node{n}": f"10.77.0.{10 + n}" for n in range(1, nodes + 1)}
        self._write_configuration()
        self._started: List["subprocess.Popen[str]"] = []
        try:
            self.first = self._start_control()
            for name in self.addresses:
                self.start_node(name)
            wait_for(lambda: self._idle() == len(self.addresses), SECONDS_TO_START, f"{nodes} idle nodes\n{self._logs()}")
        except BaseException:
            self.end()
            raise

    def _write_configuration(self) -> None:
        etc = self.folder / "etc"
        etc.mkdir(parents=True)
        (self.folder / "state").mkdir()
        text = CONFIGURATION.format(folder=self.folder)
        for name, address in self.addresses.items():
            text += f"NodeName={name} NodeAddr={address} CPUs=8 RealMemory=1000\n"
        (etc / "slurm.conf").write_text(text)
        (etc / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        hosts = ["127.0.0.1 localhost", "10.77.0.1 control", *(f"{address} {name}" for name, address in self.addresses.items())]
        (self.folder / "hosts").write_text("\n".join(hosts) + "\n")

    def _start_control(self) -> int:
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child=KILL",
                 "--mount-proc", "bash", str(HERE / "cluster.sh"), str(self.folder)]
        outer = self._popen(words)
        said = outer.stdout.readline() if outer.stdout else ""
        assert said == "ready\n", f"the cluster does not start: {said}{outer.communicate(timeout=10)[0]}"
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        return int(children[0])

    def _popen(self, words: Sequence[str]) -> "subprocess.Popen[str]":
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   env={**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"})
        self._started.append(process)
        return process

    def start_node(self, name: str) -> None:
        """Starts a node, or starts one again that has vanished."""
        words = [*self._enter(), "bash", str(HERE / "node.sh"), str(self.folder), name, self.addresses[name]]
        process = self._popen(words)
        said = process.stdout.readline() if process.stdout else ""
        assert said.strip().isdigit(), f"{name} does not start: {said}{process.communicate(timeout=10)[0]}"
        self.nodes[name] = int(said)

    def lose_node(self, name: str) -> None:
        """Takes the node's link away and then kills all that runs on it, as if its power were gone."""
        self.run(["ip", "link", "set", name, "down"])
        for process in self.processes_of(name):
            os.kill(process, signal.SIGKILL)

    def processes_of(self, name: str, words: str = "") -> List[int]:
        """What runs on a node with these words in its command line."""
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
        """A command as it is run in the cluster's namespaces, beside slurmctld."""
        settings = {"SLURM_CONF": str(self.folder / "etc" / "slurm.conf"), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive",
                    "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", **environment}
        return [*self._enter(), "env", "-C", str(cwd), *(f"{name}={value}" for name, value in settings.items()), *map(str, words)]

    def run(self, words: Sequence[object], cwd: Path = Path("/"), timeout: float = 60, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.words(words, cwd, environment), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)

    def start(self, words: Sequence[object], cwd: Path = Path("/"), **environment: str) -> "subprocess.Popen[str]":
        """The same, which goes on beside the test."""
        process = subprocess.Popen(self.words(words, cwd, environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self._started.append(process)
        return process

    def interrupt(self, process: "subprocess.Popen[str]") -> None:
        """Sends SIGINT to the command that start() has started, which nsenter waits for."""
        child, = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGINT)

    def _idle(self) -> int:
        text = self.run(["sinfo", "-h", "-N", "-o", "%N %T"]).stdout.split("\n")
        return sum(line.endswith(" idle") for line in text)

    def wait_until_idle(self) -> None:
        """Ends what a test that failed has left: it is not in the way of the next."""
        self.run(["scancel", "--user=root"])
        wait_for(lambda: self._idle() == len(self.addresses), SECONDS_TO_START, "idle nodes\n" + self._logs())

    def _logs(self) -> str:
        return "".join(f"{path.name}:\n{path.read_text(errors='replace')[-1500:]}\n" for path in sorted(self.folder.glob("*.out")))

    def end(self) -> None:
        for process in self._started:
            process.kill()
        for process in self._started:
            process.wait(timeout=20)
            for stream in (process.stdout, process.stderr):
                if stream:
                    stream.close()
