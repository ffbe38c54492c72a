#!/usr/bin/env python3
"""Kills (-9) and stops ranks of real jobs at random moments, and requires that they go on (--max-restarts).

Each run must end with status 0, have recorded every step once with the losses of the undisturbed run, to the bit, go on from its
newest snapshot (at most the one before, where the moment fell into its writing), go on within 10 s (a stopped rank: and the job's
timeout), and leave nothing in /dev/shm.

    tests/faults/restart_campaign.py --build build --kills 200 --stops 50 --seed 1

Moments are drawn from the seed, a quarter of them from the whole time of a run, the others within a step; what they hit depends on
the machine. Prints the median of the seconds from the kill to the end of the
next step. The exit status is 0 if nothing was found. Needs h5py.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import h5py

from kill_campaign import MODEL, SOURCE, Failure, rank_processes, read_losses

MIXTURE = os.path.join(SOURCE, "tests/golden/hf/mixtral")
STRATEGIES = {  # ranks and options: small enough for a machine of two cores
    "ddp": (3, ["--strategy=ddp", f"--model={MODEL}"]),
    "zero2": (3, ["--strategy=zero2", f"--model={MODEL}"]),
    "zero3-offload": (3, ["--strategy=zero3-offload", f"--model={MODEL}"]),
    "tp-sp": (2, ["--strategy=tp-sp=2", f"--model={MODEL}"]),
    "cp": (2, ["--strategy=cp=2", f"--model={MODEL}"]),
    "ep": (2, ["--strategy=ep=2", f"--model={MIXTURE}"]),
}
GIVE_UP_SECONDS = 120.0


class TooLate(Exception):
    """The run was over before the moment came; its argument is how long it took."""


def command(consist, name, archive, options, more):
    ranks, strategy = STRATEGIES[name]
    return [consist, "train", "--device=cpu", "--cpu.threads=1", "--dataset=synthetic", "--sequence=32", "--batch=2", "--from-scratch",
            f"--steps={options.steps}", f"--archive={archive}", f"--timeout={options.timeout}", f"--ranks={ranks}", "--json", *strategy,
            *getattr(options, "train", "").split(), *more]


class Job:
    """A run whose steps are noted as they end: (moment, step), and the starts of its generations: (moment, first step)."""

    def __init__(self, words, log):
        self.log = log
        self.steps, self.runs = [], []
        with open(log, "wb") as errors:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.started = time.monotonic()
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            event = json.loads(line)
            if event["event"] == "run":
                self.runs.append((time.monotonic(), event["first_step"]))
            elif event["event"] == "step":
                self.steps.append((time.monotonic(), event["step"]))

    def wait_for_step(self, step):
        while self.process.poll() is None and not any(done >= step for at, done in self.steps):
            time.sleep(0.005)

    def wait(self, seconds):
        try:
            status = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()  # the system kills its ranks
            self.process.wait()
            status = None
        self.reader.join()
        self.process.stdout.close()
        return status

    def text(self):
        with open(self.log, errors="replace") as file:
            return file.read()


def restarts_of(archive):
    with h5py.File(archive, "r") as file:
        rows = zip(file["events/kind"][:], file["events/text"][:])
        return [json.loads(text) for kind, text in rows if kind == b"restart"]


def start(consist, name, folder, options):
    """A run whose failed ranks are replaced."""
    return Job(command(consist, name, os.path.join(folder, "run.h5"), options, ["--max-restarts=3", f"--snapshot-every={options.every}"]),
               os.path.join(folder, "run.log"))


def memory_of(process):
    """The folder in memory in which a rank keeps its snapshots."""
    with open(f"/proc/{process}/environ", "rb") as file:
        return re.search(rb"(?:^|\0)CONSIST_JOB_SNAPSHOTS=([^\0]*)", file.read()).group(1).decode()


def wait_for_snapshot(job):
    """Until one is whole: on a busy machine many steps may end before it is written."""
    while job.process.poll() is None:
        process = rank_processes(job.process.pid).get(0)
        try:
            saved = os.listdir(memory_of(process)) if process is not None else []
        except (FileNotFoundError, ProcessLookupError):
            saved = []  # the rank has just ended, or saved nothing yet
        if any(name.startswith("step-") and not name.endswith(".partial") for name in saved):
            return
        time.sleep(0.005)


def hit(job, victim, how):
    """Kills or stops a rank; the moment, and the folder of its snapshots."""
    process = None
    while process is None and job.process.poll() is None:
        process = rank_processes(job.process.pid).get(victim)
    if process is None and job.process.poll() != 0:
        raise Failure(f"the job ends with status {job.process.poll()} before a rank is hit:\n{job.text()[-1500:]}")
    if process is None:
        raise TooLate(time.monotonic() - job.started)
    try:
        memory = memory_of(process)
        os.kill(process, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    except (FileNotFoundError, ProcessLookupError):
        raise TooLate(time.monotonic() - job.started) from None
    return time.monotonic(), memory


def disturb(consist, name, folder, expected, duration, how, options, choose):
    """One kill or stop. Returns what happened in words, and the seconds from it to the end of the next step (None: no step followed)."""
    victim, moment, step = choose.randrange(STRATEGIES[name][0]), choose.random(), choose.randrange(1, options.steps)
    in_step = choose.random() < 0.75
    job = start(consist, name, folder, options)
    try:
        if in_step:
            job.wait_for_step(step)
        time.sleep(moment * (duration / options.steps if in_step else duration))
        at, memory = hit(job, victim, how)
        return judge(job, folder, expected, victim, at, memory, how, options)
    finally:
        job.wait(0)


def judge(job, folder, expected, victim, at, memory, how, options):
    """Waits for the end of a run whose rank was hit, and checks what is left."""
    status = job.wait(GIVE_UP_SECONDS)
    if status is None:
        raise Failure(f"the job does not end after rank {victim} was hit")
    if status != 0:
        raise Failure(f"the job ends with status {status}:\n{job.text()[-1500:]}")
    archive = os.path.join(folder, "run.h5")
    check_record(archive, expected, options.steps)
    if os.path.exists(memory):
        raise Failure(f"{memory} is left behind")
    again = restarts_of(archive)
    if not again:
        return f"rank {victim} hit at its end", None
    return outcome(job, again, victim, at, how, options)


def check_record(archive, expected, count):
    steps, losses, state = read_losses(archive)
    if state != "finished" or steps != list(range(1, count + 1)):
        raise Failure(f"the archive is {state} and has the steps {steps[:3]} ... {steps[-3:]}, {len(steps)} of {count}")
    if losses != expected:
        first = next(i for i, (one, other) in enumerate(zip(losses, expected)) if one != other)
        raise Failure(f"step {first + 1} has the loss {losses[first]}, {expected[first]} without a failure")


def outcome(job, again, victim, moment, how, options):
    if len(again) != 1:
        raise Failure(f"one failure led to {len(again)} restarts:\n{job.text()[-1500:]}")
    event = again[0]
    if event["rank"] != victim:
        raise Failure(f"rank {victim} was hit, rank {event['rank']} is named: {event['what']}")
    done = max((step for at, step in job.steps if at <= moment and step < options.steps), default=0)
    # The newest snapshot may have been in writing; what was recorded last may be a step before the failure. A busy machine may take
    # longer for one than until the next is due: the run says that it leaves that out.
    newest = max(done - 1, 0) // options.every * options.every
    left_out = "is left out, since the one before is still being written" in job.text()
    if event["step"] < newest - options.every and not left_out:
        raise Failure(f"goes on after step {event['step']}; {done} steps were done, with a snapshot every {options.every}")
    next_step = next((at for at, step in job.steps if at > job.runs[-1][0]), None)
    seconds = None if next_step is None else next_step - moment
    limit = options.most + (0 if how == "kill" else options.timeout)
    if seconds is not None and seconds > limit:
        raise Failure(f"the next step ended {seconds:.1f} s after rank {victim} was hit")
    return f"rank {victim} hit, {done} steps done, goes on after step {event['step']} from {event['from']}", seconds


def undisturbed(consist, name, scratch, options):
    """Losses of a run, and its seconds."""
    archive = os.path.join(scratch, f"whole-{name}.h5")
    job = Job(command(consist, name, archive, options, []), os.path.join(scratch, f"whole-{name}.log"))
    if job.wait(GIVE_UP_SECONDS) != 0:
        sys.exit(f"{name} does not run undisturbed:\n{job.text()}")
    return read_losses(archive)[1], time.monotonic() - job.started


def campaign(consist, scratch, options):
    names = options.strategies.split(",")
    choose = random.Random(options.seed)
    whole = {}
    for name in names:
        whole[name] = undisturbed(consist, name, scratch, options)
        print(f"{name}: {whole[name][1]:.2f} s undisturbed", flush=True)
    kinds = ["kill"] * options.kills + ["stop"] * options.stops
    found, times, late = [], {"kill": [], "stop": []}, 0
    for i, how in enumerate(kinds):
        name = names[i % len(names)]
        for attempt in range(50):
            folder = os.path.join(scratch, "run")
            shutil.rmtree(folder, ignore_errors=True)
            os.mkdir(folder)
            try:
                what, seconds = disturb(consist, name, folder, *whole[name], how, options, choose)
                break
            except TooLate as moment:  # the machine was busier when the undisturbed run was timed
                late += 1
                whole[name] = whole[name][0], min(whole[name][1], moment.args[0])
            except Failure as failure:
                what, seconds = f"FOUND: {failure}", None
                found.append((i, how, name, str(failure)))
                if options.keep:
                    shutil.copytree(folder, os.path.join(options.keep, f"{i}-{how}-{name}"), dirs_exist_ok=True)
                break
        else:
            sys.exit(f"no moment of {name} was hit in 50 attempts")
        if seconds is not None:
            times[how].append(seconds)
        print(f"{i + 1}/{len(kinds)} {how} {name}: {what}" + (f", next step after {seconds:.2f} s" if seconds else ""), flush=True)
    return found, times, late


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(SOURCE, "build"), help="build folder [build]")
    parser.add_argument("--kills", type=int, default=200, help="ranks killed [200]")
    parser.add_argument("--stops", type=int, default=50, help="ranks stopped [50]")
    parser.add_argument("--seed", type=int, default=1, help="of victims and moments [1]")
    parser.add_argument("--steps", type=int, default=100, help="steps of a run [100]")
    parser.add_argument("--every", type=int, default=10, help="steps between snapshots [10]")
    parser.add_argument("--timeout", type=int, default=5, help="--timeout of the runs, in seconds [5]")
    parser.add_argument("--most", type=float, default=10, help="seconds from a kill to the end of the next step, at most [10]")
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--keep", help="folder for what the runs that showed something left behind")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="consist-restarts-") as scratch:
        found, times, late = campaign(os.path.join(options.build, "bin/consist"), scratch, options)
    for how, seconds in times.items():
        if seconds:
            print(f"{how}: to the end of the next step {statistics.median(seconds):.2f} s (median of {len(seconds)}), at most "
                  f"{max(seconds):.2f} s")
    print(f"{options.kills} kills and {options.stops} stops with seed {options.seed} ({late} drawn again because the job was over); "
          f"{len(found)} found")
    for i, how, name, text in found:
        print(f"  {i + 1} {how} {name}: {text}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
