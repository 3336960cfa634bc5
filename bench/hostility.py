"""Attacks a server as a hostile client does, with default limits, and measures how long other clients wait.

    make hostility                         every attack, five runs, writes bench/HOSTILITY.md
    bench/hostility.py --only filters --runs 1
    bench/hostility.py --tls --runs 3          all connections over TLS
    bench/hostility.py --before OLD/tidewire   another program beside ours, each run in turn

Six well-behaved connections, three on each shard or so, send a ping every 5 ms and wait for the answer. One run is a
server of its own: two seconds undisturbed, then the attack, which ends by itself after some seconds. The figure is the
longest wait of one of the six for an answer. The page also shows the same figure without an attack, the longest wait at an
idle server at the same moment (the control), which is what the machine itself causes, how long a new client waits for the
answer to its opening handshake (one comes every 100 ms), and the largest memory of the server.
"""

import argparse
import contextlib
import multiprocessing
import os
import pathlib
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from attacks import ATTACKS, Address, WebSocket, frame, on_shard
from attacks_around import AROUND
from servers import certificate_flags

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
WITNESSES = 6
QUIET_S = 2.0
# After an attack the witnesses go on for so long at most until one answer comes.
ANSWER_S_MAX = 60.0
DELAY_MS_MAX = 50.0
OPENING_MS_MAX = 100.0


class Server:
    """A server with default limits, two shards, and rights of an ordinary user."""

    def __init__(self, program, attack, tls, around):
        command = example(attack) or self.options(program, tls)
        without = around.get("without", [])
        command = [word for word in command if word not in without]
        command += [*getattr(attack, "options", []), *around.get("options", [])]
        self.process = subprocess.Popen(
            [*map(str, command)],
            stdout=subprocess.PIPE,
            stderr=around.get("stderr", subprocess.DEVNULL),
            text=True,
        )
        for line in self.process.stdout:
            found = re.search(r"127\.0\.0\.1:(\d+)", line)
            if found:
                make_token = getattr(attack, "token", None)
                shown = make_token and make_token("honest")
                around.get("started", lambda: None)()
                self.address = Address("127.0.0.1", int(found[1]), bool(tls), shown)
                return
        raise SystemExit(f"{command[0]} does not start")

    @staticmethod
    def options(program, tls):
        groups = ["--client-queue-group-allow", "jobs.>"]
        flags = ["--no-auth", "--app", "sink", "--listen", "127.0.0.1:0", "--shards", "2"]
        topics = "public,public.>,kept.>,present.>,jobs.>,lossy.>,slow.>,s.>,*.>,t.>"
        flags += ["--client-subscribe-allow", topics, "--client-subscribe-deny", "forbidden.>"]
        flags += ["--client-publish-allow", ">", "--client-presence-allow", "present.>"]
        flags += ["--history", "kept.>=1000", "--presence", "present.>"]
        has_groups = "--client-queue-group-allow" in help_of(program)
        return [program, "serve", *flags, *(groups if has_groups else []), *tls]

    def memory_mb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def example(attack):
    """The server of an attack that needs an application of its own."""
    name = getattr(attack, "example", None)
    return name and [TARGET / "release" / "examples" / name]


def help_of(program):
    return subprocess.run([program, "serve", "--help"], capture_output=True, text=True, check=False).stdout


def witness(address, results, stop, attack):
    """Sends a ping every 5 ms from each of six connections and notes the longest wait since it was asked last."""
    # Whoever is on a held shard waits.
    client = (lambda: on_shard(address, 0)) if example(attack) else (lambda: WebSocket(address))
    clients = [client() for _ in range(WITNESSES)]
    for client in clients:
        client.take()
    asked = dict.fromkeys(clients)
    longest = 0.0
    while True:
        now = time.monotonic()
        for client in clients:
            if asked[client] is None and not stop.is_set():
                client.socket.send(frame(b"w", opcode=9))
                asked[client] = now
        ready, _, _ = select.select([client.socket for client in clients], [], [], 0.005)
        now = time.monotonic()
        for client in clients:
            if client.socket in ready:
                data = client.received()
                if data is None:
                    continue
                if not data:
                    results.put(("gone", 0.0))
                    return
                # A pong with one byte, among whatever else is said.
                if b"\x8a\x01w" in data and asked[client] is not None:
                    longest = max(longest, now - asked[client])
                    asked[client] = None
        waits = [now - since for since in asked.values() if since is not None]
        if results.empty():
            results.put(("longest", max([longest, *waits])))
            longest = 0.0
        if stop.is_set() and not waits:
            return


def new_client(address, longest):
    """Opens a session every 100 ms and notes the longest time until its handshake is answered."""
    while True:
        began = time.monotonic()
        try:
            WebSocket(address).socket.close()
            took = time.monotonic() - began
        except OSError:
            took = float("inf")
        longest.value = max(longest.value, took * 1000)
        time.sleep(0.1)


def idle_control():
    """No attack: the server beside the attacked one."""


def newest(results):
    """The longest wait since it was asked last, in milliseconds."""
    return results.get(timeout=ANSWER_S_MAX)[1] * 1000


def longest_wait(results, seconds):
    """The longest wait in the next so many seconds, in milliseconds."""
    worst, ends_at = 0.0, time.monotonic() + seconds
    while time.monotonic() < ends_at:
        kind, wait = results.get(timeout=ANSWER_S_MAX)
        if kind == "gone":
            return float("inf")
        worst = max(worst, wait * 1000)
        time.sleep(0.02)
    return worst


def run(program, attack, tls):
    """One run, with what the attack needs around the server."""
    with getattr(attack, "around", contextlib.nullcontext)() as around:
        return run_with(program, attack, tls, around or {})


def run_with(program, attack, tls, around):
    """The longest wait without and with the attack, that at an idle server and that of new clients during it, and the
    memory."""
    server = Server(program, attack, tls, around)
    idle = Server(program, idle_control, tls, {})
    results, stop = multiprocessing.Queue(), multiprocessing.Event()
    watcher = multiprocessing.Process(target=witness, args=(server.address, results, stop, attack), daemon=True)
    beside = multiprocessing.Queue()
    control = multiprocessing.Process(target=witness, args=(idle.address, beside, stop, idle_control), daemon=True)
    watcher.start()
    control.start()
    attacker, new_clients, opening = None, None, multiprocessing.Value("d", 0.0)
    try:
        longest_wait(results, 0.5)
        quiet = longest_wait(results, QUIET_S)
        newest(beside)
        # Whoever comes to a held shard waits for it.
        if not example(attack):
            new_clients = multiprocessing.Process(target=new_client, args=(server.address, opening), daemon=True)
            new_clients.start()
        attacker = multiprocessing.Process(target=attack, args=(server.address,), daemon=True)
        attacker.start()
        worst, controlled = 0.0, 0.0
        while attacker.is_alive():
            worst = max(worst, longest_wait(results, 0.5))
            controlled = max(controlled, newest(beside))
        # What the attack has left behind counts as well.
        worst = max(worst, longest_wait(results, 1.0))
        controlled = max(controlled, newest(beside))
        if attacker.exitcode != 0:
            # Its own honest clients were cut off, or it could not attack.
            worst = float("inf")
        return quiet, worst, controlled, opening.value, server.memory_mb()
    finally:
        for process in (attacker, new_clients, watcher, control):
            if process is not None:
                process.kill()
                process.join()
        server.stop()
        idle.stop()


def shown(values):
    return f"{statistics.median(values):.0f}" if values else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="*", metavar="ATTACK")
    parser.add_argument("--before", metavar="PROGRAM", help="another version, measured in turns with ours")
    parser.add_argument("--tls", action="store_true", help="every connection over TLS")
    parser.add_argument("--write", metavar="FILE", help="where the page goes")
    arguments = parser.parse_args()
    programs = [("ours", TARGET / "release" / "tidewire")]
    if arguments.before:
        programs.insert(0, ("before", arguments.before))
    attacks = [a for a in [*ATTACKS, *AROUND] if not arguments.only or a.__name__ in arguments.only]
    if arguments.tls:
        # The server of an example has no TLS.
        attacks = [a for a in attacks if not example(a)]
    with tempfile.TemporaryDirectory() as folder:
        lines, failed = measured(attacks, programs, arguments.runs, certificate_flags(folder) if arguments.tls else [])
    if arguments.write:
        write_section(pathlib.Path(arguments.write), TITLES[arguments.tls], lines)
    if failed:
        print(f"above the limit: {', '.join(failed)}", file=sys.stderr)
        sys.exit(1)


def measured(attacks, programs, runs, tls):
    """The lines of the table, and the attacks that delay others for too long."""
    lines = [
        f"Medians of {runs} runs.",
        "",
        " | ".join(["| attack", *(f"{n}: {FIGURES}" for n, _ in programs)]) + " |",
        "|---|" + "---|" * 5 * len(programs),
    ]
    print(*lines, sep="\n", flush=True)
    failed = []
    for attack in attacks:
        rows = {name: [] for name, _ in programs}
        for _ in range(runs):
            for name, program in programs:
                rows[name].append(run(program, attack, tls))
        cells = []
        for name, _ in programs:
            quiet, worst, control, opening, memory = ([row[i] for row in rows[name]] for i in range(5))
            cells += [f"{shown(values)} ms" for values in (quiet, worst, control, opening)]
            cells.append(f"{shown(memory)} MB")
            is_slow = statistics.median(worst) > DELAY_MS_MAX or statistics.median(opening) > OPENING_MS_MAX
            if name == "ours" and is_slow:
                failed.append(attack.__name__)
        does = " ".join(attack.__doc__.split())
        lines.append(f"| {does} (`{attack.__name__}`) | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    return lines, failed


FIGURES = "undisturbed | attacked | control | new client | memory"
TITLES = {False: "## Without TLS", True: "## Over TLS"}
HEAD = f"""# Hostile clients

The longest wait of six well-behaved connections during an attack, in milliseconds, and the largest resident
memory of the server; by `make hostility`. The limit is {DELAY_MS_MAX:.0f} ms, and for the opening handshake of a new client, one
every 100 ms, {OPENING_MS_MAX:.0f} ms; *inf* is a client that was refused or cut off. The control is the same wait at an idle
server beside the attacked one. Attacker, observers and server share two cores: the operating system causes part of each wait.
"""
FOOT = """## Before the limits

The first measurement of these attacks, before the engine metered work and charged memory: the longest wait of
well-behaved connections, whose undisturbed maximum was 11 ms, and the memory.

| attack | wait | memory |
|---|---|---|
| `filters` | 19 s | 1.7 GB |
| `filtered_recovery` | 5.1 s | |
| `compile_filters` | 2.8 s | |
| `deep_patterns` | 30 s | 255 MB |
| `presence_requests` | 0.9 s | 1.1 GB |
| `queue_groups` | 60 s (the backend's publications) | 966 MB |
| `presence_updates` | half of the subscribers cut off | 4.9 GB sent |
| `conflating`, `resumed_conflating`, `nested_messages`, `long_recoveries` | 0.1 to 1.1 s | |
| `slow_pattern_readers` | | 1.7 GB |
| `stuck_shard` | publishing never answered | |
| `silent_handshakes` | 1.9 s for new clients, with TLS 3.7 s | |

A second round of attacks, one run in turns with the version before its limits: the longest wait, that of a new client, and the
memory, of that version and of the one with the limits.

| attack | before | after |
|---|---|---|
| `trees` | 5042 ms, 13 ms, 641 MB | 90 ms, 45 ms, 15 MB |
| `tree_flood` | 602 ms, 471 ms, 308 MB | 41 ms, 32 ms, 20 MB |
| `text_trees` | 494 ms, 362 ms, 258 MB | 18 ms, 16 ms, 19 MB |
| `nested_flood` | 24 ms, 23 ms, 22 MB | 19 ms, 29 ms, 19 MB |
| `recovery_objects` | 263 ms, 245 ms, 61 MB | 55 ms, 52 ms, 18 MB |
| `inflation_bombs` | 89 ms, 90 ms, 14 MB | 38 ms, 42 ms, 16 MB |
| `metrics_batches` | 107 ms, 122 ms, 13 MB | 28 ms, 44 ms, 16 MB |
| `lagging_conflators` | 151 ms, 131 ms, 102 MB | 65 ms, 94 ms, 108 MB |
| `presence_floods` | *inf*, 20 ms, 54 MB | 26 ms, 22 ms, 21 MB |
| `unfinished_messages` | 78 ms, 101 ms, 969 MB | 11 ms, 8 ms, 96 MB |
| `nonces` | 93 ms, 92 ms, 37 MB | 74 ms, 85 ms, 26 MB |
| `backend_errors` | 9 ms, *inf*, 12 MB | 9 ms, 6 ms, 13 MB |
| `backend_slow` | 19 ms, *inf*, 12 MB | 12 ms, 7 ms, 13 MB |
| `refused_handshakes` | 31323 ms, *inf*, 12 MB | 8 ms, 4 ms, 14 MB |
"""


def write_section(page, title, lines):
    """Writes one section of the page and leaves the other one as it is."""
    old = page.read_text() if page.exists() else ""
    sections = {part.split("\n", 1)[0]: part.strip() for part in ("\n" + old).split("\n## ")[1:]}
    sections = {f"## {name}": f"## {part}" for name, part in sections.items()}
    sections[title] = "\n".join([title, "", *lines])
    kept = [sections[title] for title in TITLES.values() if title in sections]
    page.write_text("\n\n".join([HEAD.strip(), *kept, FOOT.strip()]) + "\n")


if __name__ == "__main__":
    main()
