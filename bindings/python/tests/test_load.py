"""Loading a service from Python."""

from __future__ import annotations

import http.server
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tidewire


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers GET with 200, POST with what was posted, and /missing with 404."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(404 if self.path == "/missing" else 200, b"hello")

    def do_POST(self) -> None:
        self.answer(200, self.rfile.read(int(self.headers["Content-Length"])))

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_every_request_is_counted(url: str) -> None:
    result = tidewire.load(url, connections=3, requests=60)
    assert (result.succeeded, result.failed) == (60, 0)
    assert result.statuses == {200: 60}
    assert result.latency_ms["p50"] > 0
    assert result.to_dict()["results"][0]["requests"]["sent"] == 60
    assert "60 succeeded" in repr(result)
    assert "<table>" in result._repr_html_()


def test_bodies_checks_and_expectations(url: str) -> None:
    result = tidewire.load(
        url,
        requests=20,
        connections=2,
        json_body={"n": "{{seq}}"},
        expect_body='"n":',
        expect=["errors<1%", "p99<1us"],
    )
    assert result.succeeded == 20
    assert not result.as_expected
    assert result.exit_code == 5
    assert "broken: p99<1us" in repr(result)


def test_a_failing_service_is_a_result(url: str) -> None:
    result = tidewire.load(url + "missing", requests=10, connections=1)
    assert (result.succeeded, result.failed, result.verdict) == (0, 10, "failed")
    assert result.errors == {"unexpected-status": 10}
    nobody = tidewire.load("http://127.0.0.1:1/", requests=10, connections=1)
    assert nobody.verdict == "failed"
    assert nobody.exit_code == 1
    assert nobody.latency_ms == {}
    assert repr(nobody) == "<LoadResult failed: 0/s, 0 succeeded, 0 failed, 1 refused>"


def test_nothing_is_as_expected_if_nobody_was_connected() -> None:
    nobody = tidewire.load(
        "http://127.0.0.1:1/", requests=10, connections=1, expect=["p99<1s", "errors<1%", "connected>0"]
    )
    assert not nobody.as_expected
    assert nobody.exit_code == 1
    assert "broken: p99<1s, errors<1%, connected>0" in repr(nobody)


def test_a_wrong_option_is_an_error_that_says_what_to_do(url: str) -> None:
    with pytest.raises(tidewire.InvalidArgumentError, match="did you mean `connections`"):
        tidewire.load(url, conections=3)
    with pytest.raises(tidewire.InvalidArgumentError, match="http://"):
        tidewire.load("ftp://127.0.0.1/")
    with pytest.raises(tidewire.InvalidArgumentError, match="p99<20ms"):
        tidewire.load(url, expect="fast")
    with pytest.raises(tidewire.InvalidArgumentError, match="--message is for ws://"):
        tidewire.load(url, message="hello")
    with pytest.raises(tidewire.InvalidArgumentError, match="step_s needs find_limit"):
        tidewire.load(url, step_s=1)


def test_a_report_is_written(url: str, tmp_path: Path) -> None:
    result = tidewire.load(url, requests=10, connections=1)
    page = result.save(tmp_path / "out")
    assert page.exists()
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written["results"][0]["requests"] == result.to_dict()["results"][0]["requests"]
    assert "http" in result.tables()


def test_progress_is_shown_and_its_error_ends_the_load(url: str) -> None:
    class Enough(Exception):
        pass

    seen: list[tidewire.LoadProgress] = []

    def show(progress: tidewire.LoadProgress) -> None:
        seen.append(progress)
        if progress.succeeded > 0:
            raise Enough

    with pytest.raises(Enough):
        tidewire.load(url, duration_s=60, connections=1, on_progress=show)
    assert seen[-1].connected == 1


def test_control_c_gives_what_was_measured(url: str) -> None:
    def interrupt(progress: tidewire.LoadProgress) -> None:
        if progress.succeeded > 0:
            signal.raise_signal(signal.SIGINT)

    result = tidewire.load(url, duration_s=60, connections=1, on_progress=interrupt)
    assert result.interrupted
    assert repr(result).startswith("<LoadResult interrupted: ")
    assert result.exit_code == 130
    assert result.succeeded > 0


def pipe(tmp_path: Path) -> Path:
    """A scenario that can be read when somebody writes it: reading it takes as long as a slow resolver."""
    path = tmp_path / "scenario.toml"
    os.mkfifo(path)
    return path


def test_other_threads_go_on_while_the_load_is_prepared(url: str, tmp_path: Path) -> None:
    scenario = pipe(tmp_path)
    text = "[[request]]\npath = '/'\n"
    writer = threading.Timer(0.1, lambda: scenario.write_text(text))
    writer.start()
    result = tidewire.load(url, scenario=scenario, requests=5, connections=1)
    writer.join()
    assert result.succeeded == 5


def test_control_c_ends_the_preparation(url: str, tmp_path: Path) -> None:
    scenario = pipe(tmp_path)
    interrupt = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        tidewire.load(url, scenario=scenario, requests=5, connections=1)
    interrupt.join()
    # The reader that nobody waits for any more ends, too.
    scenario.write_text("")


def test_messages_to_a_server_of_our_own(serve: Any) -> None:
    server = serve()
    result = tidewire.load(server.url, connections=5, messages_per_s=20, duration_s=0.5)
    assert result.failed == 0
    assert result.succeeded > 0
