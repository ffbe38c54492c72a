"""A real Slurm of Debian's packages on this machine, for the time of the tests: a slurmctld and nodes with addresses of their own (tests/hosts)."""
from __future__ import annotations

import os
from pathlib import Path
from typing import List

from hosts import Hosts, not_installed, wait_for, why_no_network

PROGRAMS = {"slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "munged": "munge"}
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
    return not_installed(PROGRAMS) or why_no_network()


class Slurm(Hosts):
    """The cluster: nodes node1, node2, ... of eight made-up processors each, in a partition `main`."""

    def __init__(self, folder: Path, nodes: int = 4) -> None:
        super().__init__(folder, "10.77.0", nodes)

    def set_up(self) -> None:
        self._write_configuration()
        self.environment = {"SLURM_CONF": str(self.folder / "etc" / "slurm.conf")}
        self._start_munge()
        self.start_daemon("slurmctld", ["slurmctld", "-D"])
        for name in self.addresses:
            (self.folder / f"spool.{name}").mkdir()
            (self.folder / f"tmp.{name}").mkdir()
            self.start_node(name)
        wait_for(lambda: self._idle() == len(self.addresses), SECONDS_TO_START, f"{len(self.addresses)} idle nodes\n{self.logs()}")

    def daemon(self, name: str) -> List[str]:
        return ["env", *(f"{variable}={value}" for variable, value in self.environment.items()), "slurmd", "-D", "-N", name]

    def _write_configuration(self) -> None:
        etc = self.folder / "etc"
        etc.mkdir(parents=True)
        (self.folder / "state").mkdir()
        text = CONFIGURATION.format(folder=self.folder)
        for name, address in self.addresses.items():
            text += f"NodeName={name} NodeAddr={address} CPUs=8 RealMemory=1000\n"
        (etc / "slurm.conf").write_text(text)
        (etc / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")

    def _start_munge(self) -> None:
        key = self.folder / "munge.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(1024))
        files = [f"--{option}={self.folder}/munge.{ending}" for option, ending in
                 (("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]
        self.start_daemon("munged", ["munged", "--foreground", "--force", *files])

    def _idle(self) -> int:
        text = self.run(["sinfo", "-h", "-N", "-o", "%N %T"]).stdout.split("\n")
        return sum(line.endswith(" idle") for line in text)

    def wait_until_idle(self) -> None:
        """Ends what a test that failed has left: it is not in the way of the next."""
        self.run(["scancel", "--user=root"])
        wait_for(lambda: self._idle() == len(self.addresses), SECONDS_TO_START, "idle nodes\n" + self.logs())
