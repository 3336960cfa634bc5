"""The sections of compare.py about compression, encryption and the wire crate alone."""

import contextlib
import json
import subprocess
import time

import idle
from measure import bench, bottleneck, cpu, median, rate, rates, ratio, reached, times, verdicts
from reports.sections import of
from servers import PEERS, SERVER_CORE, TARGET, Server, compressing_peers, tidewire

EXAMPLES = TARGET / "release/examples"


def deflate(page, rounds, seconds):
    """Echo of 1 KB of JSON, which all servers inflate and compress again at the same level."""
    for level in (6, 1):
        compress = ["--deflate", "shared", "--compression-level", level, "--compression-threshold-bytes", 1]
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(tidewire("echo", *map(str, compress)))]
            for name, command in compressing_peers(level):
                servers.append(stack.enter_context(Server(name, command, ["--profile", "raw"])))
            for in_flight in (64, 1):
                flags = ["--test", "echo", "--deflate", "--payload-bytes", 1024]
                flags += ["--in-flight", in_flight, "--connections", 100, "--duration-s", seconds]
                results = {server.name: [] for server in servers}
                for _ in range(rounds):
                    for server in servers:
                        results[server.name].append(bench(server, *flags))
                add_compressed(page, f"level {level}, {in_flight} in flight", results)


def add_compressed(page, title, results):
    columns = ["server", "confirmed messages", "tidewire, times as fast", "server CPU per message"]
    page.table(f"Compressed echo, 1 KB of JSON, {title}", *columns, "bottleneck", "verdict")
    for name, rows in results.items():
        ratio_to_it = times(results, "tidewire", name)
        page.row(name, rates(rows), ratio_to_it, cpu("server", rows), bottleneck(rows), verdicts(rows))
    wire = median(row["wire_bytes"] for row in results["tidewire"])
    others = [name for name in results if name != "tidewire"]
    is_reached = reached(*(ratio(results, "tidewire", name, rate) >= 1.2 for name in others))
    page.end(
        f"A message of 1,024 bytes is compressed to {wire:.0f} bytes; no message refers to an earlier one.",
        f"Target: at least 1.2 times each of the others ({is_reached}).",
    )


def deflate_memory(page, _rounds, _seconds):
    """Resident memory per connection that has exchanged one compressed message and is idle."""
    count = 1_000
    columns = ["server", "offered without memory between messages", "offered as browsers do"]
    page.table(f"Memory of compressing connections, {count:,} idle", *columns)
    raw = ["--protocol", "raw", "--no-auth", "--path", "any", "--compression-threshold-bytes", "1", "--deflate"]
    servers = [(f"tidewire, {mode}", lambda mode=mode: tidewire("echo", *raw, mode)) for mode in MODES]
    for name, command in compressing_peers(6):
        servers.append((name, lambda name=name, command=command: Server(name, command, [])))
    kilobytes = {}
    for name, start in servers:
        kilobytes[name] = [idle_kilobytes(start, count, offer) for offer in (OFFER_WITHOUT_MEMORY, OFFER)]
        page.row(name, *(of("bytes", [each * 1000]) for each in kilobytes[name]))
    ours, *others = (kilobytes[name] for name in kilobytes if name != "tidewire, per-connection")
    is_less = reached(*(mine < theirs for other in others for mine, theirs in zip(ours, other, strict=True)))
    page.end(
        "Each connection has exchanged one message of about 1 KB before.", f"Target: less than the others ({is_less})."
    )


def idle_kilobytes(start, count, offer):
    with start() as server:
        # What the first message makes a server set up once is not the connections'.
        with idle.connections(server.url, 1, offer):
            time.sleep(0.5)
            before = server.resident_bytes()
            with idle.connections(server.url, count, offer):
                time.sleep(1.5)
                return (server.resident_bytes() - before) / count / 1e3


def encrypted(page, rounds, seconds):
    columns = ["confirmed messages", "server CPU per message", "client CPU per message"]
    page.table("Encrypted echo, 175 B, 100 connections", "in flight", *columns, "bottleneck", "verdict")
    best = 0
    with tidewire("echo", "--encryption", "required") as server:
        for in_flight in (64, 1):
            flags = ["--test", "echo", "--encrypt", "--in-flight", in_flight]
            flags += ["--connections", 100, "--duration-s", seconds]
            rows = [bench(server, *flags) for _ in range(rounds)]
            best = max(best, median(map(rate, rows)))
            sides = [cpu("server", rows), cpu("client", rows)]
            page.row(str(in_flight), rates(rows), *sides, bottleneck(rows), verdicts(rows))
    page.end(
        "AES-256-GCM as in protocol version 1: every message is decrypted and encrypted again.",
        f"Target: at least 1,000,000 per second on one core ({reached(best >= 1_000_000)}).",
    )


def wire(page, rounds, _seconds):
    """The wire crate and other libraries' readers, from memory, in turns."""
    lines = [line for _ in range(rounds) for program in PROGRAMS for line in run(program)]
    sizes = sorted({line["payload_bytes"] for line in lines if line["measure"] == "frames"})
    page.table("Reading frames from memory, one core", "reader", *(f"{size:,} B" for size in sizes))
    for reader in ("tidewire", "tungstenite", "fastwebsockets"):
        of_sizes = (figures(lines, "frames_per_s", reader=reader, payload_bytes=size) for size in sizes)
        page.row(reader, *(of("per_s", frames) for frames in of_sizes))
    page.end(
        "Frames a second: masked, of ASCII text, in 512 KiB, with UTF-8 checks. Tidewire reads the "
        "frames in place, as its event loop does. The others' interfaces read from a stream, which needs a copy.",
        *wire_targets(lines),
    )


def wire_targets(lines):
    small = median(figures(lines, "frames_per_s", reader="tidewire", payload_bytes=175)) / 1e6
    large = median(figures(lines, "bytes_per_s", reader="tidewire", payload_bytes=16_384)) / 1e9
    unmask = median(figures(lines, "unmask_bytes_per_s")) / 1e9
    copy = median(figures(lines, "copy_bytes_per_s")) / 1e9
    classify = [line for line in lines if line["measure"] == "classify" and line["message"] == "c, t, p"]
    classify_bytes, classify_ns = classify[0]["payload_bytes"], median(line["json_ns"] for line in classify)
    return (
        f"Target: at least 25 M frames/s of 175 B: {small:.1f} M ({reached(small >= 25)}).",
        f"Target: at least 8 GB/s at 16 KB: {large:.1f} ({reached(large >= 8)}).",
        f"Unmasking runs at {unmask:.1f} GB/s, copying the same bytes at {copy:.1f} GB/s.",
        f"Target: distinguishing a system message from an application message takes less than 30 ns at 175 B: "
        f"{classify_ns:.1f} ns for {classify_bytes} B ({reached(classify_ns < 30)}).",
    )


def run(program):
    """The JSON lines of a program on the server's core."""
    command = ["taskset", "-c", SERVER_CORE, *map(str, program)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [{"reader": "tidewire", **json.loads(line)} for line in output.splitlines()]


def figures(lines, name, **wanted):
    return [line[name] for line in lines if name in line and wanted.items() <= line.items()]


MODES = ("shared", "per-connection")
OFFER = "permessage-deflate; client_max_window_bits"
OFFER_WITHOUT_MEMORY = "permessage-deflate; server_no_context_takeover; client_no_context_takeover"
PROGRAMS = ([EXAMPLES / "read_frames", "--json"], [PEERS / "peer-parse"], [EXAMPLES / "classify", "--json"])
