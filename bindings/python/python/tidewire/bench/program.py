"""The command line."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, NoReturn
from urllib.parse import urlsplit

import tidewire
from tidewire import _lab

from . import plan, serving
from .cases import run_test
from .fleet import Fleet, WorkerFailed
from .measure import Bench, Server
from .payload import PAYLOAD_BYTES_MIN
from .plan import Plan, Target

EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130
QUICK = {
    "duration_s": 0.3,
    "sustained_s": 2.0,
    "hold_s": 1.0,
    "pings": 20,
    "rounds": 20,
    "connections_max": 100,
}
SECRETS = ("--token", "--jwt-secret")
PAYLOAD_BYTES_MAX = 15 * 1024 * 1024


class UsageError(Exception):
    """A mistake in the command line; nothing was done."""


class Parser(argparse.ArgumentParser):
    """Tells a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"tidewire.bench: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Runs the tests; the exit code is that of the report."""
    words = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(words)
    try:
        # Before the run and not after it, so that no figure is lost for a mistyped directory or a full disk.
        _lab.lab_try_out(options.out)
        with reserved(options.out):
            return run(options, command_line(words))
    except (UsageError, OSError, tidewire.ConfigurationError, tidewire.InvalidArgumentError) as error:
        print(f"tidewire.bench: {error}", file=sys.stderr)
        return EXIT_USAGE
    except (WorkerFailed, tidewire.TidewireError) as error:
        print(f"tidewire.bench: {error}", file=sys.stderr)
        return EXIT_FAILED


def parser() -> Parser:
    """The options, as those of `tidewire bench`."""
    made = Parser(prog="python -m tidewire.bench", description="Loads a Tidewire server from Python.")
    made.add_argument("url", nargs="?", help="the server to load, ws:// or wss://; default one of its own")
    group = made.add_argument_group("plan")
    add = group.add_argument
    add("--test", type=tests, default=(), metavar="TEST,…", help=", ".join(plan.TESTS))
    add(
        "--connections",
        type=numbers,
        default=(),
        metavar="N,…",
        help="default 100,1000,10000, as open files allow",
    )
    add("--processes", type=number, default=1, metavar="N", help="processes of the generator (default 1)")
    add("--duration-s", type=seconds, metavar="S", help="one measurement (default 2)")
    add("--sustained-s", type=seconds, metavar="S", help="sustained-throughput (default 10)")
    add("--hold-s", type=seconds, metavar="S", help="a sustained hold (default 30)")
    add(
        "--payload-bytes",
        type=sizes,
        default=(),
        metavar="BYTES,…",
        help="sizes of size-matrix, fan-out and echo",
    )
    add(
        "--payload",
        choices=("trade", "trades"),
        help="one trade, or several, which compress as real messages do",
    )
    add("--in-flight", type=number, metavar="N", help="echo: 64; fan-out: as many as 64 KiB hold")
    add(
        "--rate-per-s",
        type=rate,
        metavar="N",
        help="messages a second over all connections, when their time has come",
    )
    add("--poisson", action="store_true", help="with --rate-per-s: at random times")
    add("--pings-per-connection", type=number, metavar="N", help="ping-latency (default 50)")
    add("--rounds", type=number, metavar="N", help="connect-latency (default 200)")
    add("--connections-max", type=number, metavar="N", help="where connection-limit ends (default 1000000)")
    add("--seed", type=int, default=1, metavar="N", help="what messages are drawn from (default 1)")
    add("--quick", action="store_true", help="a run of some seconds that shows that everything works")
    group = made.add_argument_group("server")
    add = group.add_argument
    add(
        "--profile",
        choices=("v1",),
        default="v1",
        help="what a session says; the client speaks version 1 alone",
    )
    add("--deflate", action="store_true", help="compress every message by permessage-deflate")
    add("--encrypt", action="store_true", help="encrypt every message")
    add("--token", metavar="JWT", help="the token that every connection sends (TIDEWIRE_TOKEN)")
    add("--jwt-secret", metavar="SECRET", help="the server's HS256 secret (TIDEWIRE_JWT_SECRET)")
    add("--cookie-name", metavar="NAME", help="send the token as this cookie")
    add("--server-pid", type=number, metavar="PID", help="default the process that listens on the URL's port")
    add("--stats-url", metavar="URL", help="the operations listener, for the server's own counters")
    add("--ca", metavar="FILE", help="for wss: the certificate authorities to trust, PEM")
    add("--server-shards", type=number, metavar="N", help="without a URL: event loops of the server")
    add(
        "--server-reads",
        choices=("length", "json"),
        default="length",
        help="without a URL: what the server's Python does with each message (default length)",
    )
    group = made.add_argument_group("report")
    add = group.add_argument
    add("--out", default="tidewire-report", metavar="DIR", help="for report.json, .md and .html")
    add("--json", action="store_true", help="print the report as JSON on standard output")
    return made


def run(options: argparse.Namespace, command: str) -> int:
    """Prepares the server and the processes, runs the tests and writes the report."""
    embedded = options.url is None
    made = plan_of(options, embedded=embedded)
    child = start_server(options, made) if embedded else None
    fleet = None
    started = datetime.now(timezone.utc)
    try:
        target, server = target_of(options, child)
        address = resolved(target.url)
        preflight = json.loads(_lab.lab_preflight(max(made.tiers), address))
        for finding in preflight:
            if not finding["ok"]:
                say(
                    f"{finding['name']}: {finding['value']}, wanted {finding['wanted']}. {finding.get('hint', '')}"
                )
        sample = server.sample()
        server.rss_bytes_empty = sample.rss_bytes if sample else None
        fleet = Fleet(target, made.processes)
        bench = Bench(made, target, fleet, server, say)
        reason = run_all(bench, child)
    finally:
        if fleet is not None:
            fleet.stop()
        if child is not None:
            child.stop()
    report: dict[str, Any] = {
        "schema": "tidewire-report/1",
        "tool": {"name": "tidewire", "version": tidewire.__version__, "language": "python"},
        "started_at": started.isoformat(timespec="seconds").replace("+00:00", "Z"),
        "partial": reason is not None,
        "machine": json.loads(_lab.lab_machine()),
        "target": {"url": _lab.lab_redacted(target.url), "embedded": embedded},
        "plan": written_plan(made, command),
        "preflight": preflight,
        "results": bench.results,
    }
    if bench.server_name:
        report["target"]["server"] = bench.server_name
    if reason is not None:
        report["partial_reason"] = reason
    return publish(report, options, failed=child is not None and child.failure is not None)


def run_all(bench: Bench, child: serving.Child | None) -> str | None:
    """Runs test after test; why it ended early, if it did."""
    test = ""
    once = (plan.CONNECTION_LIMIT, plan.CONNECT_LATENCY)
    try:
        for test in bench.plan.tests:
            for connections in bench.plan.tiers[:1] if test in once else bench.plan.tiers:
                try:
                    run_test(bench, test, connections)
                except (WorkerFailed, tidewire.TidewireError):
                    if child is None or child.end() is None:
                        raise
                if child is not None and (end := child.end()):
                    child.failure = end
                    return f"{end} in {test}"
    except KeyboardInterrupt:
        # A second one ends the program at once.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        return f"the run was interrupted in {test}"
    return None


def publish(report: dict[str, Any], options: argparse.Namespace, *, failed: bool) -> int:
    """Writes the files and prints the tables, or the report itself."""
    written = json.dumps(report, indent=2)
    tables, code = _lab.lab_tables(written)
    # The measurements are printed first: they must not be lost because a disk is full.
    shown = sys.stderr if options.json else sys.stdout
    shown.write(f"\n{tables}")
    if options.json:
        print(written, flush=True)
    try:
        page = _lab.lab_save(written, options.out)
    except tidewire.InvalidArgumentError as error:
        if not options.json:
            print(written, flush=True)
        print(f"tidewire.bench: cannot save the report, which is printed above: {error}", file=sys.stderr)
        return EXIT_FAILED
    shown.write(f"report: {page} (also .json and .md)\n")
    return EXIT_FAILED if failed else int(code)


def plan_of(options: argparse.Namespace, *, embedded: bool) -> Plan:
    """The plan that the options ask for."""
    asked = plan.tests_of(options.test, embedded=embedded)
    if plan.ECHO in asked and len(asked) > 1 and embedded:
        raise UsageError(
            "the echo test needs a server that sends messages back, the other tests one that does not: "
            "run --test echo by itself"
        )
    if options.poisson and options.rate_per_s is None:
        raise UsageError("--poisson needs --rate-per-s")
    if options.deflate and options.encrypt:
        raise UsageError("--deflate and --encrypt exclude each other")
    given = {
        "duration_s": options.duration_s,
        "sustained_s": options.sustained_s,
        "hold_s": options.hold_s,
        "pings": options.pings_per_connection,
        "rounds": options.rounds,
        "connections_max": options.connections_max,
    }
    chosen: dict[str, Any] = dict(QUICK) if options.quick else {}
    chosen.update({name: value for name, value in given.items() if value is not None})
    room = _lab.lab_connections_room()
    return Plan(
        tests=asked,
        tiers=plan.tiers_of(options.connections, quick=options.quick, room=room),
        hold_ping_every_s=0.2 if options.quick else 5.0,
        payload_bytes=options.payload_bytes,
        several_trades=options.payload == "trades" or (options.payload is None and options.deflate),
        in_flight=options.in_flight,
        rate_per_s=options.rate_per_s,
        poisson=options.poisson,
        seed=options.seed,
        processes=options.processes,
        **chosen,
    )


def start_server(options: argparse.Namespace, made: Plan) -> serving.Child:
    """The server of a run without a URL."""
    for name in ("ca", "server_pid", "stats_url", "token"):
        if getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')} needs a URL")
    server: dict[str, Any] = {}
    if options.server_shards:
        server["shards"] = options.server_shards
    if options.deflate:
        server["deflate"] = "shared"
    if options.encrypt:
        server["encryption"] = "required"
    return serving.start(echoes=plan.ECHO in made.tests, reads=options.server_reads, options=server)


def target_of(options: argparse.Namespace, child: serving.Child | None) -> tuple[Target, Server]:
    """Where connections go, and what can be seen of the server."""
    common = {"cookie_name": options.cookie_name, "deflate": options.deflate, "encrypt": options.encrypt}
    if child is not None:
        target = Target(child.url, jwt_secret=child.secret, **common)
        return target, Server([child.process.pid], child.ops)
    parts = urlsplit(options.url)
    if parts.scheme not in ("ws", "wss") or not parts.hostname:
        shown = _lab.lab_redacted(options.url)
        raise UsageError(f"{shown} is no URL that begins with ws:// or wss://")
    token = options.token or (None if options.jwt_secret else os.environ.get("TIDEWIRE_TOKEN"))
    secret = options.jwt_secret or (None if token else os.environ.get("TIDEWIRE_JWT_SECRET"))
    target = Target(options.url, token=token, jwt_secret=secret, ca=options.ca, **common)
    address, port = resolved(options.url), parts.port or (443 if parts.scheme == "wss" else 80)
    if options.server_pid:
        _lab.lab_check_pid(options.server_pid, address, port)
    listeners = _lab.lab_listener_pids(address, port)
    pids = sorted({*listeners, *([options.server_pid] if options.server_pid else [])} - {os.getpid()})
    counters = None
    if options.stats_url:
        stats = urlsplit(options.stats_url)
        counters = resolved(options.stats_url), stats.port or 80
    return target, Server(pids, counters)


def resolved(url: str) -> str:
    """The address of a URL's host."""
    host = urlsplit(url).hostname or ""
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise UsageError(f"{host} has no address: {error}") from None


def written_plan(made: Plan, command: str) -> dict[str, Any]:
    """The plan as a report has it."""
    pace = "as fast as the server takes it"
    if made.rate_per_s is not None:
        pace = f"{made.rate_per_s:g} messages a second, {'at random times' if made.poisson else 'evenly'}"
    return {
        "profile": "v1",
        "tests": list(made.tests),
        "connection_tiers": list(made.tiers),
        "pace": pace,
        "duration_s": made.duration_s,
        "hold_s": made.hold_s,
        "pings_per_connection": made.pings,
        "threads": made.processes,
        "command": command,
    }


def command_line(words: list[str]) -> str:
    """The command line, without secrets."""
    shown, hide = ["python -m tidewire.bench"], False
    for word in words:
        name, sign, value = word.partition("=")
        if hide:
            shown.append("…")
        elif name in SECRETS and sign:
            shown.append(f"{name}=…")
        elif name.startswith("--") and "://" in value:
            shown.append(f"{name}={_lab.lab_redacted(value)}")
        else:
            shown.append(_lab.lab_redacted(word) if "://" in word else word)
        hide = name in SECRETS and not sign
    # A word that is not UTF-8 has a form that no file takes.
    return " ".join(shown).encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@contextlib.contextmanager
def reserved(out: str) -> Iterator[None]:
    """A directory that no other run writes its report to."""
    directory = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another run writes its report to {out}: wait for its end, or name another directory"
            raise UsageError(message) from None
        yield
    finally:
        os.close(directory)


def say(text: str) -> None:
    """Tells how far the run is."""
    print(text, file=sys.stderr, flush=True)


def tests(text: str) -> tuple[str, ...]:
    """Names of tests."""
    names = tuple(text.split(","))
    for name in names:
        if name not in plan.TESTS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(plan.TESTS)}")
    return names


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers from 1."""
    return tuple(number(part) for part in text.split(","))


def number(text: str) -> int:
    """A whole number from 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, not {text!r}")
    return value


def sizes(text: str) -> tuple[int, ...]:
    """Sizes of messages."""
    found = numbers(text)
    for size in found:
        if not PAYLOAD_BYTES_MIN <= size <= PAYLOAD_BYTES_MAX:
            raise argparse.ArgumentTypeError(
                f"a message has from {PAYLOAD_BYTES_MIN} to {PAYLOAD_BYTES_MAX} bytes, not {size}"
            )
    return found


def seconds(text: str) -> float:
    """A time."""
    return within(text, 0.01, 30 * 24 * 3600.0)


def rate(text: str) -> float:
    """Messages a second."""
    return within(text, 0.001, 1e9)


def within(text: str, least: float, most: float) -> float:
    """A number with bounds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"expected a number from {least:g} to {most:g}, not {text!r}")
    return value
