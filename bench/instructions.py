#!/usr/bin/env python3
"""Instructions of a server for each publication with history, without a broker: one program beside another.

    bench/instructions.py PROGRAM [OTHER ...] [--publications N] [--flag FLAG ...]

Each program serves under callgrind and takes N and then 3 N acknowledged publications of 175 bytes on one connection, 16 in
flight. The difference of both counts, for each publication, leaves out the start and the end. Instructions hardly depend on
other work on the machine. Needs Debian's package valgrind. The first program is the base of the ratios.
"""

import argparse
import json
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import time

from scale_out import PAYLOAD, TIDEWIRE, free_port


def count(program, publications, flags):
    """Instructions from start to end of a server that takes so many publications."""
    port, ops = free_port(), free_port()
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "callgrind.out")
        command = [
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, "serve", "--no-auth", "--topics-open",
            "--shards", 1, "--app", "sink", "--rate-limit-capacity", 0, "--history", "h.>=100", "--log-level", "error",
            "--listen", f"127.0.0.1:{port}", "--ops-listen", f"127.0.0.1:{ops}", *flags,
        ]  # fmt: skip
        server = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(port)
            publish(port, publications, folder)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait()
        return int(re.search(r"^(?:summary|totals): (\d+)", out.read_text(), flags=re.MULTILINE)[1])


def wait_for(port):
    """Valgrind starts slowly, and so does a server under it."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"nothing listens on port {port}")


def publish(port, publications, folder):
    payload = {"topic": "h.a", "type": "x", "payload": {"pad": PAYLOAD}}
    message = {"t": "publish_request", "cid": "{{seq}}", "p": payload}
    command = [
        TIDEWIRE, "load", f"ws://127.0.0.1:{port}/ws", "--message", json.dumps(message), "--reply", "field:cid",
        "-c", 1, "-p", 16, "-n", publications, "--threads", 1, "--out", folder, "--quiet",
    ]  # fmt: skip
    subprocess.run([*map(str, command)], capture_output=True, check=False)
    report = json.loads(pathlib.Path(folder, "report.json").read_text())["results"][0]
    if report["verdict"] == "failed":
        raise SystemExit(f"the load failed: {report.get('notes')}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="+", type=pathlib.Path)
    parser.add_argument("--publications", type=int, default=2_000)
    parser.add_argument("--flag", action="append", default=[], help="another option of the servers")
    options = parser.parse_args()
    base = None
    for program in options.program:
        few, many = (count(program, n, options.flag) for n in (options.publications, 3 * options.publications))
        each = (many - few) / (2 * options.publications)
        base = base or each
        print(f"{program}: {each:,.0f} instructions for a publication, {each / base:.3f} of the first", flush=True)


if __name__ == "__main__":
    main()
