"""Clients of an application on its own port, under real ASGI servers."""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asgi_support import SERVERS, Application, environment
from async_client import AsyncClient, eventually, soon
from conftest import until
from websockets.exceptions import ConnectionClosed, InvalidStatus

FOLDER = Path(__file__).parent


@pytest.fixture(params=sorted(SERVERS))
def start(request, secret, tmp_path) -> Iterator[Callable[..., Application]]:
    """Starts the application of `asgi_app` with options for its engine."""
    running = []

    def start(**options: Any) -> Application:
        log = tmp_path / f"log-{len(running)}"
        running.append(
            Application(request.param, "asgi_app:app", FOLDER, log, **environment(secret, **options))
        )
        return running[-1]

    yield start
    for application in running:
        application.end()


async def refusal(application: Application, **options: Any) -> Any:
    with pytest.raises(InvalidStatus) as refused:
        async with AsyncClient(application.url(), **options):
            raise AssertionError
    return refused.value.response


async def closing(client: AsyncClient) -> tuple[int | None, str]:
    """How the connection ends."""
    try:
        while True:
            await client.hear()
    except ConnectionClosed as closed:
        return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (None, "")


@pytest.mark.parametrize("path", ["/ws", "/below/", "beside"])
def test_the_login_cookie_opens_the_connection_and_a_route_publishes(start, path) -> None:
    application = start()

    async def main() -> None:
        url = application.state()["url"] if path == "beside" else application.url(path)
        origin = f"http://127.0.0.1:{application.port}"
        async with AsyncClient(
            url,
            additional_headers=application.cookie("ann"),
            origin=None if path == "beside" else origin,
        ) as client:
            assert client.ready["p"]["details"]["user_id"] == "ann"
            await client.subscribe("news")
            assert application.http.post("/publish", json={"payload": {"n": 1}}).json() == {"connections": 1}
            assert (await client.until("news"))["p"] == {"n": 1}
            assert await client.request("double", 21) == {"payload": 42}

    asyncio.run(main())


def test_refusals_are_passed_on(start) -> None:
    application = start(connections_max=1, retry_after_s=7)

    async def main() -> None:
        response = await refusal(application)
        assert response.status_code == 401
        assert response.headers["WWW-Authenticate"] == "Bearer"
        cookie = application.cookie()
        response = await refusal(application, additional_headers=cookie, origin="http://elsewhere.example")
        assert (response.status_code, b"origin" in response.body) == (403, True)
        async with application.client():
            response = await refusal(application, additional_headers=cookie)
            assert (response.status_code, response.headers["Retry-After"]) == (503, "7")
        application.http.post("/stop")
        response = await refusal(application, additional_headers=cookie)
        assert response.status_code == 503
        assert "Retry-After" in response.headers

    asyncio.run(main())


def test_messages_of_every_kind_come_through(start) -> None:
    application = start()

    async def main() -> None:
        async with application.client(subprotocols=["first", "second"]) as client:
            assert client.socket.subprotocol == "first"
            for payload in ("", "\u00fc \U0001f30a \u0000", list(range(1000)), "x" * 1_000_000):
                await client.say("echo", payload)
                assert (await client.until("echo"))["p"] == payload
            await client.socket.send(b'{"t":"echo","p":"binary"}')
            assert (await client.until("echo"))["p"] == "binary"
            await client.socket.send(["{", '"t":"echo",', '"p":"in parts"}'])
            assert (await client.until("echo"))["p"] == "in parts"

    asyncio.run(main())


def test_the_query_reaches_the_engine(start) -> None:
    application = start()

    async def main() -> None:
        client = application.client("/ws?format=msgpack&unknown=%20")
        socket = await client._connection
        # The greeting is JSON in either format.
        assert "server_ready" in await soon(socket.recv())
        await socket.send('{"t":"ping"}')
        assert (await soon(socket.recv())).startswith(b"M:")
        await socket.close()

    asyncio.run(main())


def test_the_order_of_many_clients(start) -> None:
    application = start()
    clients, messages = 20, 50

    async def talk() -> list[int]:
        async with application.client() as client:
            for number in range(messages):
                await client.say("echo", number)
            return [(await client.until("echo"))["p"] for _ in range(messages)]

    async def main() -> list[list[int]]:
        return await soon(asyncio.gather(*(talk() for _ in range(clients))))

    assert asyncio.run(main()) == [list(range(messages))] * clients


def test_the_servers_close_reaches_the_client(start) -> None:
    application = start()

    async def main() -> None:
        async with application.client() as client:
            await client.say("close", [4001, "enough for today"])
            assert await closing(client) == (4001, "enough for today")
        async with application.client() as client:
            await client.say("echo", "x" * 2_000_000)
            assert (await closing(client))[0] == 1009

    asyncio.run(main())


def test_the_clients_close_reaches_the_server(start) -> None:
    application = start()

    async def main() -> None:
        async with application.client() as client:
            await client.socket.close(4005, "bye")
        assert await eventually(lambda: application.state()["ended"])
        async with application.client() as client:
            reset(client)
        await eventually(lambda: len(application.state()["ended"]) == 2)

    asyncio.run(main())
    first, second = application.state()["ended"]
    assert first == ["peer", 4005]
    # ASGI servers do not all tell an application that a client was lost: they say that it gave no code.
    assert second in (["lost", None], ["peer", None])


def reset(client: AsyncClient) -> None:
    """Ends a connection without a close, as when a cable is cut."""
    raw = client.socket.transport.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.transport.abort()


def test_the_end_of_the_engine_ends_the_connections(start) -> None:
    application = start()

    async def main() -> tuple[int | None, str]:
        async with application.client() as client:
            await asyncio.to_thread(application.http.post, "/stop")
            return await closing(client)

    assert asyncio.run(main())[0] in (1001, 1012, 4300)


def test_a_server_that_does_not_keep_up_holds_back_the_client(start) -> None:
    application = start(queue_bytes_max=100_000)
    # More than the buffers of the system take between the client and the engine.
    count = 2_000

    async def send(client: AsyncClient) -> None:
        for number in range(count):
            await client.say("wait", {"n": number, "filling": "x" * 100_000})

    async def hear(client: AsyncClient) -> list[int]:
        return [(await client.until("waited"))["p"] for _ in range(count)]

    async def main() -> list[int]:
        async with application.client(compression=None) as client:
            sending = asyncio.create_task(send(client))
            hearing = asyncio.create_task(hear(client))
            await eventually(lambda: client.socket.transport.get_write_buffer_size() > 0)
            assert not sending.done()
            assert application.state()["messages_delivered"] < count / 2
            await asyncio.to_thread(application.http.post, "/release")
            await asyncio.wait_for(sending, 120)
            return await asyncio.wait_for(hearing, 120)

    assert asyncio.run(main()) == list(range(count))


def test_the_application_ends_with_clients_connected(start) -> None:
    application = start()

    async def main() -> tuple[int | None, str]:
        async with application.client() as client:
            # uvicorn ends itself by the signal once it is done.
            assert await asyncio.to_thread(application.terminate) in (0, -signal.SIGTERM)
            return await closing(client)

    code, _ = asyncio.run(main())
    assert code in (None, 1001, 1012, 4300)
    until(lambda: application.process.returncode is not None)
    assert "Traceback" not in application.log.read_text()


def test_plain_http_at_the_endpoint_is_told_what_to_do(start) -> None:
    answer = start().http.get("/below/")
    assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
