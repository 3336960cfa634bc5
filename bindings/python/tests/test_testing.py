"""What a package offers to those who test their applications."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import tidewire
import tidewire.asgi
import tidewire.testing
from ports import free_port
from starlette.applications import Starlette
from starlette.routing import WebSocketRoute
from starlette.testclient import TestClient

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def server() -> tidewire.Server:
    server = tidewire.Server(
        port=0, jwt_secret=SECRET, client_subscribe_allow=["rooms.>"], history={"rooms.>": 10}
    )

    @server.request("say")
    def say(message: tidewire.Message) -> str:
        # The server of the module, as handlers use it.
        server.publish("rooms.a", message.payload, type="said")
        return str(message.user)

    return server


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_each_block_has_a_new_engine_with_the_same_handlers(server, user) -> None:
    for _ in range(2):
        with tidewire.testing.running(server), tidewire.testing.connect(server, user) as client:
            assert len(client.history("rooms.a").publications) == 0
            client.subscribe("rooms.a")
            assert client.request("hello", type="say") == user
            assert next(iter(client)).payload == "hello"
        assert server.state == "stopped"


def test_an_application_is_started_by_each_test_client(server) -> None:
    app = Starlette(
        lifespan=tidewire.asgi.lifespan(server),
        routes=[WebSocketRoute("/ws", tidewire.asgi.WebSocketEndpoint(server))],
    )
    for user in ("ann", "bob"):
        headers = {"Authorization": f"Bearer {tidewire.testing.token(server, user)}"}
        with TestClient(app) as client, client.websocket_connect("/ws", headers=headers) as socket:
            assert socket.receive_json()["p"]["details"]["user_id"] == user
            socket.send_json({"t": "call_request", "cid": "1", "p": {"type": "say", "payload": "hi"}})
            assert socket.receive_json()["p"]["payload"] == user


def test_a_server_itself_starts_once(server) -> None:
    with tidewire.testing.running(server):
        pass
    with pytest.raises(tidewire.StoppedError):
        server.start()


def test_a_token_needs_a_secret() -> None:
    server = tidewire.Server(port=0, no_auth=True)
    with pytest.raises(tidewire.InvalidArgumentError, match="jwt_secret"):
        tidewire.testing.token(server, "ann")
    with tidewire.testing.running(server), tidewire.testing.connect(server) as client:
        client.ping()


def test_the_fixtures_of_pytest(tmp_path: Path) -> None:
    Path(tmp_path, "test_it.py").write_text(
        """
import tidewire

server = tidewire.Server(port=0, no_auth=True)

@server.request("double")
def double(message):
    return message.payload * 2

def test_one(tidewire_run, tidewire_connect):
    assert tidewire_connect(tidewire_run(server)).request(2, type="double") == 4

def test_another(tidewire_run, tidewire_connect):
    assert tidewire_connect(tidewire_run(server)).request(3, type="double") == 6
"""
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tidewire.pytest_plugin",
        "-p",
        "no:cacheprovider",
        ".",
    ]
    # Where the package is installed, pytest would load its plugin under another name as well.
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr


APPLICATION = """
import tidewire, tidewire.asgi

server = tidewire.Server(port=0, no_auth=True{options})
app = tidewire.asgi.WebSocketEndpoint(server)
"""


@pytest.mark.parametrize(
    ("workers", "options", "warnings"), [(2, "", 1), (1, "", 0), (2, ", broker='redis://127.0.0.1:1'", 0)]
)
def test_a_second_worker_without_a_broker_is_told(
    tmp_path: Path, workers: int, options: str, warnings: int
) -> None:
    Path(tmp_path, "application.py").write_text(APPLICATION.format(options=options))
    command = [sys.executable, "-m", "uvicorn", "--host", "127.0.0.1", "--port", str(free_port())]
    process = subprocess.Popen(
        [*command, "--workers", str(workers), "application:app"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    try:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if sum("Application startup complete" in line for line in lines) == workers:
                break
    finally:
        process.terminate()
        lines += process.communicate()[1].splitlines()
    assert sum("not the only worker" in line for line in lines) == warnings, "".join(lines)
