"""Sends every value of `protocol/values/cases.json` from every language by every way, and checks what arrives where.

An *agent* is a process in one language: `crates/tidewire-client/examples/values.rs`, `agents/agent.py`,
`agents/agent.mjs`. It reads orders from its standard input, one JSON object per line with an `id` and what to `do`, and
prints `{"id", "done"}` or `{"id", "refused": code, "words"}` for each. It also prints `{"arrived", "type", "payload"}` for each message that it
received, `{"reported": code}` for an error event and `{"closed": reason}` for a lost connection. This program is the only judge.
"""

import argparse
import asyncio
import json
import pathlib
import sys

import page
import sizes
import ways
from agents_in import Agents

CASES = pathlib.Path(__file__).resolve().parents[2] / "protocol/values/cases.json"


async def main():
    options = arguments()
    table = json.loads(CASES.read_text())
    faults = []
    page.check()
    if options.only is None:
        async with Agents("program", options.clients.split(","), message_bytes_max=sizes.MESSAGE_BYTES_MAX) as agents:
            run = sizes.Sizes(agents)
            await run.everything()
        faults += run.faults
        print(f"sizes: {run.checked} limits searched, {len(run.faults)} faults", flush=True)
    for server in options.servers.split(","):
        async with Agents(server, options.clients.split(",")) as agents:
            run = ways.Run(agents, table, options.only)
            await run.everything()
        faults += run.faults
        print(f"{server}: {run.checked} values checked, {len(run.faults)} faults", flush=True)
    print(f"values: {len(faults)} faults")
    return 1 if faults else 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--servers", default="program,python,node,backend", help="those to check; `backend` is the program with one"
    )
    parser.add_argument("--clients", default="rust,python,typescript", help="those to check")
    parser.add_argument("--only", help="the name of one case")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
