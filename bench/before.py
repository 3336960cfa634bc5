#!/usr/bin/env python3
"""Compares another build with the one in target/release: a change must not make the engine or the lab slower.

    python3 bench/before.py OLD [--of engine|lab] [--rounds 10] [--seconds 2] [--only echo fan-out] [--floor 0.98]

OLD is a program `tidewire` of another commit, such as

    git worktree add target/before COMMIT
    cargo build --release --package tidewire-cli --manifest-path target/before/Cargo.toml

All serve in turns on the first core; the load generator of this build is on the second. With `--of lab` all generate the
load in turns, and this build serves. A round is OLD, this build, and OLD once more, and the order changes from round to
round. A line for each kind of load: the median over the rounds of this build against OLD (the mean of its two runs), for the
rate, its CPU for a message, and the server's memory; then the spread: where the median rate of OLD against itself lies with
95 % (bootstrap over the rounds). A rate is too low if it is below the floor and below the spread. Exit code: 1 if a rate is
too low; of an engine also if a memory is above 1.03; of a lab also if its CPU is above 2 minus the floor and above the spread
of its own CPU.
"""

import argparse
import random
import statistics
import tempfile

from measure import bench, cpu_us, median, rate
from servers import LIMITS, SECRET, TIDEWIRE, Server, certificate_flags

FAST = ["--test", "throughput", "--connections", 100]
ECHO = ["--test", "echo", "--connections", 100, "--in-flight", 64]
# What the server's program does, further flags of it, and flags of the load.
LOADS = {
    "sink": ("sink", [], FAST),
    "echo": ("echo", [], ECHO),
    "fan-out": ("sink", ["--topics-open"], ["--test", "fan-out", "--connections", 1000]),
    "storm": ("sink", [], ["--test", "connection-storm", "--connections", 5000]),
    "tls": ("echo", ["--tls"], [*ECHO, "--insecure"]),
    "tls-storm": ("sink", ["--tls"], ["--test", "connection-storm", "--connections", 2000, "--insecure"]),
}


def serve(program, app, flags):
    command = [program, "serve", "--listen", "127.0.0.1:0", "--shards", "1", *LIMITS]
    command += ["--ops-listen", "127.0.0.1:0", "--log-level", "error", "--app", app, *flags]
    return Server(str(program), command, ["--profile", "v1", "--jwt-secret", SECRET])


def measure(program, load, part, seconds, certificate):
    app, flags, of_load = LOADS[load]
    server, lab, side = (program, TIDEWIRE, "server") if part == "engine" else (TIDEWIRE, program, "client")
    with serve(server, app, certificate if "--tls" in flags else flags) as served:
        result = bench(served, *of_load, "--duration-s", seconds, program=lab)
        return {"rate": rate(result), "cpu": cpu_us(side)(result), "memory": served.resident_bytes()}


def mean(one, other):
    return (one + other) / 2 if one and other else None


def ratio(one, other):
    return one / other if one and other else None


def spread(ratios):
    """Where the median of such ratios lies with 95 %, by the bootstrap."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("--of", default="engine", choices=["engine", "lab"], help="what is compared")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--only", nargs="+", choices=LOADS, default=list(LOADS))
    parser.add_argument(
        "--floor", type=float, default=0.98, help="the lowest rate of this build against OLD that is accepted"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        raise SystemExit(1 if compare(arguments, certificate_flags(folder)) else 0)


def compare(arguments, certificate):
    print(
        f"{'load':10} {'rate':>7} {'CPU':>7} {'memory':>7}   {'spread':13}   {arguments.rounds} rounds of {arguments.seconds:g} s"
    )
    is_slower = False
    for load in arguments.only:
        rounds = []
        for number in range(arguments.rounds):
            runs = [("old", arguments.old), ("new", TIDEWIRE), ("again", arguments.old)]
            # Who goes first changes, so that a drift of the machine meets all.
            runs = runs[number % 3 :] + runs[: number % 3]
            rounds.append({name: measure(program, load, arguments.of, arguments.seconds, certificate) for name, program in runs})

        def against_old(figure, rounds=rounds):
            return median(
                ratio(runs["new"][figure], mean(runs["old"][figure], runs["again"][figure])) for runs in rounds
            )

        def against_itself(figure, rounds=rounds):
            return spread([one for runs in rounds if (one := ratio(runs["again"][figure], runs["old"][figure]))])

        low, high = against_itself("rate")
        rates, memory = against_old("rate"), against_old("memory")
        is_too_low = rates < min(arguments.floor, low)
        if arguments.of == "lab":
            needs_more = against_old("cpu") > max(2 - arguments.floor, against_itself("cpu")[1])
        else:
            needs_more = memory > 1.03
        is_slower |= is_too_low or needs_more
        verdict = "too low" if is_too_low else "needs more" if needs_more else ""
        print(
            f"{load:10} {rates:7.3f} {against_old('cpu'):7.3f} {memory:7.3f}   {low:.3f} - {high:.3f}   {verdict}",
            flush=True,
        )
    return is_slower


if __name__ == "__main__":
    main()
