"""The sections of compare.py about fan-out, topics and filters."""

import contextlib
import re
import subprocess

from layers import EXAMPLES
from measure import bench, bottleneck, cpu, cpu_us, median, rate, rates, ratio, reached, times, verdicts
from reports.sections import of
from servers import PEERS, SERVER_CORE, Server, peers, tidewire

TIDEWIRE, HISTORY = "tidewire", "tidewire, with history"
LONGER = "tidewire, messages as long as with history"
POSITION_BYTES = 25  # what epoch and offset add to a message
REFERENCES = ("uWebSockets", "ws (Node)")  # the first that is installed
BARE = "bare loop of sends"
MESSAGE_BYTES = 95
TARGETS = {100: 12e6, 1_000: 10e6, 10_000: 6e6}
PEAK_BYTES = 64e6
PACED_SECONDS_MIN = 5.0


def fan_out(page, rounds, seconds):
    longer = ["--payload-bytes", MESSAGE_BYTES + POSITION_BYTES]
    starters = [(name, start, []) for name, start in both_tidewires() + broadcasting()]
    starters.insert(1, (LONGER, both_tidewires()[0][1], longer))
    for subscribers, target in TARGETS.items():
        flags = ["--connections", subscribers, "--duration-s", seconds]
        results, failures = in_turns(starters, rounds, *flags)
        add_deliveries(page, subscribers, results, target, failures)


def both_tidewires():
    return [
        (TIDEWIRE, lambda: tidewire("sink", "--topics-open")),
        (HISTORY, lambda: tidewire("sink", "--topics-open", "--history", "fan-out=1000")),
    ]


def broadcasting():
    return [(name, starter(name, command)) for name, command in peers("broadcast")]


def starter(name, command):
    return lambda: Server(name, command, ["--profile", "raw"])


def in_turns(starters, rounds, *flags):
    """The results of each server by its name, and why those are missing that did not deliver everything.

    `starters` are names, functions that start a server, and flags of its own. Tidewire has to deliver, or all ends;
    where a peer fails, the others go on without it.
    """
    with contextlib.ExitStack() as stack:
        servers = {name: (stack.enter_context(start()), own) for name, start, own in starters}
        results, failures = {name: [] for name in servers}, {}
        for _ in range(rounds):
            for name in [*results]:
                server, own = servers[name]
                try:
                    results[name].append(bench(server, "--test", "fan-out", *flags, *own))
                except SystemExit as failure:
                    if name.startswith(TIDEWIRE):
                        raise
                    failures[name] = str(failure)
                    del results[name]
    return results, [f"Left out: {text.strip()}" for text in failures.values()]


def add_deliveries(page, subscribers, results, target, failures):
    reference = next((name for name in REFERENCES if name in results), TIDEWIRE)
    columns = ["deliveries", f"ratio to {reference}", "server CPU per delivery", "client CPU per delivery"]
    columns += ["peak memory", "bottleneck", "verdict"]
    page.table(f"Fan-out of 95 B at full speed to {subscribers:,} subscribers", "server", *columns)
    for name, rows in results.items():
        cells = [rates(rows), times(results, name, reference), cpu("server", rows), cpu("client", rows)]
        page.row(name, *cells, of("bytes", [peak_bytes(rows)]), bottleneck(rows), verdicts(rows))
    ours, kept = median(map(rate, results[TIDEWIRE])), ratio(results, HISTORY, TIDEWIRE, rate)
    kept_of_longer = ratio(results, HISTORY, LONGER, rate)
    peak = max(peak_bytes(results[name]) for name in (TIDEWIRE, HISTORY))
    page.end(
        f"Target: at least {target / 1e6:.0f} M deliveries/s: {ours / 1e6:.2f} M ({reached(ours >= target)}).",
        f"Target: less than {PEAK_BYTES / 1e6:.0f} MB: {peak / 1e6:.1f} ({reached(peak < PEAK_BYTES)}).",
        f"Target: with history at least 0.9 of the rate without: {kept:.2f} ({reached(kept >= 0.9)}); at least 0.9 of "
        f"the rate of messages of the same length: {kept_of_longer:.2f} ({reached(kept_of_longer >= 0.9)}).",
        *failures,
    )


def peak_bytes(rows):
    return max(row["memory"]["server_rss_peak_bytes"] for row in rows)


def fan_out_rate(page, rounds, seconds):
    """Fixed rates, which cost system calls above all: so beside a loop that does nothing else."""
    bare = [(BARE, starter(BARE, [PEERS / "peer-sendloop", "--port", 0, "--mode", "broadcast"]), [])]
    ours = [(TIDEWIRE, both_tidewires()[0][1], [])]
    uws = [(name, start, []) for name, start in broadcasting() if name == REFERENCES[0]]
    for subscribers, per_s in ((1_000, 100), (10_000, 20)):
        flags = ["--connections", subscribers, "--rate-per-s", per_s]
        flags += ["--duration-s", max(seconds, PACED_SECONDS_MIN)]
        results, failures = in_turns(ours + bare + uws, rounds, *flags)
        if BARE not in results:
            raise SystemExit("\n".join(failures))
        columns = [
            "deliveries",
            "server CPU per delivery",
            "ratio to the bare loop",
            "latency p50",
            "p99",
            "skew p50",
            "verdict",
        ]
        page.table(f"Fan-out of 95 B, {per_s}/s to {subscribers:,} subscribers", "server", *columns)
        for name, rows in results.items():
            latencies = [of("us", [row["latency_us"][part] for row in rows]) for part in ("p50", "p99")]
            skew = of("us", [row["fan_out"]["skew_us"]["p50"] for row in rows])
            costs = [cpu("server", rows), times(results, name, BARE, cpu_us("server"))]
            page.row(name, rates(rows), *costs, *latencies, skew, verdicts(rows))
        more = ratio(results, TIDEWIRE, BARE, cpu_us("server"))
        page.end(
            "Latency is from the time at which a publication was due; skew is from the first subscriber to the last. "
            "A server that is late sends several publications at once, which costs it less.",
            f"Target: at most 1.1 times the server CPU of the bare loop: {more:.2f} ({reached(more <= 1.1)}).",
            *failures,
        )


def topics(page, rounds, seconds):
    memory = [figures("topic_memory") for _ in range(min(rounds, 3))]
    speeds = [figures("topic_rates", seconds) for _ in range(rounds)]
    count = int(memory[0]["topics"])
    page.table(f"Topics, {count:,} with one subscriber each", "what", "figure", "target")
    each = [run["bytes_per_topic"] for run in memory]
    page.row("memory of a topic", of("bytes", each), f"400 B: {reached(median(each) <= 400)}")
    for part, name in (("publish", "publication"), ("deliver", "publication and delivery")):
        few, many, anywhere = (
            of("ns", [run[f"{part}_ns_{which}"] for run in memory])
            for which in ("few_topics", "many_topics", "any_of_many")
        )
        growth = median(run[f"{part}_growth"] for run in memory)
        target = f"at most 1.15 times: {growth:.2f}, {reached(growth <= 1.15)}"
        page.row(f"{name}, few topics", few, None)
        page.row(f"{name}, the same topics among all these", many, target)
        page.row(f"{name}, any of all these", anywhere, None)
    for size, name in ((1000, "1,000 in a message"), (1, "one in a message")):
        updates = [run[f"updates_per_s_by_{size}"] for run in speeds]
        target = f"300,000: {reached(median(updates) >= 300_000)}" if size == 1000 else None
        page.row(f"subscribed and unsubscribed, {name}", of("per_s", updates), target)
    page.end(
        "Server and client are one process. For a publication to any of all topics the processor's caches contain "
        "less, because that topic was last used long ago."
    )


def filters(page, _rounds, _seconds):
    output = run_example("filter_cost", pinned=True)
    costs = [match.groups() for match in map(FILTER_LINE.fullmatch, output.splitlines()) if match]
    if not costs:
        raise SystemExit(f"filter_cost printed something else: {output}")
    page.table("Filters, one evaluation", "filter", "median", "target")
    for nanoseconds, name in costs:
        page.row(name, of("ns", [float(nanoseconds)]), reached(float(nanoseconds) < 300))
    page.end("Target: less than 300 ns for each distinct filter and message.")


def figures(example, *arguments):
    """The output of an example, lines of a name and a number."""
    lines = run_example(example, *arguments).splitlines()
    return {name: float(value) for name, value in map(str.split, lines)}


def run_example(example, *arguments, pinned=False):
    pin = ["taskset", "-c", SERVER_CORE] if pinned else []
    command = [*pin, str(EXAMPLES / example), *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


FILTER_LINE = re.compile(r" *([0-9.]+) ns +[0-9.]+ ns  (.+) \(taken: .*\)")
