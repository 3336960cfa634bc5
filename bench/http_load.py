"""Measures `tidewire load` and other HTTP load testers in turns: the tables of docs/reports/http.md.

The server has the first core, the tool the second, if a table does not say otherwise. A round runs every tool once, so that a drift of the machine
meets all of them; the figures are medians over the rounds, and a ratio is the median of the ratios within a round.
A tool that is not installed is left out, and the page says so.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import tempfile

import http_tools
import measure as lab
import servers
from http_tools import TOOLS, CannotDo, Load, measure, nginx, test_server
from reports.sections import Sections, of
from servers import certificate

OURS = "tidewire load"
# A server that is busier than this was the limit, and not the tool.
SERVER_BUSY = 0.95


def median(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else float("nan")


def ratios(ours, theirs, figure):
    return [figure(a) / figure(b) for a, b in zip(ours, theirs, strict=True)]


def ratio(ours, theirs, figure):
    return median(ratios(ours, theirs, figure))


def reached(holds):
    return "reached" if holds else "**not reached**"


def in_turns(tools, load, server, rounds):
    """The runs of each tool that can do such a load."""
    runs = {}
    for tool in tools:
        with contextlib.suppress(CannotDo):
            TOOLS[tool][0](load)
            runs[tool] = []
    for _ in range(rounds):
        for tool, its_runs in runs.items():
            its_runs.append(measure(tool, load, server))
    return runs


def compare(page, title, runs, sentences, peer="wrk"):
    own = ["tool", "requests/s", f"rate to {peer}", "CPU per request", f"CPU to {peer}"]
    page.table(title, *own, "server's CPU per request", "server busy")
    theirs = runs.get(peer)
    for tool, its_runs in runs.items():
        page.row(
            tool,
            of("per_s", (run.rate for run in its_runs)),
            of("ratio", ratios(its_runs, theirs, lambda run: run.rate)) if theirs else "-",
            of("us", (run.tool_us for run in its_runs)),
            of("ratio", ratios(its_runs, theirs, lambda run: run.tool_us)) if theirs else "-",
            of("us", (run.server_us for run in its_runs)),
            of("percent", (run.server_share * 100 for run in its_runs)),
        )
    rounds = len(next(iter(runs.values())))
    page.end(
        *sentences, f"Medians of {rounds} runs of each, in turns; a ratio is the median of the ratios within a round."
    )


def target(runs, other, name, most, figure=lambda run: run.tool_us):
    """A sentence about CPU per request beside another tool's, or that it is not here."""
    if other not in runs:
        return f"No target: {other} is not installed here."
    value = ratio(runs[OURS], runs[other], figure)
    return f"Target: {name} at most {most} of {other}'s. It is {value:.3f}: {reached(value <= most)}."


def rate_target(runs):
    if "wrk" not in runs:
        return ""
    value = ratio(runs[OURS], runs["wrk"], lambda run: run.rate)
    if median(run.server_share for run in runs[OURS]) >= SERVER_BUSY:
        return f"The server was the limit; the rate is {value:.2f} of wrk's."
    return f"Target: a rate of at least 1.1 times wrk's. It is {value:.3f}: {reached(value >= 1.1)}."


def keep_alive(page, tools, rounds, seconds):
    with tempfile.TemporaryDirectory() as folder, nginx(folder) as server:
        runs = in_turns(tools, Load(server.url, seconds), server, rounds)
    cpu = target(runs, "wrk", "CPU per request", 0.85)
    compare(page, "Keep-alive, 100 connections, nginx", runs, [cpu, rate_target(runs)])
    with test_server() as server:
        runs = in_turns(tools, Load(server.url, seconds), server, rounds)
    cpu = target(runs, "wrk", "CPU per request", 0.85)
    compare(page, "Keep-alive, 100 connections, test-server", runs, [cpu, rate_target(runs)])


def pipelining(page, tools, rounds, seconds):
    with test_server() as server:
        deep = in_turns(tools, Load(server.url, seconds, pipelining=16), server, rounds)
        plain = in_turns([OURS], Load(server.url, seconds), server, rounds)
    value = ratio(deep[OURS], plain[OURS], lambda run: run.rate)
    sentence = f"Target: at least 4 times Tidewire's rate without pipelining. It is {value:.3f}: {reached(value >= 4)}."
    compare(page, "Pipelining 16, 100 connections, test-server", deep, [sentence])


def shared_cores(page, tools, rounds, seconds):
    """As on one machine without any pinning: what a tool needs is not left for the server."""
    with tempfile.TemporaryDirectory() as folder, nginx(folder, workers=2) as server:
        runs = in_turns(tools, Load(server.url, seconds, threads=2), server, rounds)
    said = (
        "Two workers of nginx and two threads of the tool share two cores; the server is busy in percent of one core."
    )
    compare(page, "Keep-alive, 100 connections, two shared cores, nginx", runs, [said])


def new_connections(page, tools, rounds, seconds):
    with tempfile.TemporaryDirectory() as folder, nginx(folder) as server:
        runs = in_turns(tools, Load(server.url, seconds, keep_alive=False), server, rounds)
    sentence = target(runs, "ab", "CPU per request", 0.83)
    compare(page, "A new connection for each request, nginx", runs, [sentence])


def secure(page, tools, rounds, seconds):
    with tempfile.TemporaryDirectory() as folder, nginx(folder, certificate(folder)) as server:
        runs = in_turns(tools, Load(server.url, seconds), server, rounds)
    sentence = target(runs, "wrk", "CPU per request", 0.9)
    compare(page, "HTTPS, keep-alive, 100 connections, nginx", runs, [sentence])


def http2(page, tools, rounds, seconds):
    """Without TLS: requests on streams, beside h2load."""
    tools = [tool for tool in tools if tool in http_tools.HTTP2_TOOLS]
    for connections, streams in ((100, 1), (10, 10)):
        with tempfile.TemporaryDirectory() as folder, nginx(folder, is_http2=True) as server:
            beside_h2load(
                page, tools, Load(server.url, seconds, connections, streams=streams), ("nginx", server), rounds
            )
        with test_server() as server:
            beside_h2load(
                page, tools, Load(server.url, seconds, connections, streams=streams), ("test-server", server), rounds
            )


def beside_h2load(page, tools, load, named, rounds):
    name, server = named
    runs = in_turns(tools, load, server, rounds)
    sentences = [target(runs, "h2load", "CPU per request", 0.85)]
    if "h2load" in runs:
        rate = ratio(runs[OURS], runs["h2load"], lambda run: run.rate)
        sentences.append(f"Target: at least h2load's rate. It is {rate:.3f} of it: {reached(rate >= 1)}.")
    streams = "1 stream" if load.streams == 1 else f"{load.streams} streams"
    title = f"HTTP/2, {load.connections} connections of {streams}, {name}"
    compare(page, title, runs, sentences, "h2load")


STEPS = 100


def scenario(page, _tools, rounds, seconds):
    """One request, a hundred of them in turn, and a hundred with a value in each path."""
    with tempfile.TemporaryDirectory() as folder, test_server() as server:
        load = Load(server.url, seconds)
        flags = {"one request": []}
        for name, path in (("100 requests", "/item/{}"), ("100 requests with a value each", "/item/{}/{{{{seq}}}}")):
            file = pathlib.Path(folder, f"{len(flags)}.jsonl")
            file.write_text("".join(json.dumps({"path": path.format(step)}) + "\n" for step in range(STEPS)))
            flags[name] = ["--scenario", file]
        runs = {name: [] for name in flags}
        for _ in range(rounds):
            for name, further in flags.items():
                runs[name].append(measure(OURS, load, server, *further))
    columns = ["load", "requests/s", "rate to one", "CPU per request", "CPU to one", "server busy"]
    page.table("Scenarios, 100 connections, test-server", *columns)
    plain = runs["one request"]
    for name, its_runs in runs.items():
        page.row(
            name,
            of("per_s", (run.rate for run in its_runs)),
            of("ratio", ratios(its_runs, plain, lambda run: run.rate)),
            of("us", (run.tool_us for run in its_runs)),
            of("ratio", ratios(its_runs, plain, lambda run: run.tool_us)),
            of("percent", (run.server_share * 100 for run in its_runs)),
        )
    rate = ratio(runs["100 requests"], plain, lambda run: run.rate)
    cpu = ratio(runs["100 requests"], plain, lambda run: run.tool_us)
    page.end(
        f"Target: a scenario of 100 requests costs at most 15 % of the plain rate. Its rate is {rate:.3f} of it: "
        f"{reached(rate >= 0.85)}; by CPU per request it would be {1 / cpu:.3f}: {reached(cpu <= 1 / 0.85)}."
    )


def receive(page, _tools, rounds, seconds):
    """The rate that the engine receives from `tidewire bench` and from a client that never waits, each in turn."""
    client = servers.PEERS / "peer-saturate"
    if not client.exists():
        print("No section about WebSocket: peer-saturate is not built here.")
        return
    columns = ["connections", "tidewire bench", "peer-saturate", "ratio", "target"]
    page.table("WebSocket: 175 B received by `tidewire serve`, messages/s", *columns)
    for connections in (100, 1_000, 10_000):
        ours, theirs = [], []
        for number in range(rounds):
            with servers.tidewire_open("sink") as server:
                both = [(ours, lab_rate), (theirs, saturating_rate)]
                for rates, its_rate in both if number % 2 == 0 else reversed(both):
                    rates.append(its_rate(server, connections, seconds))
        shares = [a / b for a, b in zip(ours, theirs, strict=True)]
        page.row(
            f"{connections:,}",
            of("per_s", ours),
            of("per_s", theirs),
            of("ratio", shares),
            reached(median(shares) >= 0.9),
        )
    page.end(
        "Target: at least 0.9 of the saturating client's rate. Both use one core and run in turns against one server."
    )


def lab_rate(server, connections, seconds):
    return lab.bench(server, "--test", "throughput", "--connections", connections, "--duration-s", seconds)[
        "rate_per_s"
    ]


def saturating_rate(server, connections, seconds):
    command = ["taskset", "-c", http_tools.CLIENT_CORE, servers.PEERS / "peer-saturate", "--url", server.url]
    command += ["--connections", connections, "--payload-bytes", 175, "--seconds", seconds, "--mode", "sink"]
    run = subprocess.run([*map(str, command)], capture_output=True, text=True)
    if run.returncode:
        raise SystemExit(f"peer-saturate: {run.stderr}")
    return json.loads(run.stdout)["rate_per_s"]


def own_server(page, _tools, rounds, seconds):
    """The same load by wrk on both servers."""
    if "wrk" in http_tools.missing():
        return
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(rounds):
            for runs, start in ((ours, test_server), (theirs, lambda: nginx(folder))):
                with start() as server:
                    runs.append(measure("wrk", Load(server.url, seconds), server))
    page.table("Servers under wrk, 100 connections", "server", "requests/s", "CPU per request")
    for name, runs in (("tidewire test-server", ours), ("nginx, `return 200`", theirs)):
        page.row(name, of("per_s", (run.rate for run in runs)), of("us", (run.server_us for run in runs)))
    value = ratio(ours, theirs, lambda run: run.server_us)
    page.end(f"Target: CPU per request at most 0.83 of nginx's. It is {value:.3f}: {reached(value <= 0.83)}.")


def open_loop(page, _tools, _rounds, seconds):
    """Five runs at half of what a closed loop reaches."""
    with test_server() as server:
        load = Load(server.url, seconds)
        capacity = measure(OURS, load, server).rate
        runs = [measure(OURS, load, server, "--rate-per-s", int(capacity / 2)) for _ in range(5)]
    columns = ["run", "requests/s", "late p99", "late p99.9", "core used by others", "p99.9", "verdict"]
    page.table("Open loop at half the capacity, test-server", *columns)
    late = []
    for number, run in enumerate(runs, 1):
        lateness = run.report["generator"]["late_us"]
        late.append(lateness["p99_9"])
        latency = run.report["latency_us"]["p99_9"]
        others = run.report["generator"].get("waited_for_others_s", 0) / run.elapsed_s
        page.row(
            str(number), of("per_s", [run.rate]), of("us", [lateness["p99"]]), of("us", [lateness["p99_9"]]),
            of("percent", [others * 100]), of("us", [latency]), run.report["verdict"],
        )  # fmt: skip
    value = median(late)
    page.end(
        f"The capacity was {capacity:,.0f} requests/s. Target: p99.9 of the generator's own lateness below 1 ms. "
        f"The median is {value:,.0f} µs: {reached(value < 1000)}.",
        "If other programs use the generator's core for more than 0.1 % of the time, the figure shows how long they use it.",
    )


def stalls(page, _tools, _rounds, seconds):
    """A server that does nothing for 100 ms in each second: a tenth of all requests meet it, or wait behind it."""
    seconds = max(seconds, 5)
    with test_server("--stall-every-ms", 1000, "--stall-ms", 100) as server:
        load = Load(server.url, seconds, connections=20)
        paced = measure(OURS, load, server, "--rate-per-s", 5000).report["latency_us"]
        closed = measure(OURS, load, server).report["latency_us"]
        others = []
        if "wrk" not in http_tools.missing():
            others.append(("wrk --latency", wrk_percentiles(load)))
    page.table("A server that stalls for 100 ms each second", "tool", "p50", "p90", "p99", "p99.9")
    page.row("what a user sees", "~0 ms", "~0 ms", "~90 ms", "~99 ms")
    for name, latency in (("tidewire load, 5,000/s", paced), ("tidewire load, closed loop", closed)):
        page.row(name, *(of("us", [latency[key]]) for key in ("p50", "p90", "p99", "p99_9")))
    for name, cells in others:
        page.row(name, *cells)
    page.end(
        "A user who arrives at a random time meets a stall with a probability of one tenth, and waits for the rest of "
        "it, evenly distributed from 0 to 100 ms. Only an open loop that counts from the intended time shows this; a "
        "closed loop stops sending while the server stalls."
    )


def wrk_percentiles(load):
    command = ["taskset", "-c", http_tools.CLIENT_CORE, *http_tools.wrk(load), "--latency"]
    output = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in output.splitlines():
        words = line.split()
        if len(words) == 2 and words[0].endswith("%"):
            found[words[0]] = words[1]
    return [found.get("50%", "-"), found.get("90%", "-"), found.get("99%", "-"), "-"]


def many_connections(page, _tools, _rounds, seconds):
    with test_server() as server:
        run = measure(OURS, Load(server.url, seconds, connections=19_000), server)
    peak = run.report["connecting"]["peak"]
    page.table("19,000 connections of one process", "open at once", "requests/s", "verdict", "target")
    page.row(f"{peak:,}", of("per_s", [run.rate]), run.report["verdict"], reached(peak >= 19_000))
    page.end()


SECTIONS = {
    "keep-alive": keep_alive,
    "pipelining": pipelining,
    "shared-cores": shared_cores,
    "new-connections": new_connections,
    "https": secure,
    "http2": http2,
    "scenario": scenario,
    "test-server": own_server,
    "open-loop": open_loop,
    "stalls": stalls,
    "connections": many_connections,
    "receive": receive,
}


def versions(tools):
    """How each tool calls itself, in its first line."""
    flags = {
        "wrk": ["wrk", "-v"],
        "ab": ["ab", "-V"],
        "h2load": ["h2load", "--version"],
        "oha": [str(http_tools.OHA), "--version"],
    }
    for tool, command in flags.items():
        if tool in tools:
            said = subprocess.run(command, capture_output=True, text=True)
            yield (said.stdout or said.stderr).splitlines()[0].strip(" <>")
    said = subprocess.run(["nginx", "-v"], capture_output=True, text=True)
    yield said.stderr.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--tools", help="with commas; all that are installed by default")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the tables to this file")
    options = parser.parse_args()
    unknown = [name for name in options.sections if name not in SECTIONS]
    if unknown:
        parser.error(f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    missing = http_tools.missing()
    if OURS in missing:
        raise SystemExit(f"{http_tools.TIDEWIRE} is missing: cargo build --release --package tidewire-cli")
    wanted = options.tools.split(",") if options.tools else [*TOOLS]
    tools = [OURS, *(tool for tool in wanted if tool not in (*missing, OURS))]
    page = Sections()
    left_out = [tool for tool in wanted if tool in missing]
    for name in options.sections or SECTIONS:
        SECTIONS[name](page, tools, options.rounds, options.seconds)
    said = [f"Versions: {'; '.join(versions(tools))}."]
    said += [f"Left out, because they are not installed here: {', '.join(left_out)}."] if left_out else []
    for table in page.tables:
        table.notes += said
    if options.json:
        page.write(options.json)


if __name__ == "__main__":
    main()
