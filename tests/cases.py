#!/usr/bin/env python3
"""Runs test cases of a GoogleTest program as one entry of ctest, and counts those of a ctest run.

  tests/cases.py run [--results FILE] [--limit SECONDS] [--shard I/N] [--apart] PROGRAM
      Runs every N-th case, from I on, in one process. A case that crashes, or that takes longer than the limit and is killed, counts
      as failed, and the cases behind it run in a process each.
      --apart: each case in a process of its own.
      GTEST_FILTER narrows all of it. Prints the output of cases that fail, and a line of counts; exits with 1 if one failed.
      FILE gets a line for each case: outcome, seconds, name.
  tests/cases.py count JUNIT RESULTS
      Counts the cases of a run of ctest, whose --output-junit is JUNIT and whose entries wrote their results into the folder RESULTS. An
      entry without results is a case itself. Prints the names of those that failed and "N passed, M failed, K skipped"."""
import argparse
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

BEGUN = re.compile(r"\[ RUN      \] (\S+)")
ENDED = re.compile(r"\[ +(OK|FAILED|SKIPPED) +\] ([^\s,]+).* \((\d+) ms\)")
OUTCOMES = {"OK": "passed", "FAILED": "failed", "SKIPPED": "skipped"}


class Cases:
    """Outcomes of cases, in the order in which they ended."""

    def __init__(self):
        self.outcomes = []  # (outcome, seconds, name)
        self.open = None  # the case that is running
        self.output = []

    def end(self, outcome, seconds):
        self.outcomes.append((outcome, seconds, self.open))
        if outcome == "failed":
            print("\n".join(self.output), flush=True)
        self.open = None

    def begin(self, name):
        self.open, self.begun = name, time.monotonic()

    def fail(self, why):
        """Ends the running case, which has not said how it ended."""
        self.output.append(f"[  FAILED  ] {self.open}: {why}")
        self.end("failed", time.monotonic() - self.begun)

    def take(self, line):
        """A line of the program; outputs of tests may stand before a mark without a line break."""
        if self.open is None:
            if begun := BEGUN.search(line):
                self.output = [line]
                self.begin(begun[1])
            else:
                self.output.append(line)
            return
        self.output.append(line)
        ended = ENDED.search(line)
        if ended and ended[2] == self.open:
            self.end(OUTCOMES[ended[1]], int(ended[3]) / 1000)

    def run(self, command, limit):
        """Returns the exit status of the program, which is killed, with all that it started, where a case takes too long."""
        self.output = []
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        stream, rest, quiet_since = process.stdout.fileno(), b"", time.monotonic()
        while True:
            since = self.begun if self.open else quiet_since
            left = since + limit - time.monotonic()
            if left <= 0:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return f"took longer than {limit:g} s and was killed"
            # A process that outlives the program holds its output open: what the program has written by its end is read first.
            ended = process.poll() is not None
            if not select.select([stream], [], [], 0 if ended else min(left, 1))[0]:
                if ended:
                    break
                continue
            block = os.read(stream, 1 << 16)
            quiet_since = time.monotonic()
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self.take(line.decode(errors="replace"))
            if not block:
                break
        if rest:
            self.take(rest.decode(errors="replace"))
        status = process.wait()
        if status < 0:
            return f"ended by signal {-status} ({signal.Signals(-status).name})"
        return f"ended with status {status}" if status else ""


def names_of(program, patterns):
    """The cases that a filter finds and that are not disabled, in the order in which they run."""
    listed = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={patterns}"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            text=True, check=True).stdout
    suite, names = None, []
    for line in listed.splitlines():
        word = line.split("#")[0].rstrip()
        if re.fullmatch(r"\S+\.", word):
            suite = word
        elif suite and re.fullmatch(r"  \S+", word) and "DISABLED_" not in suite + word:
            names.append(suite + word.strip())
    return names


def chosen(options):
    """The cases of the entry."""
    index, count = map(int, options.shard.split("/"))
    names = names_of(options.program, os.environ.pop("GTEST_FILTER", None) or "*")
    return names[index::count]


def run_in_one(cases, options, names):
    """Returns those that have to run again or have not run, since the program ended before."""
    # By their names, and not by variables of the environment: programs that cases start may be test programs themselves.
    with tempfile.NamedTemporaryFile("w", suffix=".flags") as flags:
        flags.write(f"--gtest_filter={':'.join(names)}\n")
        flags.flush()
        problem = cases.run([options.program, f"--gtest_flagfile={flags.name}"], options.limit)
    if cases.open:
        cases.fail(problem or "the program ended in it")
    ran = {name for _, _, name in cases.outcomes}
    left = [name for name in names if name not in ran]
    if problem and not left and all(outcome != "failed" for outcome, _, _ in cases.outcomes):
        cases.begin(f"{os.path.basename(options.program)} (behind its cases)")
        cases.fail(problem)
    return left


def run_alone(cases, options, name):
    problem = cases.run([options.program, f"--gtest_filter={name}"], options.limit)
    if cases.open is None and all(of != name for _, _, of in cases.outcomes):
        cases.begin(name)
    if cases.open:
        cases.fail(problem or "the program ended in it, or before it")
    elif problem and cases.outcomes[-1][0] != "failed":
        cases.begin(f"{name} (behind it)")
        cases.fail(problem)


def run(options):
    names = chosen(options)
    cases = Cases()
    if names and not options.apart:
        names = run_in_one(cases, options, names)
    for name in names:
        run_alone(cases, options, name)
    if options.results:
        os.makedirs(os.path.dirname(os.path.abspath(options.results)), exist_ok=True)
        with open(options.results, "w", encoding="utf-8") as file:
            file.writelines(f"{outcome} {seconds:.3f} {name}\n" for outcome, seconds, name in cases.outcomes)
    counts = counted(outcome for outcome, _, _ in cases.outcomes)
    print(text_of(counts))
    return 1 if counts["failed"] else 0


def counted(outcomes):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for outcome in outcomes:
        counts[outcome] += 1
    return counts


def text_of(counts):
    return f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped"


def count(options):
    outcomes, names = [], []
    for entry in xml.etree.ElementTree.parse(options.junit).getroot().iter("testcase"):
        name, status = entry.get("name"), entry.get("status")
        if status == "disabled":
            continue
        found = []
        results = os.path.join(options.results, name)
        if os.path.exists(results):
            with open(results, encoding="utf-8") as file:
                found = [line.rstrip("\n").split(" ", 2) for line in file]
            found = [(outcome, case) for outcome, _, case in found]
        mark = entry.find("skipped")
        skipped = mark is not None and mark.get("message", "").startswith("SKIP")  # else it could not be started
        failed = status == "fail" or (mark is not None and not skipped)
        if not os.path.exists(results):
            found = [("failed" if failed else "skipped" if skipped else "passed", name)]
        elif failed and not any(outcome == "failed" for outcome, _ in found):
            found.append(("failed", f"{name} (the entry of ctest)"))
        outcomes += [outcome for outcome, _ in found]
        names += [case for outcome, case in found if outcome == "failed"]
    for name in names:
        print(f"failed: {name}")
    if not outcomes:
        print("no test ran", file=sys.stderr)
        return 1
    counts = counted(outcomes)
    print(text_of(counts))
    return 1 if counts["failed"] else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run")
    runs.add_argument("--results")
    runs.add_argument("--limit", type=float, default=300)
    runs.add_argument("--shard", default="0/1")
    runs.add_argument("--apart", action="store_true")
    runs.add_argument("program")
    runs.set_defaults(do=run)
    counts = commands.add_parser("count")
    counts.add_argument("junit")
    counts.add_argument("results")
    counts.set_defaults(do=count)
    options = parser.parse_args()
    return options.do(options)


if __name__ == "__main__":
    sys.exit(main())
