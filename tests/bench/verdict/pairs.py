#!/usr/bin/env python3
"""Judges pairs of runs whose difference is known, and prints how often each is called what.
Usage: tests/bench/verdict/pairs.py --consist build/bin/consist [--pairs 200] [--seconds 600] [--output pairs.jsonl]

Both sides of a pair train the same; one of them, drawn by lot, is slowed by 0, 1, 2, 5 or 10%: its process is stopped for that share of
every 20 ms (SIGSTOP, SIGCONT), for which the script waits in a loop, so that the share holds to a few microseconds. Half of the pairs run
beside other work: processes that compute for random times. Runs alternate (A B B A ...); from the third round on a pair is judged by
`consist verdict`, at the levels of `consist compare --until-sure` (docs/verdict.md), until it is decided or --seconds are over.

Each pair is appended to --output as it ends; a run that is started again continues there. The table counts calls by difference and by
other work: right, wrong way (the slower side is called the faster one, or one of two equal sides is), the same within 2%, cannot be told."""
from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

DIFFERENCES = (0.0, 0.01, 0.02, 0.05, 0.10)
PERIOD = 0.02
LONGEST_RUN = 300.0


def cores() -> int:
    """Those that this process may use: taskset gives each of several scripts cores of its own."""
    return len(os.sched_getaffinity(0))


def busy(seed: int, end: Any) -> None:
    """Computes and rests for random times of 0.2 to 3 s, until `end` is set."""
    draw = random.Random(seed)
    while not end.is_set():
        until = time.monotonic() + draw.uniform(0.2, 3)
        while time.monotonic() < until:
            sum(range(2000))
        end.wait(draw.uniform(0.2, 3))


class OtherWork:
    """Processes beside the runs of a pair; none of them for 0."""

    def __init__(self, processes: int, seed: int) -> None:
        self._end = multiprocessing.Event()
        self._processes = [multiprocessing.Process(target=busy, args=(seed + i, self._end), daemon=True) for i in range(processes)]

    def __enter__(self) -> "OtherWork":
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for process in self._processes:
            process.join(timeout=10)


def slow_down(process: "subprocess.Popen[bytes]", share: float) -> None:
    """Stops the process for a share of its time until it ends."""
    started = time.monotonic()
    while process.poll() is None:
        if time.monotonic() - started > LONGEST_RUN:
            process.kill()
            sys.exit(f"a run took longer than {LONGEST_RUN:g} s")
        if share == 0:
            time.sleep(PERIOD)
            continue
        time.sleep(PERIOD * (1 - share))
        stopped = time.monotonic()
        process.send_signal(signal.SIGSTOP)
        while time.monotonic() - stopped < PERIOD * share:
            pass
        process.send_signal(signal.SIGCONT)


def run(consist: str, words: List[str], archive: Path, share: float) -> None:
    """Trains once, slowed by that share, into the archive."""
    with open(archive.with_suffix(".log"), "wb") as log:
        process = subprocess.Popen([consist, "train", *words, "--archive", str(archive)], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        slow_down(process, share)
    if process.returncode != 0:
        sys.exit(f"a run failed with {process.returncode}:\n" + archive.with_suffix(".log").read_text(errors="replace")[-2000:])


def judge(consist: str, folder: Path, look: int) -> Dict[str, Any]:
    """The verdict's judgement of the speed at a look, from the first."""
    level = 1 - 0.05 / (look * (look + 1))
    result = subprocess.run([consist, "verdict", str(folder / "a"), str(folder / "b"), "--json", "--confidence", f"{100 * level:.10g}%"],
                            capture_output=True, text=True, timeout=120)
    if result.returncode != 0:
        sys.exit(result.stderr)
    document = json.loads(result.stdout)
    return dict(document["judgements"][0], notes=document["notes"])


def pair(consist: str, words: List[str], seconds: float, difference: float, slowed: str, folder: Path) -> Dict[str, Any]:
    """Runs a pair by turns until it is decided or the time is over."""
    started, rounds, look = time.monotonic(), 0, 0
    for side in "ab":
        (folder / side).mkdir()
    while True:
        for more in range(max(1, rounds // 2) if rounds >= 3 else 3):
            order = "ab" if rounds % 2 == 0 else "ba"
            for side in order:
                run(consist, words, folder / side / f"{rounds}.h5", difference if side == slowed else 0.0)
            rounds += 1
            if rounds > 3 and time.monotonic() - started > seconds:
                break
        look += 1
        judged = judge(consist, folder, look)
        over = time.monotonic() - started > seconds
        if judged["call"] != "unclear" or over:
            return {"call": judged["call"], "ratio": judged["ratio"], "low": judged["low"], "high": judged["high"],
                    "method": judged["method"], "run_spread": judged["run_spread"], "rounds": rounds, "looks": look,
                    "seconds": time.monotonic() - started, "problem": judged["problem"], "notes": judged["notes"]}


def outcome(one: Dict[str, Any]) -> str:
    """right, wrong, same or unclear."""
    if one["call"] in ("same", "unclear"):
        return str(one["call"])
    if one["difference"] == 0:
        return "wrong"
    return "right" if (one["slowed"] == "a") == (one["call"] == "better") else "wrong"


def table(pairs: List[Dict[str, Any]]) -> str:
    """The calls, a row for each difference and kind of surroundings."""
    lines = ["difference  other work  pairs  right  same  cannot be told  wrong  rounds  seconds  spread of runs  interval misses"]
    for difference in DIFFERENCES:
        for other in (False, True):
            rows = [one for one in pairs if one["difference"] == difference and one["other"] == other]
            if not rows:
                continue
            calls = [outcome(one) for one in rows]
            truth = [1 - one["difference"] if one["slowed"] == "b" else 1 / (1 - one["difference"]) for one in rows]
            missed = sum(one["low"] is not None and not one["low"] <= ratio <= one["high"] for one, ratio in zip(rows, truth))
            middle = len(rows) // 2
            spreads = sorted(one["run_spread"] or 0 for one in rows)
            lines.append(f"{difference:9.0%}  {'yes' if other else 'no':>10}  {len(rows):5}  {calls.count('right'):5}  {calls.count('same'):4}"
                         f"  {calls.count('unclear'):14}  {calls.count('wrong'):5}  {sorted(one['rounds'] for one in rows)[middle]:6}"
                         f"  {sorted(one['seconds'] for one in rows)[middle]:7.0f}  {spreads[middle]:14.1%}  {missed:15}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--consist", required=True)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600, help="for which a pair may go on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=max(1, cores() // 2), help="of a run")
    parser.add_argument("--train", default="--model llama-tiny --dataset synthetic --sequence 256 --batch 4 --steps 30")
    parser.add_argument("--output", default="pairs.jsonl")
    given = parser.parse_args()
    output = Path(given.output)
    done = [json.loads(line) for line in output.read_text().splitlines()] if output.exists() else []
    words = given.train.split() + ["--device", "cpu", "--cpu.threads", str(given.threads)]
    for number in range(len(done), given.pairs):
        draw = random.Random(1000 * given.seed + number)
        difference, other = DIFFERENCES[number % len(DIFFERENCES)], number // len(DIFFERENCES) % 2 == 1
        slowed = draw.choice("ab")
        workers = cores() if other else 0
        with tempfile.TemporaryDirectory() as folder, OtherWork(workers, number):
            judged = pair(given.consist, words, given.seconds, difference, slowed, Path(folder))
        done.append({"pair": number, "difference": difference, "other": other, "slowed": slowed, **judged})
        with open(output, "a", encoding="utf-8") as file:
            file.write(json.dumps(done[-1]) + "\n")
        print(f"{number + 1}/{given.pairs}: {difference:.0%} {'beside other work' if other else 'alone'}: {outcome(done[-1])}, "
              f"{judged['rounds']} rounds, {judged['seconds']:.0f} s", file=sys.stderr)
    print(table(done))


if __name__ == "__main__":
    main()
