"""Checks metrics, alerts and the Grafana dashboard with a real Prometheus.

    python3 deploy/watch.py PROGRAM

PROGRAM is a built `tidewire`. It is started with Redis as its broker and with a backend, clients use it, and Prometheus
scrapes it. Checked are: the page `/metrics` by
`promtool check metrics`, the alert rules and their tests by `promtool`, every query of `deploy/grafana/tidewire.json`, which
has to have a number as its answer, and every alert, which Prometheus has to evaluate without an error, from metrics that exist.

Without promtool or prometheus (the package `prometheus` of Debian) or redis-server nothing is tested, and it says so.

Exit code: 0 if all is right or nothing could be tested, 1 if something is wrong, or in CI (the variable `CI`) nothing could be
tested, 2 for a wrong command line.
"""

from __future__ import annotations

import base64
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from local import WAIT_S, fetch, free_port, wait_for

FOLDER = Path(__file__).resolve().parent


class Backend(BaseHTTPRequestHandler):
    """A backend that accepts every client."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *arguments: object) -> None:
        """Is silent."""


class Client:
    """A WebSocket client for messages of less than 64 kB."""

    def __init__(self, port: int) -> None:
        self.stream = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.received = b""
        key = base64.b64encode(os.urandom(16)).decode()
        self.stream.sendall(
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        head = self.take_until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        self.expect("server_ready")

    def take_until(self, mark: bytes) -> bytes:
        while mark not in self.received:
            self.more()
        taken, _, self.received = self.received.partition(mark)
        return taken

    def take(self, count: int) -> bytes:
        while len(self.received) < count:
            self.more()
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    def more(self) -> None:
        part = self.stream.recv(65536)
        assert part, "the server has ended the connection"
        self.received += part

    def send(self, t: str, payload: object, **more: str) -> None:
        text = json.dumps({"t": t, "p": payload, **more}).encode()
        length = bytes([0x80 | len(text)]) if len(text) < 126 else bytes([0x80 | 126]) + len(text).to_bytes(2, "big")
        # A mask of zeros leaves the bytes as they are.
        self.stream.sendall(bytes([0x81]) + length + bytes(4) + text)

    def expect(self, t: str) -> dict[str, object]:
        while True:
            first, length = self.take(2)
            if length == 126:
                length = int.from_bytes(self.take(2), "big")
            text = self.take(length)
            message = json.loads(text) if first == 0x81 else {}
            if message.get("t") == t:
                return dict(message)

    def close(self) -> None:
        self.stream.sendall(bytes([0x88, 0x82, 0, 0, 0, 0]) + (1000).to_bytes(2, "big"))
        self.stream.close()


def use(port: int, ends: threading.Event, failures: list[Exception]) -> None:
    """Clients that come, publish, read histories and go, until the end."""
    try:
        publisher = Client(port)
        publisher.send("subscription_update", {"action": "subscribe", "topics": ["watched.a"]})
        publisher.expect("subscription_update")
        while not ends.wait(0.05):
            publisher.send("publish_request", {"topic": "watched.a", "type": "tick", "payload": {"n": 1}})
            publisher.expect("tick")
            reader = Client(port)
            reader.send("subscription_update", {"action": "subscribe", "topics": ["watched.a"], "replay": 5})
            reader.expect("tick")
            reader.send("history_request", {"topic": "watched.a"}, cid="1")
            reader.expect("history_response")
            reader.close()
        publisher.close()
    except (AssertionError, OSError, ValueError) as error:
        failures.append(error)


def promtool(*arguments: str, text: str | None = None, folder: Path = FOLDER) -> None:
    ended = subprocess.run(["promtool", *arguments], input=text, cwd=folder, capture_output=True, text=True)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, f"promtool {' '.join(arguments)}: {said}"


def dashboard_queries() -> Iterator[tuple[str, str]]:
    """Title and query, with values for the dashboard's variables."""
    dashboard = json.loads((FOLDER / "grafana/tidewire.json").read_text())
    found = [(note["name"], note["expr"]) for note in dashboard["annotations"]["list"]]
    for panel in dashboard["panels"]:
        found += [(panel["title"], target["expr"]) for target in panel.get("targets", [])]
    for title, query in found:
        for name, value in {"$__rate_interval": "10s", "$job": ".+", "$instance": ".+"}.items():
            query = query.replace(name, value)
        assert "$" not in query, f"{title}: {query} has a variable that this check does not know"
        yield title, query


def ask(prometheus: int, query: str) -> list[float]:
    words = urllib.parse.urlencode({"query": query})
    answer = json.loads(fetch(f"http://127.0.0.1:{prometheus}/api/v1/query?{words}"))
    return [float(series["value"][1]) for series in answer["data"]["result"]]


def check_dashboard(prometheus: int, failures: list[Exception]) -> int:
    """Each query has a number as its answer within a while; an annotation may have none."""
    left = list(dashboard_queries())
    count = len(left)
    deadline = time.monotonic() + WAIT_S
    while True:
        left = [(title, query) for title, query in left if all(math.isnan(value) for value in ask(prometheus, query))]
        left = [(title, query) for title, query in left if title != "Starts"]
        if not left:
            return count
        assert not failures, f"a client: {failures[0]!r}"
        assert time.monotonic() < deadline, f"without a number: {left}"
        time.sleep(0.5)


def check_alerts(prometheus: int, page: str) -> int:
    """Prometheus evaluates each rule; the metrics are there; a server that works raises no alert."""
    samples = {re.split(r"[{ ]", line)[0] for line in page.splitlines() if not line.startswith("#")}
    deadline = time.monotonic() + WAIT_S
    while True:
        groups = json.loads(fetch(f"http://127.0.0.1:{prometheus}/api/v1/rules"))["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        if rules and all(rule["health"] != "unknown" for rule in rules):
            break
        assert time.monotonic() < deadline, "Prometheus has not evaluated the rules"
        time.sleep(0.2)
    for rule in rules:
        assert rule["health"] == "ok", f"{rule['name']}: {rule.get('lastError')}"
        used = set(re.findall(r"\b(?:tidewire|process)_\w+", rule["query"]))
        missing = used - samples
        assert not missing, f"{rule['name']} uses {missing}, which /metrics does not have"
        assert rule["state"] == "inactive", f"{rule['name']} is {rule['state']} though the server works"
    return len(rules)


def check_live(program: str, folder: Path) -> str:
    clients, operations, prometheus, broker = free_port(), free_port(), free_port(), free_port()
    for name in ("alerts.yml", "prometheus.yml"):
        text = (FOLDER / "prometheus" / name).read_text()
        for interval in ("scrape_interval", "evaluation_interval"):
            text = text.replace(f"{interval}: 15s", f"{interval}: 1s")
        (folder / name).write_text(text.replace("127.0.0.1:5007", f"127.0.0.1:{operations}"))
    serve = [program, "serve", "--no-auth", "--topics-open", "--history", "watched.>=100", "--log-level", "warn"]
    serve += ["--listen", f"127.0.0.1:{clients}", "--ops-listen", f"127.0.0.1:{operations}"]
    backend = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    serve += ["--backend", f"http://127.0.0.1:{backend.server_port}/", "--backend-events", "connect"]
    serve += ["--broker", f"redis://127.0.0.1:{broker}"]
    redis = ["redis-server", "--port", str(broker), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    watch = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    watch += [f"--web.listen-address=127.0.0.1:{prometheus}", "--log.level=error"]
    children: list[subprocess.Popen[bytes]] = []
    ends = threading.Event()
    failures: list[Exception] = []
    user = threading.Thread(target=use, args=(clients, ends, failures))
    threading.Thread(target=backend.serve_forever, daemon=True).start()
    try:
        children.append(subprocess.Popen(redis, cwd=folder, stdout=subprocess.DEVNULL))
        children.append(subprocess.Popen(serve, stdout=subprocess.DEVNULL))
        wait_for(f"http://127.0.0.1:{operations}/ready")
        user.start()
        children.append(subprocess.Popen(watch))
        wait_for(f"http://127.0.0.1:{prometheus}/-/ready")
        queries = check_dashboard(prometheus, failures)
        page = fetch(f"http://127.0.0.1:{operations}/metrics")
        promtool("check", "metrics", text=page)
        alerts = check_alerts(prometheus, page)
        assert not failures, f"a client: {failures[0]!r}"
        return f"{queries} queries of the dashboard and {alerts} alerts work"
    finally:
        ends.set()
        if user.ident is not None:
            user.join()
        for child in reversed(children):
            child.terminate()
        for child in children:
            child.wait()
        backend.shutdown()
        backend.server_close()


def main() -> int:
    if len(sys.argv) != 2 or not os.access(sys.argv[1], os.X_OK):
        print(__doc__, file=sys.stderr)
        return 2
    missing = [name for name in ("promtool", "prometheus", "redis-server") if shutil.which(name) is None]
    if missing:
        print(f"Prometheus: not tested, {' and '.join(missing)} not installed (packages prometheus and redis-server)")
        return 1 if os.environ.get("CI") else 0
    try:
        promtool("check", "rules", "alerts.yml", folder=FOLDER / "prometheus")
        promtool("test", "rules", "alerts.test.yml", folder=FOLDER / "prometheus")
        with tempfile.TemporaryDirectory() as name:
            said = check_live(str(Path(sys.argv[1]).resolve()), Path(name))
        print(f"Prometheus: {said}")
        return 0
    except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as error:
        print(f"Prometheus: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
