"""The sections of compare.py about the npm packages: each runs a program of Node and makes tables of its runs."""

import json
import operator
import os
import subprocess

from measure import median, ratios, reached, times
from reports.sections import of
from servers import ROOT, TIDEWIRE

WS, CLIENT = "ws", "client"
PER_S, CPU_US = map(operator.itemgetter, ("perS", "cpuUs"))


def is_installed():
    return (ROOT / "packages/client/dist/esm/index.js").exists()


def run(*command):
    """What a program prints in its last line, as JSON, or the reason why it failed."""
    environment = {**os.environ, "TIDEWIRE_PROGRAM": str(TIDEWIRE)}
    done = subprocess.run([*map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def typescript_client(page, rounds, seconds):
    """@tidewire/client in Node beside the package ws, interleaved."""
    program = ROOT / "packages/bench/peers/client.js"
    found = run("node", "--expose-gc", program, "--tidewire", TIDEWIRE, "--rounds", rounds, "--seconds", seconds)
    made, prepared = "client, made and stringified", "client, prepared"
    decoded, undecoded = "client, each payload decoded", "client, payloads left undecoded"
    add_rates(page, "Sending 175 B of JSON from Node, 100 connections", found["send"], {made: 2.5, prepared: 12})
    for size in (95, 226):
        title = f"Receiving publications of {size} B in Node"
        add_rates(page, title, found[f"receive-{size}"], {decoded: 1.4, undecoded: 4})
    connect = found["connect"]
    page.table("Connecting from Node with a token", "library", "time", "ratio to ws", "target")
    for name, runs in connect.items():
        time = operator.itemgetter("us")
        target = f"at most 1: {reached(median(ratios(connect, name, WS, time)) <= 1)}" if name == CLIENT else None
        page.row(name, of("us", map(time, runs)), times(connect, name, WS, time), target)
    page.end("The median of 200 connections, one after another, each until the server is ready for it.")
    held, left = (found["subscriptions"][name] for name in ("heldBytes", "leftBytes"))
    page.table("Heap of a subscription in Node", "state", "heap each", "target")
    page.row("of 10,000 topics", of("bytes", [held]), f"1 KB: {reached(held <= 1000)}")
    page.row("left after they have ended", of("bytes", [left]), None)
    page.end()


def add_rates(page, title, found, targets):
    """The first contender is the one to compare with."""
    reference = next(iter(found))
    page.table(title, "program", "messages", "times as fast", "CPU per message", "target")
    for name, runs in found.items():
        wanted = targets.get(name)
        target = wanted and f"at least {wanted}: {reached(median(ratios(found, name, reference, PER_S)) >= wanted)}"
        cells = [of("per_s", map(PER_S, runs)), times(found, name, reference, PER_S), of("us", map(CPU_US, runs))]
        page.row(name, *cells, target)
    page.end()


def typescript_browser(page, rounds, seconds):
    """@tidewire/client in Chromium beside a bare WebSocket, interleaved; and the table of 500 prices."""
    program = ROOT / "packages/bench/peers/browser.js"
    found = run("node", program, "--tidewire", TIDEWIRE, "--rounds", rounds, "--seconds", seconds)
    titles = {
        "burst": "A burst of 20,000 publications in Chromium",
        "steady": "20,000 publications a second in Chromium",
    }
    for kind, title in titles.items():
        runs = found[kind]
        page.table(title, "program", "publications", "times as fast", "main thread, each", "longest task")
        for name in ("bare", CLIENT):
            longest_ms = max(each["longestTaskMs"] for each in runs[name])
            cells = [
                of("per_s", map(PER_S, runs[name])),
                times(runs, name, "bare", PER_S),
                of("us", map(CPU_US, runs[name])),
            ]
            page.row(name, *cells, f"{longest_ms:.0f} ms")
        lines = ["`bare` is a WebSocket and `JSON.parse` of each message. A longest task of 0 means none past 50 ms."]
        if kind == "burst":
            faster = median(ratios(runs, CLIENT, "bare", PER_S))
            lines.append(
                f"Target: at least 1.5 times the rate of a bare WebSocket: {faster:.2f} ({reached(faster >= 1.5)})."
            )
        else:
            lines.append(f"Target: no task of 50 ms ({reached(longest_ms == 0)}).")
        page.end(*lines)
    prices = run("node", ROOT / "examples/browser/run.js", "measure")
    page.table("A table of 500 prices in Chromium", "what", "figure")
    for name, figure in prices.items():
        page.row(name.replace("_", " "), f"{figure:,}")
    page.end("5,000 updates are offered in a second; React shows the latest of each frame.")
