"""Runs the load generator and puts its figures into pages: what the sections of compare.py share."""

import collections
import json
import pathlib
import statistics
import subprocess
import tempfile

from servers import PEER, TIDEWIRE

CLIENT_CORE = "1"


def bench_command(server, out, *flags):
    command = ["taskset", "-c", CLIENT_CORE, TIDEWIRE, "bench", server.url, "--out", out]
    command += ["--server-pid", server.process.pid, "--threads", 1, *server.bench_flags, *flags]
    return [*map(str, command)]


def bench(server, *flags):
    """Runs one test and returns its result; a run whose messages did not all arrive ends everything."""
    with tempfile.TemporaryDirectory() as out:
        command = bench_command(server, out, *flags)
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


def ratio(results, ours, other, figure):
    pairs = [(figure(a), figure(b)) for a, b in zip(results[ours], results[other], strict=True)]
    return median(a / b for a, b in pairs if a and b)


def verdicts(rows):
    """`valid`, or how many of the rounds were something else."""
    counts = collections.Counter(row["verdict"] for row in rows)
    if set(counts) == {"valid"}:
        return "valid"
    return ", ".join(f"{counts[name]} of {len(rows)} {name}" for name in sorted(counts))


def reached(*conditions):
    return "reached" if all(conditions) else "**not reached**"


class Page:
    """The lines of RESULTS.md, printed as they come; `path` is None where nothing is to be written."""

    def __init__(self, path):
        self.path = path
        self.lines = []

    def add(self, *lines):
        self.lines += lines
        print(*lines, sep="\n", flush=True)

    def save(self):
        if self.path:
            self.path.write_text("\n".join(self.lines))

    def table(self, title, *columns):
        self.add(f"## {title}", "", f"| {' | '.join(columns)} |", "|---" * len(columns) + "|")

    def row(self, *cells):
        self.add(f"| {' | '.join(cells)} |")

    def end(self, *sentences):
        self.add("", *sentences, "")
        self.save()

    def comparison(self, title, results, target, cpu_target):
        columns = ["server", "confirmed messages/s", f"ratio to {PEER}", "server CPU per message"]
        self.table(title, *columns, "client CPU per message", "bottleneck", "verdict")
        for name, rows in results.items():
            self.row(
                name,
                f"{median(map(rate, rows)):,.0f}",
                f"{ratio(results, name, PEER, rate):.2f}",
                f"{median(map(cpu_us('server'), rows)):.3f} µs",
                f"{median(map(cpu_us('client'), rows)):.3f} µs",
                statistics.mode(row["bottleneck"] for row in rows),
                verdicts(rows),
            )
        ours = ratio(results, "tidewire", PEER, rate)
        cpu = ratio(results, PEER, "tidewire", cpu_us("server"))
        lines = [f"Target: at least {target} times {PEER}: {ours:.2f} ({reached(ours >= target)})."]
        measured = f"{PEER} spends {cpu:.2f} times the server CPU per message of Tidewire"
        if cpu_target:
            wanted = "less" if cpu_target == 1 else f"{cpu_target} times less"
            is_reached = cpu > 1 if cpu_target == 1 else cpu >= cpu_target
            lines.append(f"Target: server CPU, {wanted}: {measured} ({reached(is_reached)}).")
        else:
            lines.append(f"{measured}.")
        self.end(*lines)
