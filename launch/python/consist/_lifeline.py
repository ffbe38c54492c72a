"""Becomes a program that the system ends when the Python that started it is gone: _lifeline.py PARENT PROGRAM WORDS.

A notebook's kernel that is killed would leave its run on the GPUs otherwise. It is a script of its own, since the code
between fork and exec of a process with threads must not be Python's.
"""
from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, program = int(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != parent:  # it was gone before
        sys.exit(128 + int(signal.SIGTERM))
    try:
        os.execv(program, sys.argv[2:])
    except OSError as error:
        print(f"consist: {program} cannot be started: {error.strerror}", file=sys.stderr)
        sys.exit(126)
