#!/usr/bin/env python3
"""Kills ranks of real jobs with -9 at random moments, from the first process to the last, and checks what is left.

After each kill: every other rank ends by itself, within 10 s, without a crash, and says the rank that was killed and no other;
the archive can be read and holds what the undisturbed run has, to the bit; the same run resumed from its checkpoints ends as the
undisturbed one. With --stops some ranks are stopped (SIGSTOP) rather than killed, at random moments or while they write a
checkpoint: the others name them after the job's timeout.

    tests/faults/kill_campaign.py --build build --kills 200 --stops 20 --seed 1

Moments are drawn from the seed; what they hit depends on the machine. The exit status is 0 if nothing was found. Needs h5py.
"""
import argparse
import glob
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import h5py

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(SOURCE, "tests/golden/hf/llama-untied")
STRATEGIES = {  # ranks and options: small enough for a machine of two cores
    "ddp": (3, ["--strategy=ddp"]),
    "zero2": (3, ["--strategy=zero2"]),
    "zero3-offload": (3, ["--strategy=zero3-offload"]),
    "tp-sp": (2, ["--strategy=tp-sp=2"]),
    "pipeline": (2, ["--strategy=pipeline=2", "--accumulation=2"]),
}
TRANSPORTS = {"socket": ["--transport=socket"], "efa-tcp": ["--transport=efa", "--efa.provider=tcp"]}
MOST_SECONDS = 10.0  # from the kill to the end of the last rank
GIVE_UP_SECONDS = 90.0
CHECKPOINT_EVERY = 10


class TooLate(Exception):
    """The job was over before the moment came; its argument is how long it took."""


class Failure(Exception):
    """What a kill has brought to light."""


def command(consist, case, archive, checkpoints, options, more):
    ranks, strategy = STRATEGIES[case[0]]
    return [consist, "train", "--device=cpu", "--cpu.threads=1", "--dataset=synthetic", "--sequence=32", "--batch=2",
            "--from-scratch", f"--model={MODEL}", f"--steps={options.steps}", f"--archive={archive}", f"--timeout={options.timeout}",
            f"--checkpoint={checkpoints}", f"--checkpoint-every={CHECKPOINT_EVERY}", f"--ranks={ranks}", *strategy,
            *TRANSPORTS[case[1]], *more]


def read_losses(path):
    """Steps and losses of an archive, and its status; raises what h5py raises."""
    # Rows that a writer has counted but not written are step -1 (docs/archive.md).
    with h5py.File(path, "r") as file:
        status = file.attrs["status"]
        status = status.decode() if isinstance(status, bytes) else str(status)
        if "steps/step" not in file:
            return [], [], status
        steps, losses = file["steps/step"][:].tolist(), file["steps/loss"][:].tolist()
    rows = min(len(steps), len(losses))
    while rows > 0 and steps[rows - 1] < 0:
        rows -= 1
    return steps[:rows], losses[:rows], status


def rank_processes(launcher):
    """Process ids of a launcher's ranks, by rank, as far as they have begun."""
    found = {}
    try:
        with open(f"/proc/{launcher}/task/{launcher}/children") as file:
            children = file.read().split()
        for child in children:
            with open(f"/proc/{child}/environ", "rb") as file:
                match = re.search(rb"(?:^|\0)RANK=(\d+)\0", file.read() + b"\0")
            if match:
                found[int(match.group(1))] = int(child)
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def writes_checkpoint(checkpoints, process):
    return bool(glob.glob(f"{checkpoints}/step-*.partial/*.partial-{process}"))


class Job:
    """A run by `consist train --ranks`, with its output in a file."""

    def __init__(self, words, output):
        self.output = output
        with open(output, "wb") as file:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT)
        self.started = time.monotonic()

    def wait(self, seconds):
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()  # the system kills its ranks
            self.process.wait()
            return None

    def text(self):
        with open(self.output, errors="replace") as file:
            return file.read()


def check_names(text, victim, ranks, formed):
    """Each other rank says who was lost, once the job has formed; before, the launcher does."""
    accused = {}
    for line in text.splitlines():
        match = re.match(r"(?:\[rank (\d+)\] )?consist: (.*)", line)
        if not match:
            continue
        speaker = int(match.group(1) or 0)
        named = re.search(r"rank (\d+) on host", match.group(2))
        if named:
            accused[speaker] = int(named.group(1))
            if int(named.group(1)) != victim:
                raise Failure(f"rank {speaker} names rank {named.group(1)}")
    for signal_line in re.finditer(r"rank (\d+) \(process \d+\) was ended by signal (\d+)", text):
        if int(signal_line.group(1)) != victim:
            raise Failure(f"rank {signal_line.group(1)} crashed by signal {signal_line.group(2)}")
    silent = [rank for rank in range(ranks) if rank != victim and rank not in accused]
    if formed and silent:
        raise Failure(f"ranks {silent} do not say who was lost")
    if not formed and not accused and f"rank {victim} ended before all ranks had joined" not in text \
            and f"rank {victim} (process" not in text:
        raise Failure("nobody says who was lost")


def check_archive(path, expected, where):
    if not os.path.exists(path):
        return 0, "none"
    try:
        steps, losses, status = read_losses(path)
    except Exception as error:  # whatever h5py makes of a torn file
        raise Failure(f"{where} cannot be read: {error}") from error
    if steps != list(range(1, len(steps) + 1)):
        raise Failure(f"{where} has the steps {steps}")
    if losses != expected[:len(losses)]:
        raise Failure(f"{where} has other losses than the undisturbed run")
    return len(steps), status


def newest_checkpoint(folder):
    steps = [int(os.path.basename(path)[5:]) for path in glob.glob(f"{folder}/step-*") if re.fullmatch(r"step-\d+", os.path.basename(path))]
    return max(steps, default=0)


def resume(consist, case, folder, expected, options):
    """The same command again with --resume: it goes on in the same archive, which then holds the whole run."""
    archive, checkpoints = os.path.join(folder, "run.h5"), os.path.join(folder, "checkpoints")
    saved = newest_checkpoint(checkpoints)
    job = Job(command(consist, case, archive, checkpoints, options, ["--resume"]), os.path.join(folder, "resumed.log"))
    status = job.wait(GIVE_UP_SECONDS)
    if status != 0:
        raise Failure(f"the resumed run ends with status {status}:\n{job.text()[-1000:]}")
    steps, losses, state = read_losses(archive)
    if state != "finished" or steps != list(range(1, options.steps + 1)):
        raise Failure(f"the resumed run is {state} with {len(steps)} steps after a checkpoint of step {saved}")
    if losses != expected:
        raise Failure("the resumed run has other losses than the undisturbed one")
    return saved


def disturb(consist, case, folder, expected, duration, how, options, choose):
    """One kill or stop; a description of what happened, and seconds to the end of the last rank."""
    ranks = STRATEGIES[case[0]][0]
    victim = choose.randrange(ranks)
    moment = choose.random() * duration
    archive, checkpoints = os.path.join(folder, "run.h5"), os.path.join(folder, "checkpoints")
    job = Job(command(consist, case, archive, checkpoints, options, []), os.path.join(folder, "run.log"))
    try:
        if how != "stop-in-checkpoint":
            time.sleep(moment)
        process = None
        while process is None and job.process.poll() is None:
            process = rank_processes(job.process.pid).get(victim)
            if how == "stop-in-checkpoint" and process is not None and not writes_checkpoint(checkpoints, process):
                process = None
        if process is None:
            raise TooLate(time.monotonic() - job.started)
        hit = time.monotonic()
        try:
            os.kill(process, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        except ProcessLookupError:
            raise TooLate(time.monotonic() - job.started) from None
        limit = MOST_SECONDS if how == "kill" else MOST_SECONDS + options.timeout
        status = job.wait(GIVE_UP_SECONDS)
        seconds = time.monotonic() - hit
    finally:
        if job.process.poll() is None:
            job.process.kill()
            job.process.wait()
    text = job.text()
    if status is None:
        raise Failure(f"the job does not end after rank {victim} was hit")
    rows, state = check_archive(archive, expected, "the archive")
    if status == 0 or state == "finished":
        # The victim had done its part: nobody had to notice, and nobody may have been accused or crashed.
        if status != 0:
            check_names(text, victim, ranks, False)
        outcome = f"rank {victim} hit at its end"
    else:
        formed = "ended before all ranks had joined the job" not in text
        check_names(text, victim, ranks, formed)
        if seconds > limit:
            raise Failure(f"the last rank ended {seconds:.1f} s after rank {victim} was hit")
        outcome = f"rank {victim} hit after {moment:.2f} s" if formed else f"rank {victim} hit before all had joined"
    saved = resume(consist, case, folder, expected, options)
    return f"{outcome}, {rows} steps recorded ({state}), resumed after step {saved}", seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(SOURCE, "build"), help="build folder [build]")
    parser.add_argument("--kills", type=int, default=200, help="ranks killed [200]")
    parser.add_argument("--stops", type=int, default=0, help="ranks stopped, every other one while it writes a checkpoint [0]")
    parser.add_argument("--seed", type=int, default=1, help="of victims and moments [1]")
    parser.add_argument("--steps", type=int, default=100, help="steps of a run [100]")
    parser.add_argument("--timeout", type=int, default=5, help="--timeout of the runs, in seconds [5]")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--transports", default=",".join(TRANSPORTS))
    parser.add_argument("--keep", help="folder for what the runs that showed something left behind")
    options = parser.parse_args()
    consist = os.path.join(options.build, "bin/consist")
    cases = [(s, t) for s in options.strategies.split(",") for t in options.transports.split(",")]
    choose = random.Random(options.seed)
    expected, durations, slowest, found, late = {}, {}, 0.0, [], 0
    before_joining = at_end = resumed = 0

    with tempfile.TemporaryDirectory(prefix="consist-kills-") as scratch:
        for case in cases:
            folder = os.path.join(scratch, "whole-" + "-".join(case))
            os.mkdir(folder)
            archive = os.path.join(folder, "run.h5")
            job = Job(command(consist, case, archive, os.path.join(folder, "checkpoints"), options, []), os.path.join(folder, "log"))
            if job.wait(GIVE_UP_SECONDS) != 0:
                sys.exit(f"{case} does not run undisturbed:\n{job.text()}")
            durations[case] = time.monotonic() - job.started
            expected[case] = read_losses(archive)[1]
            print(f"{'/'.join(case)}: {durations[case]:.2f} s undisturbed", flush=True)

        kinds = ["kill"] * options.kills + ["stop" if i % 2 else "stop-in-checkpoint" for i in range(options.stops)]
        for i, how in enumerate(kinds):
            case = cases[i % len(cases)]
            seconds = None
            attempt = 0
            folder = os.path.join(scratch, "run")
            while seconds is None:
                attempt += 1
                if attempt > 50:
                    sys.exit(f"no moment of {case} was hit in 50 attempts")
                shutil.rmtree(folder, ignore_errors=True)
                os.mkdir(folder)
                try:
                    outcome, seconds = disturb(consist, case, folder, expected[case], durations[case], how, options, choose)
                except TooLate as moment:
                    # The machine was busier when the undisturbed run was timed.
                    late += 1
                    durations[case] = min(durations[case], moment.args[0])
                except Failure as failure:
                    outcome, seconds = f"FOUND: {failure}", 0.0
                    found.append((i, how, case, str(failure)))
                    if options.keep:
                        shutil.copytree(folder, os.path.join(options.keep, f"{i}-{how}-{'-'.join(case)}"), dirs_exist_ok=True)
                    print(open(os.path.join(folder, "run.log"), errors="replace").read()[-3000:], flush=True)
            slowest = max(slowest, seconds or 0.0)
            before_joining += "before all had joined" in outcome
            at_end += "at its end" in outcome
            resumed += "resumed after step" in outcome and not outcome.endswith("step 0")
            print(f"{i + 1}/{len(kinds)} {how} {'/'.join(case)}: {outcome}" + (f", {seconds:.2f} s" if seconds else ""), flush=True)

    print(f"{options.kills} kills and {options.stops} stops with seed {options.seed} ({before_joining} before all had joined, {at_end} at "
          f"a rank's end, {late} drawn again because the job was over), {resumed} resumed from a checkpoint; the last rank ended at "
          f"most {slowest:.2f} s later; {len(found)} found")
    for i, how, case, text in found:
        print(f"  {i + 1} {how} {'/'.join(case)}: {text}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
