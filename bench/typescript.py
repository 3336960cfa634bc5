"""The sections of compare.py about the npm packages: each runs a program of packages/ and takes over what it prints."""

import json
import os
import subprocess

from servers import ROOT, TIDEWIRE


def is_installed():
    return (ROOT / "packages/client/dist/esm/index.js").exists()


def run(*command):
    """The output of a program, or the reason why it failed."""
    environment = {**os.environ, "TIDEWIRE_PROGRAM": str(TIDEWIRE)}
    done = subprocess.run(
        ["node", *map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    return done.stdout.strip()


def typescript_client(page, rounds, seconds):
    """@tidewire/client in Node beside the package ws, interleaved."""
    program = ROOT / "packages/bench/peers/client.js"
    printed = run("--expose-gc", program, "--tidewire", TIDEWIRE, "--rounds", rounds, "--seconds", seconds)
    page.add("## TypeScript client in Node", "", "```text", *printed.splitlines(), "```", "")
    page.add(
        "Targets: send 2.5 x made and 12 x prepared; receive 1.4 x decoded and 4 x undecoded; connect at most 1 x; at most "
        "1 KB for a subscription.",
        "",
    )


def typescript_browser(page, rounds, seconds):
    """@tidewire/client in Chromium beside a bare WebSocket, interleaved; and the table of 500 prices."""
    program = ROOT / "packages/bench/peers/browser.js"
    printed = run(program, "--tidewire", TIDEWIRE, "--rounds", rounds, "--seconds", seconds)
    page.add("## TypeScript client in Chromium", "", "```text", *printed.splitlines(), "```", "")
    page.add("Targets: a burst received at 1.5 x the rate of a bare WebSocket; no task of 50 ms at 20,000/s.", "")
    printed = run(ROOT / "examples/browser/run.js", "measure")
    page.add("## A table of 500 prices in Chromium", "", "```json")
    page.add(*json.dumps(json.loads(printed.splitlines()[-1]), indent=2).splitlines(), "```", "")
