"""The server that starts and stops with an application."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import tidewire
import tidewire.asgi
from asgi_support import SERVERS, Application
from async_client import AsyncClient
from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.testclient import TestClient

APPLICATION = """
import tidewire, tidewire.asgi

server = tidewire.Server(port={port}, no_auth=True)

@server.request("double")
def double(message):
    return message.payload * 2

app = {app}
"""


@pytest.fixture
def server() -> tidewire.Server:
    return tidewire.Server(port=0, no_auth=True)


async def stated(request: Any) -> JSONResponse:
    found = tidewire.asgi.get_server(request)
    return JSONResponse({"state": found.state, "own": getattr(request.state, "own", None)})


def test_the_server_runs_as_long_as_the_application(server) -> None:
    below = Starlette(routes=[Route("/", stated)])
    app = Starlette(
        lifespan=tidewire.asgi.lifespan(server), routes=[Route("/", stated), Mount("/below", below)]
    )
    with TestClient(app) as client:
        assert client.get("/").json()["state"] == "running"
        # Applications mounted below reach it, too.
        assert client.get("/below/").json()["state"] == "running"
    assert server.state == "stopped"


def test_the_applications_own_lifespan_is_inside(server) -> None:
    order = []

    @contextlib.asynccontextmanager
    async def own(app: Starlette) -> AsyncIterator[dict[str, Any]]:
        order.append(server.state)
        yield {"own": 5}
        order.append(server.state)

    app = Starlette(lifespan=tidewire.asgi.lifespan(server, around=own), routes=[Route("/", stated)])
    with TestClient(app) as client:
        assert client.get("/").json() == {"state": "running", "own": 5}
    assert order == ["running", "running"]
    assert server.state == "stopped"


def test_without_serving_the_program_receives_by_itself(server) -> None:
    app = Starlette(lifespan=tidewire.asgi.lifespan(server, serve=False))

    async def connect() -> None:
        async with AsyncClient(server.url):
            pass

    with TestClient(app):
        asyncio.run(connect())
        assert server.receive(1, 30_000)[0].kind == "connect"


def test_an_application_that_fails_stops_the_server(server) -> None:
    @contextlib.asynccontextmanager
    async def own(app: Starlette) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    with (
        pytest.raises(RuntimeError, match="no database"),
        TestClient(Starlette(lifespan=tidewire.asgi.lifespan(server, around=own))),
    ):
        raise AssertionError
    assert server.state == "stopped"


def test_there_is_no_server_without_the_lifespan() -> None:
    connection = HTTPConnection({"type": "http", "app": Starlette()})
    with pytest.raises(tidewire.StoppedError, match=r"lifespan=tidewire\.asgi\.lifespan"):
        tidewire.asgi.get_server(connection)


@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_the_endpoint_can_be_the_whole_application(kind, tmp_path) -> None:
    (tmp_path / "whole.py").write_text(
        APPLICATION.format(port=0, app="tidewire.asgi.WebSocketEndpoint(server)")
    )
    application = Application(kind, "whole:app", tmp_path, tmp_path / "log")

    async def main() -> None:
        async with AsyncClient(application.url("/any/path")) as client:
            assert await client.request("double", 21) == {"payload": 42}

    try:
        asyncio.run(main())
    finally:
        application.end()


@pytest.mark.parametrize(
    "app", ["tidewire.asgi.WebSocketEndpoint(server)", "FastAPI(lifespan=tidewire.asgi.lifespan(server))"]
)
def test_an_application_whose_port_is_taken_does_not_start(app, tmp_path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        source = "from fastapi import FastAPI\n" + APPLICATION.format(port=port, app=app)
        (tmp_path / "taken.py").write_text(source)
        with pytest.raises(AssertionError, match=str(port)):
            Application("uvicorn", "taken:app", tmp_path, tmp_path / "log")
