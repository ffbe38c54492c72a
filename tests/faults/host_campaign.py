#!/usr/bin/env python3
"""Takes hosts away from running jobs at random moments, and requires that they go on with another host (--on ssh --max-restarts).

The hosts are namespaces of this machine with addresses and an sshd of their own (tests/ssh); one is a spare. The link of a host with a
rank goes down and all that runs there is killed, as if its power were gone. There are no checkpoints: each run must go on from a
snapshot, which the lost host's ranks get from its copy on another host, end with status 0, and have recorded every step once with the
losses of the undisturbed run, to the bit. As root:

    tests/faults/host_campaign.py --build build --losses 20 --seed 1

With --fewer there is no spare: the job goes on with the hosts that are left, and with all again once the lost one is back. Losses are
then those of the undisturbed run within --tolerance, as sums are made in another order.

    tests/faults/host_campaign.py --build build --losses 10 --seed 1 --fewer --steps 400 --train=--accumulation=24 --strategies ddp,zero2,zero3-offload

Prints the median of the seconds from the loss to the end of the next step. The exit status is 0 if nothing was found. Needs h5py.
"""
import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import h5py

from kill_campaign import SOURCE, Failure, read_losses
from restart_campaign import GIVE_UP_SECONDS, STRATEGIES, Job, check_record, command, restarts_of, undisturbed

sys.path[:0] = [os.path.join(SOURCE, "tests/ssh"), os.path.join(SOURCE, "tests/hosts")]
from ssh_hosts import SshNetwork  # noqa: E402

HOSTS = 3  # beside the spare
WAIT = 2  # seconds, for another host (host-wait)


def start(network, consist, name, folder, options):
    names = list(network.addresses)[:HOSTS if options.fewer else None]
    hosts = ", ".join(f'"{host}"' for host in names)
    fewer = f"least-hosts = 1\nhost-wait = {WAIT}\n" if options.fewer else ""
    (folder / "cluster.toml").write_text(
        f'[ssh]\nhosts = [{hosts}]\nfolder = "{folder}/on-hosts"\nconsist = "{consist}"\n{fewer}'
        f'options = ["-F", "{network.folder}/ssh_config", "-o", "ServerAliveInterval=2"]\n')
    words = command(consist, name, str(folder / "run.h5"), options,
                    ["--on=ssh", "--max-restarts=3", f"--snapshot-every={options.every}"])
    return Job(network.words(words, folder, {}), str(folder / "run.log"))


def lose(network, consist, name, folder, expected, options, choose):
    """One lost host. Returns what happened in words, and the seconds from the loss to the end of the next step."""
    ranks = STRATEGIES[name][0]
    victim = list(network.addresses)[choose.randrange(1, ranks)]  # the first one has rank 0 and the archive
    step, moment = choose.randrange(2 * options.every, options.steps // 2), choose.random()
    job = start(network, consist, name, folder, options)
    try:
        job.wait_for_step(step)
        time.sleep(0.1 * moment)
        at = time.monotonic()
        network.lose_node(victim)
        status = job.wait(GIVE_UP_SECONDS)
    finally:
        job.wait(0)
        network.start_node(victim)
    if status != 0:
        raise Failure(f"the job ends with status {status} after {victim} was lost:\n{job.text()[-1500:]}")
    archive = str(folder / "run.h5")
    check_record(archive, expected, options.steps)
    again = restarts_of(archive)
    if len(again) != 1 or again[0]["from"] != "the snapshot in memory":
        raise Failure(f"{len(again)} restarts, from {[event['from'] for event in again]}:\n{job.text()[-1500:]}")
    done = max(number for when, number in job.steps if when <= at)
    if again[0]["step"] < (done - 1) // options.every * options.every - options.every:
        raise Failure(f"goes on after step {again[0]['step']}; {done} steps were done, with a snapshot every {options.every}")
    seconds = next(when for when, _ in job.steps if when > job.runs[-1][0]) - at
    if seconds > options.most + options.timeout:
        raise Failure(f"the next step ended {seconds:.1f} s after {victim} was lost")
    return f"{victim} lost after step {done}, goes on after step {again[0]['step']}", seconds


def check_near(archive, expected, options):
    """As check_record(), for a run whose ranks were fewer for a while. The largest relative difference of a loss."""
    steps, losses, state = read_losses(archive)
    if state != "finished" or steps != list(range(1, options.steps + 1)):
        raise Failure(f"the archive is {state} and has the steps {steps[:3]} ... {steps[-3:]}, {len(steps)} of {options.steps}")
    differences = [abs(one - other) / abs(other) for one, other in zip(losses, expected)]
    if max(differences) > options.tolerance:
        at = differences.index(max(differences))
        raise Failure(f"step {at + 1} has the loss {losses[at]}, {expected[at]} without a failure")
    return max(differences)


def changes_of(archive):
    with h5py.File(archive, "r") as file:
        return [json.loads(text) for kind, text in zip(file["events/kind"][:], file["events/text"][:]) if kind == b"nodes"]


def leave_out(network, consist, name, folder, expected, options, choose):
    """One host that is lost, left out and taken in again. Returns as lose()."""
    ranks = STRATEGIES[name][0]
    place = choose.randrange(1, ranks)
    victim = list(network.addresses)[place]
    step, moment, away = choose.randrange(2 * options.every, options.steps // 3), choose.random(), 3 * choose.random()
    job = start(network, consist, name, folder, options)
    lost = False
    try:
        job.wait_for_step(step)
        time.sleep(0.1 * moment)
        at = time.monotonic()
        network.lose_node(victim)
        lost = True
        while len(job.runs) < 2 and job.process.poll() is None and time.monotonic() < at + GIVE_UP_SECONDS:
            time.sleep(0.01)
        time.sleep(away)
        network.start_node(victim)
        lost = False
        back = time.monotonic()
        status = job.wait(GIVE_UP_SECONDS)
    finally:
        job.wait(0)
        if lost:
            network.start_node(victim)
    if status != 0:
        raise Failure(f"the job ends with status {status} after {victim} was lost:\n{job.text()[-2500:]}")
    archive = str(folder / "run.h5")
    worst = check_near(archive, expected, options)
    again, changes = restarts_of(archive), changes_of(archive)
    if len(again) != 1 or again[0]["from"] != "the snapshot in memory":
        raise Failure(f"{len(again)} restarts, from {[event['from'] for event in again]}:\n{job.text()[-1500:]}")
    if [(one["left_out"], one["came"], one["ranks"]) for one in changes] != [(str(place), "", ranks - 1), ("", str(place), ranks)]:
        raise Failure(f"the nodes change so: {changes}\n{job.text()[-2500:]}")
    done = max(number for when, number in job.steps if when < job.runs[1][0])  # what the hosts said last may have come later
    seconds = next(when for when, _ in job.steps if when > job.runs[1][0]) - at
    if changes[0]["step"] < (done - 1) // options.every * options.every - options.every:
        raise Failure(f"goes on after step {changes[0]['step']}; {done} steps were done, with a snapshot every {options.every}")
    if seconds > options.most + options.timeout + WAIT:
        raise Failure(f"the next step ended {seconds:.1f} s after {victim} was lost")
    if changes[1]["step"] != max(number for when, number in job.steps if when < job.runs[2][0]):
        raise Failure(f"steps are lost where the host is taken in, after {changes[1]['step']}")
    grown = next(when for when, _ in job.steps if when > job.runs[2][0])
    pause = grown - max(when for when, _ in job.steps if when < job.runs[2][0])
    return (f"{victim} lost after step {done}, goes on without it after step {changes[0]['step']} ({done - changes[0]['step']} steps lost), "
            f"with it again after step {changes[1]['step']}, {grown - back:.1f} s after it answers, for a pause of {pause:.1f} s; "
            f"losses within {worst:.1e}"), seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(SOURCE, "build"), help="build folder [build]")
    parser.add_argument("--losses", type=int, default=20, help="hosts lost [20]")
    parser.add_argument("--seed", type=int, default=1, help="of victims and moments [1]")
    parser.add_argument("--steps", type=int, default=200, help="steps of a run [200]")
    parser.add_argument("--every", type=int, default=10, help="steps between snapshots [10]")
    parser.add_argument("--timeout", type=int, default=5, help="--timeout of the runs, in seconds [5]")
    parser.add_argument("--most", type=float, default=10, help="seconds from a loss, beside the timeout, to the next step's end, at most [10]")
    parser.add_argument("--fewer", action="store_true", help="no host takes the lost one's place until it is back")
    parser.add_argument("--train", default="", help="more options of the runs, such as --accumulation=24, which makes steps longer")
    parser.add_argument("--tolerance", type=float, default=1e-5, help="of losses, with --fewer [1e-5]")
    parser.add_argument("--strategies", default="ddp,zero2,zero3-offload,cp,ep")
    options = parser.parse_args()
    consist = os.path.abspath(os.path.join(options.build, "bin/consist"))
    choose, names, found, times = random.Random(options.seed), options.strategies.split(","), [], []
    with tempfile.TemporaryDirectory(prefix="consist-hosts-") as scratch:
        whole = {name: undisturbed(consist, name, scratch, options)[0] for name in names}
        hosts = Path(scratch, "network")
        hosts.mkdir()
        network = SshNetwork(hosts, HOSTS)
        try:
            for i in range(options.losses):
                name, folder = names[i % len(names)], Path(scratch, str(i))
                folder.mkdir()
                try:
                    what, seconds = (leave_out if options.fewer else lose)(network, consist, name, folder, whole[name], options, choose)
                    times.append(seconds)
                    print(f"{i + 1}/{options.losses} {name}: {what}, next step after {seconds:.2f} s", flush=True)
                except Failure as failure:
                    found.append(str(failure))
                    print(f"{i + 1}/{options.losses} {name}: FOUND: {failure}", flush=True)
        finally:
            network.end()
    if times:
        print(f"to the end of the next step {statistics.median(times):.2f} s (median of {len(times)}), at most {max(times):.2f} s, of which "
              f"{options.timeout} s of silence are waited for")
    print(f"{options.losses} hosts lost with seed {options.seed}; {len(found)} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
