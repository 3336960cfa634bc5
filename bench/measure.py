"""Runs the load generator and makes cells of its figures: what the sections of compare.py share."""

import collections
import json
import pathlib
import statistics
import subprocess
import tempfile

from reports.sections import of
from servers import PEER, TIDEWIRE

CLIENT_CORE = "1"


def bench_command(server, out, *flags, program=TIDEWIRE):
    command = ["taskset", "-c", CLIENT_CORE, program, "bench", server.url, "--out", out]
    command += ["--server-pid", server.process.pid, "--threads", 1, *server.bench_flags, *flags]
    return [*map(str, command)]


def bench(server, *flags, program=TIDEWIRE):
    """Runs one test and returns its result; a run whose messages did not all arrive ends everything."""
    with tempfile.TemporaryDirectory() as out:
        command = bench_command(server, out, *flags, program=program)
        run = subprocess.run(command, capture_output=True, text=True)
        report = pathlib.Path(out, "report.json")
        if not report.exists():
            raise SystemExit(f"{server.name} {flags}: {run.stderr or run.stdout}")
        result = json.loads(report.read_text())["results"][0]
    if result["verdict"] == "failed":
        raise SystemExit(f"{server.name} {flags} failed: {result.get('notes')}")
    return result


def rate(result):
    return result["rate_per_s"]


def cpu_us(side):
    """A function of a result: CPU time of a side per confirmed message (of a storm, per connection), in microseconds, if known."""

    def figure(result):
        seconds = result.get("cpu", {}).get(f"{side}_s")
        done = result["messages"]["confirmed"] if "messages" in result else result["connected"]
        return seconds and seconds / done * 1e6

    return figure


def median(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else float("nan")


def in_rounds(ours, theirs, figure=float):
    """The ratios within a round, of those that have the figure."""
    pairs = [(figure(a), figure(b)) for a, b in zip(ours, theirs, strict=True)]
    return [a / b for a, b in pairs if a and b]


def ratios(results, ours, other, figure):
    return in_rounds(results[ours], results[other], figure)


def ratio(results, ours, other, figure):
    return median(ratios(results, ours, other, figure))


def rates(rows):
    """The cell of the rates of several runs."""
    return of("per_s", map(rate, rows))


def cpu(side, rows):
    """The cell of a side's CPU time per message."""
    return of("us", map(cpu_us(side), rows))


def times(results, ours, other, figure=rate):
    """The cell of the ratios of two servers."""
    return of("ratio", ratios(results, ours, other, figure))


def bottleneck(rows):
    return statistics.mode(row.get("bottleneck", "none") for row in rows)


def verdicts(rows):
    """`valid`, or how many of the rounds were something else."""
    counts = collections.Counter(row["verdict"] for row in rows)
    if set(counts) == {"valid"}:
        return "valid"
    return ", ".join(f"{counts[name]} of {len(rows)} {name}" for name in sorted(counts))


def reached(*conditions):
    return "reached" if all(conditions) else "**not reached**"


def comparison(page, title, results, target, cpu_target):
    columns = ["server", "confirmed messages", f"ratio to {PEER}", "server CPU per message"]
    page.table(title, *columns, "client CPU per message", "bottleneck", "verdict")
    for name, rows in results.items():
        sides = [cpu("server", rows), cpu("client", rows)]
        page.row(name, rates(rows), times(results, name, PEER), *sides, bottleneck(rows), verdicts(rows))
    ours = ratio(results, "tidewire", PEER, rate)
    less = ratio(results, PEER, "tidewire", cpu_us("server"))
    lines = [f"Target: at least {target} times {PEER}: {ours:.2f} ({reached(ours >= target)})."]
    measured = f"{PEER} spends {less:.2f} times the server CPU per message of Tidewire"
    if cpu_target:
        wanted = "less" if cpu_target == 1 else f"{cpu_target} times less"
        is_reached = less > 1 if cpu_target == 1 else less >= cpu_target
        lines.append(f"Target: server CPU, {wanted}: {measured} ({reached(is_reached)}).")
    else:
        lines.append(f"{measured}.")
    page.end(*lines)
