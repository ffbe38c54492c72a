"""Plants errors in a copy of the tree, one at a time, and runs the tests that should notice.

Errors come from errors.txt (written by hand, each with what it breaks) and from operators at seeded random places (operators.py).
Each is built into the copy's libraries and programs; test programs, which load those, are not built again. A mutant is noticed by a test
that fails or runs too long. Results are appended to a file, one JSON object a line; a run that is started again goes on behind them.
One that does not compile is drawn anew and does not count.
"""

import argparse
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import time

import operators
import suites

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
MARK = ".mutation-copy"  # in a folder that this program may write to


class Mutant:
    """An error: what is replaced in which file."""

    def __init__(self, name, path, old, new, breaks, proven=False):
        self.name, self.path, self.old, self.new, self.breaks, self.proven = name, path, old, new, breaks, proven

    def planted(self, text):
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: its text stands {text.count(self.old)} times in {self.path}; it must stand there once")
        return text.replace(self.old, self.new)


def listed_errors(path=HERE / "errors.txt"):
    """Entries of errors.txt: '@ file', '# what it breaks', '! prove' where `consist prove` must find it, then lines of the old text with '-'
    and of the new one with '+'."""
    errors = []
    for block in re.split(r"^(?=@ )", path.read_text(), flags=re.M)[1:]:
        lines = [line for line in block.splitlines() if line.strip()]
        part = {mark: "\n".join(line[1:] for line in lines[1:] if line[0] == mark) for mark in "#!-+"}
        if any(line[0] not in "#!-+" for line in lines[1:]) or not part["-"]:
            raise ValueError(f"errors.txt: an entry of {lines[0]} has a line that begins with none of '#', '!', '-', '+', or no old text")
        file = lines[0][2:].strip()
        breaks = " ".join(part["#"].split())
        errors.append(Mutant(f"{file}: {breaks}", file, part["-"], part["+"], breaks, "prove" in part["!"]))
    return errors


def check_list(errors):
    stale = []
    for error in errors:
        try:
            error.planted((TREE / error.path).read_text())
        except (ValueError, OSError) as problem:
            stale.append(str(problem))
    names = [error.name for error in errors]
    stale += [f"{name}: stands twice in errors.txt" for name in sorted({n for n in names if names.count(n) > 1})]
    if stale:
        sys.exit("errors.txt does not fit the tree any more:\n  " + "\n  ".join(stale))


def files_of_tree():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=TREE, check=True, capture_output=True, text=True)
    return [file for file in listed.stdout.splitlines() if (TREE / file).is_file()]


class Copy:
    """A copy of the tree with a build folder of its own."""

    def __init__(self, folder, jobs, tests):
        self.folder, self.jobs, self.tests = pathlib.Path(folder).resolve(), jobs, tests
        if self.folder == TREE:
            sys.exit(f"{self.folder} is the tree itself; errors are planted in a copy")
        if self.folder.exists() and any(self.folder.iterdir()) and not (self.folder / MARK).exists():
            sys.exit(f"{self.folder} is neither empty nor a copy that this program made (it has no file {MARK}); choose another --copy")
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / MARK).touch()
        self.build = self.folder / "build"

    def refresh(self):
        """Brings the tree's files into the copy; those that are the same keep their times, so that little is built again."""
        files = files_of_tree()
        for file in files:
            self.restore(file)
        known = set(files)
        for path in [p for top in {f.split("/")[0] for f in files} for p in (self.folder / top).rglob("*") if p.is_file()]:
            if str(path.relative_to(self.folder)) not in known:
                path.unlink()
        if not (self.build / "build.ninja").exists():
            self.must(["cmake", "-G", "Ninja", "-S", str(self.folder), "-B", str(self.build), f"-DCONSIST_BUILD_TESTS={'ON' if self.tests else 'OFF'}", "-DCONSIST_CUDA=OFF"])
        self.must(["ninja", "-C", str(self.build), "-j", str(self.jobs)])

    def restore(self, file):
        source, target = TREE / file, self.folder / file
        if target.exists() and target.read_bytes() == source.read_bytes():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)

    def must(self, command):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}:\n{(done.stdout + done.stderr)[-4000:]}")

    def build_targets(self, targets):
        return subprocess.run(["ninja", "-C", str(self.build), "-j", str(self.jobs)] + targets, capture_output=True, text=True).returncode == 0


QUIET = 300  # seconds without a word of a test program, after which it hangs: single tests take seconds


class Failure:
    """How tests failed, and the one that failed or was running (None: the program ran none)."""

    def __init__(self, how, test):
        self.how, self.test = how, test

    def __str__(self):
        return f"{self.test} ({self.how})" if self.how and self.test else self.how or self.test


def run_tests(copy, command):
    """None if they pass, else a Failure. Everything that they started ends with them."""
    process = subprocess.Popen(command, cwd=copy.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    output, heard, how = b"", time.monotonic(), ""
    while True:
        ended = process.poll() is not None  # what it started may keep the pipe open
        if select.select([process.stdout], [], [], 0 if ended else 1)[0]:
            chunk = os.read(process.stdout.fileno(), 1 << 16)
            output, heard = (output + chunk)[-200_000:], time.monotonic()
            if not chunk:
                break
        elif ended:
            break
        elif time.monotonic() - heard > QUIET:
            how = f"timeout of {QUIET} s"
            break
    if how or process.poll() is not None:
        end_session(process.pid)
    if process.wait() == 0:
        return None
    text = output.decode(errors="replace")
    if "pytest" in command:
        return Failure(" ".join([how, *re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.M)[:1]]).strip() or f"exit status {process.returncode}", None)
    failed = re.findall(r"\[  FAILED  \] ([^ ,]+\.[^ ,\n]+)|- (\S+) \(Failed\)", text)
    if failed:
        return Failure(how, failed[0][0] or failed[0][1])
    begun, passed = re.findall(r"\[ RUN      \] (\S+)", text), set(re.findall(r"\[(?:       OK|  SKIPPED) \] (\S+)", text))
    return Failure(how or f"exit status {process.returncode}", next((test for test in reversed(begun) if test not in passed), None))


def without(command, tests):
    """The command of a test program that leaves these tests out."""
    mark = "--gtest_filter="
    if not tests:
        return command
    return [word + (":" if "-" in word[len(mark):] else "-") + ":".join(tests) if word.startswith(mark) else word for word in command]


def end_session(leader):
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getsid(int(pid)) == leader:
                os.kill(int(pid), signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


class Campaign:
    def __init__(self, options):
        self.options = options
        self.copy = Copy(options.copy, options.jobs, not options.prove)
        self.results = pathlib.Path(options.results)
        self.done = {}
        if self.results.exists():
            self.done = {r["name"]: r for r in map(json.loads, self.results.read_text().splitlines())}
        self.end = time.monotonic() + 60 * options.minutes
        self.noticing = set()  # programs and tests that failed
        self.stale = set()  # targets that are built with the last error

    def command(self, program, filter):
        if program == "python":  # the copy's tests/python; the filter is a file or folder of them
            return [str(TREE / "build" / "venv" / "bin" / "python"), "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-c", "tests/python/pytest.ini", f"tests/python/{filter}"]
        return [str(self.copy.build / "bin" / f"test_{program}"), "--gtest_fail_fast", f"--gtest_filter={filter}"]

    def commands(self, mutant):
        if self.options.prove:
            program = str(self.copy.build / "bin" / "consist")
            return [[program, "prove", "--small-only", *line.split()] for line in suites.proven_layouts()]
        tests = suites.of(mutant.path)
        commands = [self.command(program, filter) for program, filter in tests]
        if self.options.thorough:
            commands.append(["ctest", "--test-dir", str(self.copy.build), "-j", str(self.options.jobs), "--stop-on-failure", "--timeout", "300"])
        return commands

    def fails_again(self, command, failure):
        """Whether the test that failed does so once more in two runs: tests that measure time fail by other work, too."""
        if failure.how.startswith("timeout") or failure.test is None or command[0] == "ctest" or self.options.prove:
            return True
        return any(run_tests(self.copy, [command[0], f"--gtest_filter={failure.test}"]) for _ in range(2))

    def noticed_by(self, mutant):
        """The command that fails, and how."""
        for command in self.commands(mutant):
            left_out = []  # failed once; --gtest_fail_fast kept those behind it from running
            while failure := run_tests(self.copy, without(command, left_out)):
                if self.fails_again(command, failure):
                    return command, failure
                if failure.test in left_out:
                    break
                left_out.append(failure.test)
        return None, None

    def verdict(self, mutant):
        """'compile', or what noticed it, or None. Of what it changed the files are restored, and the targets are left to the next build."""
        self.stale.update(suites.targets_of(mutant.path))
        target = self.copy.folder / mutant.path
        try:
            target.write_text(mutant.planted(target.read_text()))
            if not self.copy.build_targets(sorted(self.stale)):
                return "compile"
            self.stale = set(suites.targets_of(mutant.path))
            command, failure = self.noticed_by(mutant)
        finally:
            self.copy.restore(mutant.path)
        if not failure:
            return None
        if failure.test is not None and command[0] != "ctest" and not self.options.prove:
            self.noticing.add((command[0], failure.test))
        if self.options.prove:
            return f"prove {' '.join(command[3:])}: {failure}"
        return f"{pathlib.Path(command[0]).name}: {failure}"

    def check_noticing_tests(self):
        """That each test that noticed an error passes without one."""
        if not self.copy.build_targets(sorted(self.stale)):
            sys.exit("the copy does not build without an error either")
        failing = [test for program, test in sorted(self.noticing) if run_tests(self.copy, [program, f"--gtest_filter={test}"])]
        if failing:
            sys.exit("these fail without any error, too, so that they have noticed nothing: " + ", ".join(failing))

    def try_one(self, mutant, source):
        """Whether it compiles."""
        if mutant.name in self.done:
            return self.done[mutant.name]["verdict"] != "compile"
        began = time.monotonic()
        verdict = self.verdict(mutant)
        result = {"name": mutant.name, "source": source, "file": mutant.path, "old": mutant.old, "new": mutant.new, "verdict": verdict or "survived", "seconds": round(time.monotonic() - began)}
        self.done[mutant.name] = result
        with self.results.open("a") as out:
            out.write(json.dumps(result) + "\n")
        print(f"{result['seconds']:4d} s  {'SURVIVED' if verdict is None else verdict}  <- {mutant.name}", flush=True)
        return verdict != "compile"

    def run(self, listed):
        self.copy.refresh()
        failing = [command for command in (self.commands(None) if self.options.prove else []) if run_tests(self.copy, command)]
        if failing:
            sys.exit("these are not proven without any error either: " + "; ".join(" ".join(command[3:]) for command in failing))
        try:
            self.plant(listed)
        finally:
            self.check_noticing_tests()

    def plant(self, listed):
        for mutant in listed:
            if time.monotonic() > self.end:
                return
            if not self.try_one(mutant, "listed"):
                sys.exit(f"{mutant.name} does not compile")
        names = set()
        for index in range(self.options.random):
            for attempt in range(100):
                if time.monotonic() > self.end:
                    return
                mutant = Mutant(*operators.draw(TREE, random.Random(f"{self.options.seed}:{index}:{attempt}")))
                if mutant.name not in names and self.try_one(mutant, "random"):
                    names.add(mutant.name)
                    break

    def summarize(self, names):
        counted = [self.done[name] for name in names if name in self.done]
        counted += [r for r in self.done.values() if r["source"] == "random" and r["verdict"] != "compile"]
        survivors = [r for r in counted if r["verdict"] == "survived"]
        for result in survivors:
            print(f"survived: {result['name']}\n" + "\n".join("  - " + line.strip() for line in result["old"].splitlines()) + "\n" + "\n".join("  + " + line.strip() for line in result["new"].splitlines()))
        if counted:
            print(f"{len(counted) - len(survivors)} of {len(counted)} noticed ({100 * (1 - len(survivors) / len(counted)):.1f}%)")
        return bool(survivors)


def main():
    parser = argparse.ArgumentParser(prog="tests/mutation/run.sh", description="Plants errors in a copy of the tree and runs what should notice.")
    parser.add_argument("--copy", default=str(TREE / "build" / "mutation"), help="the copy, kept for the next run (default: build/mutation)")
    parser.add_argument("--results", default=str(TREE / "build" / "mutation.jsonl"), help="where results are appended (default: build/mutation.jsonl)")
    parser.add_argument("--only", default="", metavar="REGEX", help="of the listed errors, those whose file or description matches")
    parser.add_argument("--random", type=int, default=50, metavar="N", help="errors at random places (default: 50)")
    parser.add_argument("--seed", default="1", help="of the random places")
    parser.add_argument("--prove", action="store_true", help="plant what `consist prove` must find, and run it over the layouts of suites.py instead of tests")
    parser.add_argument("--thorough", action="store_true", help="the rest of ctest, too, where the chosen tests do not notice")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no further error after so many minutes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--check", action="store_true", help="only whether every listed error fits the tree")
    options = parser.parse_args()

    listed = listed_errors()
    check_list(listed)
    if options.check:
        print(f"{len(listed)} listed errors fit the tree")
        return 0
    listed = [error for error in listed if re.search(options.only, error.name) and (error.proven or not options.prove)]
    campaign = Campaign(options)
    campaign.run(listed)
    return campaign.summarize([error.name for error in listed])


if __name__ == "__main__":
    sys.exit(main())
