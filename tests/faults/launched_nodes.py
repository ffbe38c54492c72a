"""Launchers of a job's nodes, which here are one machine."""
import os
import socket

from restart_campaign import Job

TOKEN = "0123456789abcdef" * 2


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_node(words, node, nodes, port, log, ranks=1, *more):
    """`consist launch` of the command `words`, the program first, as this node of so many ("2", "1:3")."""
    launch = [words[0], "launch", "--nproc", str(ranks), "--nnodes", str(nodes), "--node-rank", str(node), "--master", f"127.0.0.1:{port}", *more, "--"]
    before = os.environ.get("CONSIST_JOB_TOKEN")
    os.environ["CONSIST_JOB_TOKEN"] = TOKEN
    try:
        return Job([*launch, *words[1:]], str(log))
    finally:
        if before is None:
            del os.environ["CONSIST_JOB_TOKEN"]
        else:
            os.environ["CONSIST_JOB_TOKEN"] = before
