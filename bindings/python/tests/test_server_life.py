"""How a server starts, what it is told, and how it ends."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import tidewire
from conftest import received, until
from plain_client import PlainClient
from tidewire.testing import running


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prot": 1}, "unknown option prot: did you mean port?"),
        ({"no_auht": True}, "did you mean no_auth?"),
        ({"port": "x", "no_auth": True}, "port: "),
        ({"port": 65536, "no_auth": True}, "port: "),
        ({"no_auth": "yes"}, "no_auth: "),
        ({}, "jwt_secret: a key is needed"),
        ({"no_auth": True, "message_bytes_max": -1}, "message_bytes_max: "),
        ({"no_auth": True, "client_subscribe_allow": ["a..b"]}, 'client_subscribe_allow: "a..b": '),
        ({"no_auth": True, "queue_bytes_max": "x"}, 'queue_bytes_max: "x": expected a whole number from 0'),
        ({"no_auth": True, "snapshot_requests": 1}, "snapshot_requests: 1: expected true or false"),
        ({"no_auth": True, "app": "echo"}, "unknown option app"),
        ({"no_auth": True, "history": {"a": object()}}, "no form in JSON"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, object], words: str) -> None:
    with pytest.raises(tidewire.TidewireError, match=re.escape(words)) as raised:
        tidewire.Server(**options)  # type: ignore[arg-type]
    assert raised.value.fault == "caller"


def test_a_short_secret_is_refused_at_the_start() -> None:
    server = tidewire.Server(port=0, jwt_secret="short")
    with pytest.raises(tidewire.ConfigurationError, match="32 bytes"):
        server.start()
    assert server.state == "new"


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = tidewire.Server(port=port, no_auth=True)
        with pytest.raises(tidewire.AddressError, match=f"cannot listen on 127.0.0.1:{port}") as raised:
            server.start()
    assert isinstance(raised.value, OSError)
    server.start()  # now that it is free
    assert server.port == port
    server.stop()


def test_what_a_server_says_of_itself() -> None:
    server = tidewire.Server(port=0, no_auth=True, path="/live")
    assert repr(server) == "<tidewire.Server new>"
    with pytest.raises(tidewire.StoppedError, match="call start"):
        _ = server.port
    with pytest.raises(tidewire.StoppedError, match="call start"):
        next(server.batches())
    with server:
        assert server.url == f"ws://127.0.0.1:{server.port}/live"
        assert server.address == ("127.0.0.1", server.port)
        assert server.ops_address is None
        assert repr(server) == f"<tidewire.Server {server.url} connections=0>"
    assert server.state == "stopped"
    with pytest.raises(tidewire.StoppedError):
        server.publish("a", 1)
    with pytest.raises(tidewire.StoppedError, match="started once"):
        server.start()
    server.stop()  # a second time does nothing


def test_batches_end_once_everything_was_received(serve) -> None:
    server = serve()
    with PlainClient(server.url) as client:
        for number in range(5):
            client.say("n", number)
        until(lambda: server.statistics()["messages_delivered"] == 5)
        server.stop()
    kinds = [message.kind for batch in server.batches() for message in batch]
    assert kinds == ["connect", *["message"] * 5, "disconnect"]


def test_a_thread_that_waits_lets_others_run(serve) -> None:
    server = serve()
    seen = threading.Event()

    def wait() -> None:
        received(server, 1, "message")
        seen.set()

    thread = threading.Thread(target=wait)
    thread.start()
    with PlainClient(server.url) as client:
        client.say("hello", None)
        assert seen.wait(30)
    thread.join()


def test_a_drain_sends_clients_away(serve) -> None:
    server = serve()
    with PlainClient(server.url) as client:
        assert server.connections == 1
        assert server.drain(timeout_ms=10_000) == 0
        assert client.until("reconnect")["p"]["after_ms"] >= 0
    assert server.state == "stopped"


def script(text: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_ctrl_c_is_heard_while_waiting() -> None:
    process = script(
        """
        import tidewire
        server = tidewire.Server(port=0, no_auth=True)
        server.start()
        try:
            print("ready", flush=True)
            for batch in server.batches(timeout_ms=3_600_000):
                pass
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)


def test_an_interpreter_that_ends_stops_its_servers() -> None:
    process = script(
        """
        import tidewire, threading
        server = tidewire.Server(port=0, no_auth=True)
        server.start()
        threading.Thread(target=lambda: list(server.batches()), daemon=True).start()
        """
    )
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == ("", "", 0)


def test_a_forked_process_has_no_server_and_ends() -> None:
    process = script(
        """
        import os, tidewire
        server = tidewire.Server(port=0, no_auth=True)
        server.start()
        child = os.fork()
        if child == 0:
            try:
                server.publish("a", 1)
            except tidewire.StoppedError as error:
                print("child:", error.code, flush=True)
            own = tidewire.Server(port=0, no_auth=True)
            own.start()
            print("child:", own.state, flush=True)
            own.stop()
            raise SystemExit(0)
        _, status = os.waitpid(child, 0)
        server.publish("a", 1)
        print("parent:", status, server.state, flush=True)
        """
    )
    out, err = process.communicate(timeout=30)
    assert (out, err) == ("child: STOPPED\nchild: running\nparent: 0 running\n", "")
    assert process.returncode == 0


def test_handlers_that_nobody_calls_are_told_of(monkeypatch, caplog) -> None:
    monkeypatch.setattr("tidewire._server.HANDLERS_IDLE_S", 0.01)
    server = tidewire.Server(port=0, no_auth=True)
    server.on("chat")(print)
    with server:
        until(lambda: any("nothing calls them" in record.message for record in caplog.records))
    caplog.clear()
    served = tidewire.Server(port=0, no_auth=True)
    served.on("chat")(print)
    with running(served), served:
        time.sleep(0.1)
    assert not [record for record in caplog.records if "nothing calls them" in record.message]
