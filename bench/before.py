#!/usr/bin/env python3
"""Compares another build of the engine with the one in target/release: a change must not make it slower.

    python3 bench/before.py OLD [--rounds 10] [--seconds 2] [--only echo fan-out]

OLD is a program `tidewire` of another commit, such as

    git worktree add target/before COMMIT
    cargo build --release --package tidewire-cli --manifest-path target/before/Cargo.toml

Both serve in turns on the first core; the load generator of this build is on the second. A line for each kind of load:
the median over the rounds of new against old, for the rate, the server's CPU for a message, and its memory. OLD against OLD
shows how much the machine varies. Exit code: 1 if a rate is below 0.97 or a memory above 1.03.
"""

import argparse

from measure import bench, cpu_us, median, rate
from servers import LIMITS, SECRET, TIDEWIRE, Server

FAST = ["--connections", 100]
LOADS = {
    "sink": ("sink", [*FAST, "--test", "throughput"]),
    "echo": ("echo", [*FAST, "--test", "echo", "--in-flight", 64]),
    "fan-out": ("sink", ["--topics-open"], ["--test", "fan-out", "--connections", 1000]),
}


def serve(program, app, *further):
    command = [program, "serve", "--listen", "127.0.0.1:0", "--shards", "1", *LIMITS]
    command += ["--ops-listen", "127.0.0.1:0", "--log-level", "error", "--app", app, *further]
    return Server(str(program), command, ["--profile", "v1", "--jwt-secret", SECRET])


def measure(program, load, seconds):
    app, *further = LOADS[load]
    flags = further.pop()
    with serve(program, app, *(further[0] if further else [])) as server:
        result = bench(server, *flags, "--duration-s", seconds)
        return result, server.resident_bytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--only", nargs="+", choices=LOADS, default=list(LOADS))
    arguments = parser.parse_args()
    slower = False
    print(f"{'load':10} {'rate':>7} {'CPU':>7} {'memory':>7}   new against old, {arguments.rounds} rounds")
    for load in arguments.only:
        pairs = []
        for number in range(arguments.rounds):
            order = [arguments.old, TIDEWIRE]
            # Who goes first changes, so that a drift of the machine meets both.
            if number % 2:
                order.reverse()
            figures = {program: measure(program, load, arguments.seconds) for program in order}
            pairs.append((figures[TIDEWIRE], figures[arguments.old]))
        rates = median(ratio(rate(new), rate(old)) for (new, _), (old, _) in pairs)
        cpu = median(ratio(cpu_us("server")(new), cpu_us("server")(old)) for (new, _), (old, _) in pairs)
        memory = median(new / old for (_, new), (_, old) in pairs)
        slower |= rates < 0.97 or memory > 1.03
        print(f"{load:10} {rates:7.3f} {cpu:7.3f} {memory:7.3f}", flush=True)
    raise SystemExit(1 if slower else 0)


def ratio(new, old):
    return new / old if new and old else None


if __name__ == "__main__":
    main()
