"""The sections of compare.py about the Python package: its server beside other servers of Python, its client beside theirs."""

import contextlib
import json
import subprocess

import saturation
from measure import CLIENT_CORE, bench, bottleneck, cpu, in_rounds, median, rate, rates, ratio, reached, times, verdicts
from reports.sections import of
from servers import ROOT, SECRET, TIDEWIRE, Server, peers, tidewire

FOLDER = ROOT / "bench/peers/python"
PYTHON = FOLDER / ".venv/bin/python"
SATURATED_TARGET = 2.3e6
SATURATION_COLUMNS = ["server", "messages", "server CPU per message"]
RECEIVE_TARGETS = {"length": 2.5e6, "payload": 0.8e6}
WEBSOCKETS, PICOWS = "websockets (Python)", "picows (Python)"
BATCHES, HANDLERS = "tidewire, batches", "tidewire, handlers"


def server(name, mode, profile, *options):
    command = [PYTHON, FOLDER / "server.py", "--mode", mode, "--profile", profile, *options]
    flags = ["--profile", profile]
    if profile == "v1":
        flags += ["--jwt-secret", SECRET]
    started = Server(name, command, flags)
    started.stats_url = started.line("operations on ")
    if profile == "v1":
        started.bench_flags = [*flags, "--stats-url", started.stats_url]
    return started


def websockets_server(mode):
    return Server(WEBSOCKETS, [PYTHON, FOLDER / "websockets_server.py", "--mode", mode], ["--profile", "raw"])


def python_receive(page, rounds, seconds):
    """Into Python: every message is looked at there, and the count is compared with the generator's."""
    flags = ["--test", "throughput", "--connections", 100, "--duration-s", seconds]
    names = {"length": "tidewire, len(message.data)", "payload": "tidewire, message.json()['p']"}
    results = {}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(server(name, mode, "v1")) for mode, name in names.items()}
        servers[WEBSOCKETS] = stack.enter_context(websockets_server("sink"))
        for _ in range(rounds):
            for name, measured in servers.items():
                results.setdefault(name, []).append(bench(measured, *flags))
        for name in names.values():
            check_taken(servers[name], sum(row["messages"]["confirmed"] for row in results[name]))
    page.table("Receive in Python, 175 B JSON, 100 connections", *columns(WEBSOCKETS))
    add_rows(page, results, WEBSOCKETS)
    page.end(
        *(
            target(f"{names[mode]}: at least {wanted / 1e6:.1f} M/s", median(map(rate, results[names[mode]])), wanted)
            for mode, wanted in RECEIVE_TARGETS.items()
        ),
        "Python received every message that the generator counts.",
    )


def python_saturation(page, rounds, seconds):
    """Into Python from a sender that never waits (peers/saturate), which counts what the server has read."""
    flags = ["--payload-bytes", 175, "--connections", 100]
    runs = {"tidewire, len(message.data)": [], WEBSOCKETS: []}
    for _ in range(rounds):
        started = server("length", "length", "open")
        row = saturation.measured(started, "sink", seconds, flags)
        runs["tidewire, len(message.data)"].append(row)
        runs[WEBSOCKETS].append(saturation.measured(websockets_server("sink"), "sink", seconds, flags))
    page.table("Receive in Python from a sender that never waits, 175 B, 100 connections", *SATURATION_COLUMNS)
    for name, rows in runs.items():
        page.row(name, rates(rows), of("ns", [row["server_cpu_ns_per_message"] for row in rows]))
    ours = median(row["rate_per_s"] for row in runs["tidewire, len(message.data)"])
    page.end(target(f"tidewire: at least {SATURATED_TARGET / 1e6:.1f} M/s", ours, SATURATED_TARGET))


def check_taken(measured, confirmed):
    measured.process.terminate()
    took = int(measured.process.stdout.readline().split()[1])
    if took != confirmed:
        raise SystemExit(f"{measured.name}: {confirmed} messages were confirmed, and Python took {took}")


def python_echo(page, rounds, seconds):
    for in_flight in (1, 64):
        flags = ["--test", "echo", "--in-flight", in_flight, "--connections", 100, "--duration-s", seconds]
        with contextlib.ExitStack() as stack:
            servers = [server(BATCHES, "echo", "raw"), server(HANDLERS, "echo-handlers", "raw")]
            servers.append(websockets_server("echo"))
            servers += [
                Server(name, command, ["--profile", "raw"]) for name, command in peers("echo") if name == PICOWS
            ]
            for started in servers:
                stack.enter_context(started)
            results = {started.name: [] for started in servers}
            for _ in range(rounds):
                for started in servers:
                    results[started.name].append(bench(started, *flags))
        page.table(f"Echo from Python, 175 B, 100 connections, {in_flight} in flight", *columns(WEBSOCKETS))
        add_rows(page, results, WEBSOCKETS)
        wanted = 1.2 if in_flight == 1 else 5
        lines = [target(f"handlers: at least 3 times {WEBSOCKETS}", ratio(results, HANDLERS, WEBSOCKETS, rate), 3)]
        if PICOWS in results:
            words = f"batches: at least {wanted} times {PICOWS}"
            lines.append(target(words, ratio(results, BATCHES, PICOWS, rate), wanted))
        page.end(*lines)


def python_asgi(page, rounds, seconds):
    """The cost of an application's own port."""
    by_endpoint, plain = "tidewire.asgi under uvicorn", "a plain application under uvicorn"
    for in_flight in (1, 64):
        flags = ["--test", "echo", "--in-flight", in_flight, "--connections", 100, "--duration-s", seconds]
        with contextlib.ExitStack() as stack:
            servers = [
                server(HANDLERS, "echo-handlers", "raw"),
                asgi_server(by_endpoint, "tidewire"),
                asgi_server(plain, "plain"),
            ]
            results = {stack.enter_context(started).name: [] for started in servers}
            for _ in range(rounds):
                for started in servers:
                    results[started.name].append(bench(started, *flags))
        words = "Echo on the engine's port and on the application's, 175 B, 100 connections"
        page.table(f"{words}, {in_flight} in flight", *columns(plain))
        add_rows(page, results, plain)
        page.end()


def asgi_server(name, app):
    return Server(name, [PYTHON, FOLDER / "asgi_server.py", "--app", app], ["--profile", "raw"])


def python_publish(page, rounds, seconds):
    """To 100 subscribers: by the engine's own clients, and from Python."""
    results = {"the engine's clients": [], "publish_many": [], "publish": []}
    for _ in range(rounds):
        with tidewire("sink", "--topics-open") as measured:
            flags = ["--test", "fan-out", "--connections", 100, "--duration-s", seconds]
            results["the engine's clients"].append(rate(bench(measured, *flags)))
        for name, mode in (("publish_many", "publish-many"), ("publish", "publish")):
            with server(name, mode, "open") as measured:
                results[name].append(subscribers(measured, seconds))
    reference = results["the engine's clients"]
    page.table("Publishing 95 B to 100 subscribers", "by", "deliveries", "ratio to the engine's clients")
    ratios = {}
    for name, found in results.items():
        ratios[name] = in_rounds(found, reference)
        page.row(name, of("per_s", found), of("ratio", ratios[name]))
    page.end(
        target("publish_many: at least 0.9", median(ratios["publish_many"]), 0.9),
        target("one publish per call: at least 0.6", median(ratios["publish"]), 0.6),
    )


def subscribers(measured, seconds):
    command = ["taskset", "-c", CLIENT_CORE, PYTHON, FOLDER / "subscribers.py", measured.url, "--seconds", seconds]
    return run_for(seconds, command)["deliveries_per_s"]


def python_client(page, rounds, seconds):
    """Clients of Python beside each other; what is sent counts when the server has read it."""
    figures = {}
    for _ in range(rounds):
        for mode, start in CLIENT_SERVERS.items():
            with start() as measured:
                for library in LIBRARIES:
                    figures.setdefault((mode, library), []).append(client(measured, library, mode, seconds))
        with server("tidewire", "length", "v1") as ours, websockets_server("sink") as theirs:
            for library, measured in (("tidewire", ours), ("websockets", theirs)):
                figures.setdefault(("connect", library), []).append(client(measured, library, "connect", seconds))
    page.table("Clients in Python, 175 B JSON, one connection", "what", *LIBRARIES, "ratio", "target")
    for mode, key, words, wanted in CLIENT_FIGURES:
        values = {library: [run[key] for run in figures[mode, library]] for library in LIBRARIES}
        ratios = in_rounds(values["tidewire"], values["websockets"])
        is_rate = key == "messages_per_s"
        is_reached = reached(median(ratios) >= wanted if is_rate else median(ratios) <= wanted)
        unit, bound = ("per_s", "at least") if is_rate else ("us", "at most")
        shown = [of(unit, values[library]) for library in LIBRARIES]
        page.row(words, *shown, of("ratio", ratios), f"{bound} {wanted}: {is_reached}")
    page.end(
        "Both libraries create and parse JSON in Python and use Tidewire's server. The connect figures use a Python "
        "server of the same library: Tidewire checks a JWT and sends its greeting; websockets serves plain WebSocket."
    )


def client(measured, library, mode, seconds):
    command = ["taskset", "-c", CLIENT_CORE, PYTHON, FOLDER / "client.py", measured.url]
    command += ["--library", library, "--mode", mode, "--seconds", seconds, "--secret", SECRET]
    return run_for(seconds, command)


def run_for(seconds, command):
    """The output of a program that runs for this long; one that does not end ends the comparison."""
    command = [*map(str, command)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=10 * seconds + 30)
    return json.loads(run.stdout)


def open_tidewire(app):
    flags = ["--listen", "127.0.0.1:0", "--shards", "1", "--no-auth", "--topics-open", "--app", app]
    flags += ["--rate-limit-capacity", "0"]
    return Server("tidewire", [TIDEWIRE, "serve", *flags], [])


def columns(reference):
    return ["server", "confirmed messages", f"ratio to {reference}", "server CPU per message", "bottleneck", "verdict"]


def add_rows(page, results, reference):
    for name, rows in results.items():
        page.row(
            name, rates(rows), times(results, name, reference), cpu("server", rows), bottleneck(rows), verdicts(rows)
        )


def target(words, value, wanted):
    shown = f"{value / 1e6:.2f} M" if wanted > 1e5 else f"{value:.2f}"
    return f"Target: {words}: {shown} ({reached(value >= wanted)})."


def is_installed():
    return PYTHON.exists()


LIBRARIES = ("tidewire", "websockets")
CLIENT_SERVERS = {
    "send": lambda: open_tidewire("sink"),
    "receive": lambda: server("tidewire", "send-trades", "open", "--window", 10_000),
    "ask": lambda: open_tidewire("echo"),
}
CLIENT_FIGURES = (
    ("send", "messages_per_s", "sent", 8),
    ("receive", "messages_per_s", "received", 5),
    ("ask", "p50", "round trip, p50", 1),
    ("ask", "p99", "round trip, p99", 1),
    ("connect", "p50", "connected, p50", 0.5),
)
