"""The section of compare.py about Centrifugo: the same publications over HTTP to the same subscribers, in the protocol of each server."""

import contextlib
import json
import pathlib
import secrets
import shutil
import subprocess
import tempfile
import time

from fan_out import TIDEWIRE
from measure import CLIENT_CORE, in_rounds, median, reached
from reports.sections import of
from scale_out import free_port, wait_for_port
from servers import ROOT, SERVER_CORE, Server, cpu_s, tidewire_open
from servers import TIDEWIRE as PROGRAM

CENTRIFUGO = "Centrifugo"
FOLDER = ROOT / "bench/peers/centrifugo"
KEY = secrets.token_hex(16)
TOPIC = "bench"
SUBSCRIBERS = 1_000
RATES = (100, 200)  # publications per second
PAD = "x" * 60
SETTLE_S = 0.5  # until the last deliveries have arrived
AGE_FIELDS = {TIDEWIRE: "/p/at", CENTRIFUGO: "/push/pub/data/at"}


class Centrifugo(Server):
    """Centrifugo with its defaults, without tokens; every client may subscribe."""

    def __init__(self, folder):
        self.name, self.port = CENTRIFUGO, free_port()
        config = pathlib.Path(folder, "config.json")
        settings = {
            "client": {"insecure": True},
            "http_server": {"address": "127.0.0.1", "port": self.port},
            "http_api": {"key": KEY},
            "log": {"level": "error"},
        }
        config.write_text(json.dumps(settings))
        command = ["taskset", "-c", SERVER_CORE, program(), "-c", config]
        self.process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        wait_for_port(self.port)
        subscribe = json.dumps({"id": 2, "subscribe": {"channel": TOPIC}})
        self.url = f"ws://127.0.0.1:{self.port}/"
        self.listen = ["--profile", FOLDER / "push.toml", "--subscribe", subscribe]
        self.publish_url = f"http://127.0.0.1:{self.port}/api/publish"
        self.publication = f'{{"channel":"{TOPIC}","data":{{"at":{{{{now_us}}}},"pad":"{PAD}"}}}}'


def ours():
    server = tidewire_open("sink", "--topics-open", "--ops-listen", "127.0.0.1:0", "--api-key", KEY)
    subscribe = {"c": "WSE", "t": "subscription_update", "p": {"action": "subscribe", "topics": [TOPIC]}, "v": 1}
    server.listen = ["--profile", "v1", "--subscribe", json.dumps(subscribe)]
    server.publish_url = f"{server.stats_url}/api/v1/publish"
    server.publication = f'{{"topic":"{TOPIC}","type":"tick","payload":{{"at":{{{{now_us}}}},"pad":"{PAD}"}}}}'
    return server


def program():
    return shutil.which(FOLDER / "bin/centrifugo")


def centrifugo(page, rounds, seconds):
    if program() is None:
        print("Centrifugo is not installed and is left out: it needs Go, see bench/peers/install.\n")
        return
    seconds = max(seconds, 3)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        servers = [stack.enter_context(ours()), stack.enter_context(Centrifugo(folder))]
        for server in servers:
            server.empty_bytes = server.resident_bytes()
        for per_s in RATES:
            runs = {server.name: [] for server in servers}
            for _ in range(rounds):
                for server in servers:
                    runs[server.name].append(run(server, per_s, seconds))
            add(page, per_s, runs)


def add(page, per_s, runs):
    page.table(
        f"Publications over HTTP, {per_s}/s to {SUBSCRIBERS:,} subscribers",
        *("server", "deliveries", "server CPU per delivery", "ratio to Tidewire", "age p50", "age p99"),
        *("memory of a subscriber", "lost"),
    )
    for name, rows in runs.items():
        page.row(
            name,
            of("per_s", [row["rate"] for row in rows]),
            of("us", [row["cpu_us"] for row in rows]),
            of("ratio", in_rounds(rows, runs[TIDEWIRE], cpu_us)),
            *(of("us", [row[f"age_{part}"] for row in rows]) for part in ("p50", "p99")),
            of("bytes", [row["memory"] for row in rows]),
            str(sum(row["lost"] for row in rows)),
        )
    times = median(in_rounds(runs[CENTRIFUGO], runs[TIDEWIRE], cpu_us))
    page.end(
        f"Target: less server CPU for a delivery than Centrifugo, which spends {times:.1f} times as much "
        f"({reached(times > 1)}). The age is from the publisher to a subscriber, and includes that of the generator, "
        "which reads the messages of all subscribers on one core. The memory is that of the process, divided by its subscribers."
    )


def cpu_us(row):
    return row["cpu_us"]


def run(server, per_s, seconds):
    """Subscribers that listen, and publications at this rate."""
    listener = subprocess.Popen(
        load(server.url, *server.listen, "--timestamp-field", AGE_FIELDS[server.name], "--connections", SUBSCRIBERS)
        + ["--messages-per-s", "0", "--duration-s", str(seconds + 4)],
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for_connections(server)
    memory = (server.resident_bytes() - server.empty_bytes) / SUBSCRIBERS
    before_s, start = cpu_s(server.process.pid), time.monotonic()
    key = ["--header", f"X-API-Key: {KEY}", "--body", server.publication, "--connections", "4"]
    publisher = load(server.publish_url, *key, "--rate-per-s", per_s, "--duration-s", seconds)
    done = subprocess.run(publisher, capture_output=True, text=True, check=False)
    took_s = time.monotonic() - start
    time.sleep(SETTLE_S)
    spent_s = cpu_s(server.process.pid) - before_s
    heard = result(listener.communicate()[0], listener.returncode)
    published = result(done.stdout, done.returncode)["requests"]["succeeded"]
    received, age = heard["received"]["messages"], heard["message_age_us"]
    return {
        "rate": received / took_s,
        "cpu_us": spent_s / received * 1e6,
        "age_p50": age["p50"],
        "age_p99": age["p99"],
        "memory": memory,
        "lost": published * SUBSCRIBERS - received,
    }


def load(url, *flags):
    command = ["taskset", "-c", CLIENT_CORE, PROGRAM, "load", url, "--threads", 1, "--json", "--quiet", *flags]
    return [*map(str, command)]


def result(output, code):
    if not output:
        raise SystemExit(f"tidewire load ended with {code} and said nothing")
    return json.loads(output)["results"][0]


def wait_for_connections(server):
    """Until all subscribers are there, and have subscribed."""
    port = server.url.split(":")[2].split("/")[0]
    end = time.monotonic() + 20
    while time.monotonic() < end:
        listed = subprocess.run(
            ["ss", "-Htn", "state", "established", f"sport = :{port}"], capture_output=True, text=True, check=True
        ).stdout
        if len(listed.splitlines()) >= SUBSCRIBERS:
            time.sleep(1)
            return
        time.sleep(0.05)
    raise SystemExit(f"not all of {SUBSCRIBERS} subscribers reached {server.name}")
