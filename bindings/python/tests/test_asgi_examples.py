"""The examples of the repository, as they stand there."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import tidewire
from asgi_support import SERVERS, Application
from async_client import AsyncClient
from websockets.exceptions import InvalidStatus

FOLDER = Path(__file__).parents[3] / "examples" / "python"


@pytest.mark.parametrize("kind", sorted(SERVERS))
@pytest.mark.parametrize("module", ["fastapi_app", "starlette_app"])
def test_an_order_reaches_the_pages_of_those_who_logged_in(kind, module, tmp_path) -> None:
    application = Application(kind, f"{module}:app", FOLDER, tmp_path / "log")

    async def main() -> None:
        url = application.url("/ws")
        if module == "starlette_app":
            url = application.http.get("/live").json()["url"]
        with pytest.raises(InvalidStatus, match="401"):
            await AsyncClient(url).__aenter__()
        async with (
            AsyncClient(url, additional_headers=application.cookie("ann")) as ann,
            AsyncClient(url, additional_headers=application.cookie("bob")) as bob,
        ):
            for client in (ann, bob):
                assert (await client.subscribe("orders"))["success_topics"] == ["orders"]
            assert application.http.post("/orders", json={"article": "tea"}).json() == {"connections": 2}
            await ann.say("chat", "hello")
            for client in (ann, bob):
                assert (await client.until("order_created"))["p"] == {"article": "tea"}
                assert (await client.until("chat"))["p"] == {"user": "ann", "text": "hello"}

    try:
        asyncio.run(main())
        with_tidewires_own_client(application, module)
        if module == "fastapi_app":
            assert "<title>Orders" in application.http.get("/").text
    finally:
        application.end()


def with_tidewires_own_client(application: Application, module: str) -> None:
    url = application.url("/ws") if module == "fastapi_app" else application.http.get("/live").json()["url"]
    token = application.cookie("cem")["Cookie"].partition("=")[2]
    with tidewire.sync.connect(url, token=token) as client:
        client.subscribe("orders")
        application.http.post("/orders", json={"article": "rice"})
        message = next(client)
        assert (message.type, message.topic, message.payload) == (
            "order_created",
            "orders",
            {"article": "rice"},
        )
