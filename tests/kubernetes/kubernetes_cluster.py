"""The stand-in for kubectl with its state, and the commands on it."""
from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import List

from hosts import wait_for
from training import write_cluster

HERE = Path(__file__).resolve().parent


class Cluster:
    """The stand-in's state, and the command on it: two pods of two ranks."""

    def __init__(self, program: str, folder: Path) -> None:
        self.program, self.folder, self.state = program, folder, folder / "state"
        self.state.mkdir()
        write_cluster(folder, 'image = "registry.example/consist"', "nodes = 2", "ranks-per-node = 2", f'consist = "{program}"',
                      f'folder = "{folder}/pods"', f'working-folder = "{folder}"', 'namespace = "train"', kind="kubernetes")
        python = Path(sys.executable).parent
        self.environment = {**os.environ, "KUBECTL_STATE": str(self.state), "PATH": f"{HERE}:{python}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1",
                            "OMP_WAIT_POLICY": "passive"}

    def start(self, *words: object) -> "subprocess.Popen[str]":
        return subprocess.Popen([self.program, "train", "--on", "kubernetes", *map(str, words)], cwd=self.folder, env=self.environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def deleted(self) -> List[str]:
        path = self.state / "deleted"
        return path.read_text().splitlines() if path.exists() else []

    def trains(self) -> None:
        wait_for(lambda: any(re.search(r"\x01step +[2-9]", log.read_text(errors="replace")) for log in self.state.glob("log-*")), 40, "two steps")

    def ranks(self) -> List[int]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[1:3] == [b"train", b"--config"] and str(self.folder).encode() in words[3]:
                found.append(int(process.name))
        return sorted(found)
