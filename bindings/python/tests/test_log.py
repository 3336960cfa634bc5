"""The engine's log in Python's `logging`."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import tidewire

LISTENING = "listening on ws://127.0.0.1:"


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def refused_page(server: tidewire.Server, host: str = "127.0.0.1") -> str:
    """The status line for a page of another origin that names this host."""
    address, port = server.address
    with socket.create_connection((address, port)) as stream:
        head = f"GET /ws HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: https://page.example\r\n"
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        stream.sendall(f"{head}Upgrade: websocket\r\nConnection: Upgrade\r\n{key}\r\n".encode())
        return stream.makefile().readline()


def test_the_engine_logs_to_the_logger_tidewire(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="tidewire")

    def found(words: str) -> list[logging.LogRecord]:
        return [record for record in caplog.records if words in record.getMessage()]

    with tidewire.Server(port=0, no_auth=True, log_level="info") as server:
        _, port = server.address
        until(lambda: bool(found(f"{LISTENING}{port}/ws")))
        assert " 403 " in refused_page(server)
        words = "origin https://page.example is not allowed; add it to the option origin"
        until(lambda: bool(found(words)))
    [record] = found(words)
    assert (record.name, record.levelno) == ("tidewire", logging.WARNING)
    assert record.engine_module == "tidewire_engine.shard.handshake"
    assert "address=127.0.0.1:" in record.getMessage()


def test_a_refused_host_names_the_option_of_python(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="tidewire")
    words = "host evil.example is not allowed; add it to the option allow_host"
    with tidewire.Server(port=0, no_auth=True, log_level="warn") as server:
        assert " 421 " in refused_page(server, host="evil.example")
        until(lambda: any(words in record.getMessage() for record in caplog.records))


def test_the_level_bounds_what_is_collected(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="tidewire")
    with tidewire.Server(port=0, no_auth=True, log_level="warn") as server:
        assert " 403 " in refused_page(server)
        until(lambda: any("is not allowed" in record.getMessage() for record in caplog.records))
    assert all(record.levelno >= logging.WARNING for record in caplog.records)
    with pytest.raises(
        tidewire.ConfigurationError, match="expected one of off, error, warn, info, debug, trace"
    ):
        tidewire.Server(port=0, no_auth=True, log_level="loud")
    tidewire.Server(port=0, no_auth=True, log_level="info")


def run(program: str) -> str:
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    return said.stderr


def test_a_program_without_logging_sees_warnings_and_one_with_it_everything() -> None:
    serve = "import tidewire\nwith tidewire.Server(port=0, no_auth=True, host='0.0.0.0'): pass\n"
    said = run(serve)
    assert "everybody who can reach 0.0.0.0:0 may connect without a token" in said
    assert "listening on" not in said
    said = run(
        "import logging\nlogging.basicConfig(level='INFO', format='%(name)s %(levelname)s %(message)s')\n"
        + serve
    )
    assert "tidewire INFO listening on ws://0.0.0.0:" in said


def test_what_a_handler_of_the_application_does_is_its_own_affair() -> None:
    program = """
import logging, tidewire
class Broken(logging.Filter):
    def filter(self, record):
        raise RuntimeError
logging.getLogger("tidewire").addFilter(Broken())
logging.getLogger("tidewire").setLevel("INFO")
with tidewire.Server(port=0, no_auth=True) as server:
    with tidewire.sync.connect(server.url) as client:
        client.ping()
"""
    assert "Traceback" not in run(program)


def test_handshakes_go_on_while_nobody_reads_the_standard_error() -> None:
    program = """
import logging, sys, tidewire
logging.basicConfig(level="DEBUG")
with tidewire.Server(port=0, no_auth=True, log_level="debug") as server:
    print(server.url, flush=True)
    sys.stdin.readline()
"""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", program], text=True, **pipes) as child:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        # Each has two lines, which are far more than the pipe has room for.
        for _ in range(1_000):
            with tidewire.sync.connect(url) as client:
                client.ping()
        child.kill()
