"""Handlers with schemas, and middleware around them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import tidewire
from async_client import AsyncClient
from async_support import serving
from pydantic import BaseModel, PositiveInt, TypeAdapter
from typing_extensions import TypedDict


class Order(BaseModel):
    article: str
    count: PositiveInt


class Point(TypedDict):
    x: int
    y: int


class OddError(ValueError):
    def errors(self) -> str:
        return "not those of pydantic"


def even(payload: Any) -> int:
    if not isinstance(payload, int) or payload % 2:
        raise OddError("an even number is needed")
    return payload


def test_a_handler_with_a_schema_gets_the_checked_payload(serve) -> None:
    server = serve()

    @server.on("order", schema=Order)
    async def order(message: tidewire.Message, order: Order) -> None:
        message.connection.send({"article": order.article, "count": order.count}, type="ordered")

    @server.request("price", schema=Order)
    def price(message: tidewire.Message, order: Order) -> int:
        return order.count * 350

    @server.request("sum", schema=TypeAdapter(list[int]))
    async def add(message: tidewire.Message, numbers: list[int]) -> int:
        return sum(numbers)

    @server.request("distance", schema=Point)
    def distance(message: tidewire.Message, point: Point) -> int:
        return point["x"] + point["y"]

    @server.request("half", schema=even)
    def half(message: tidewire.Message, number: int) -> int:
        return number // 2

    async def main() -> None:
        async with serving(server), AsyncClient(server.url) as client:
            await client.say("order", {"article": "tea", "count": "3", "more": True})
            assert (await client.until("ordered"))["p"] == {"article": "tea", "count": 3}
            assert await client.request("price", {"article": "tea", "count": 2}) == {"payload": 700}
            assert await client.request("sum", [1, 2]) == {"payload": 3}
            assert await client.request("distance", {"x": 1, "y": 2}) == {"payload": 3}
            assert await client.request("half", 4) == {"payload": 2}
            await client.say("order", {"count": 0}, cid="7")
            refused = await client.until("error")
            assert refused["cid"] == "7"
            assert refused["p"]["code"] == "INVALID_PAYLOAD"
            article, count = refused["p"]["message"].split("; ")
            assert article.startswith("article: ")
            assert count.startswith("count: ")
            wrong = await client.request("sum", ["a", "b", "c", "d"])
            assert wrong["error"]["message"].endswith("; 1 more")
            wrong = await client.request("half", 3)
            assert wrong["error"] == {"code": "INVALID_PAYLOAD", "message": "an even number is needed"}
        statistics = server.handler_statistics()
        assert (statistics.refused, statistics.errors) == (3, 0)

    asyncio.run(main())


def test_middleware_is_around_every_handler_of_messages_and_requests(serve) -> None:
    server = serve()
    seen: list[str] = []

    @server.on("early")
    def early(message: tidewire.Message) -> None:
        seen.append("early")

    @server.use
    async def first(message: tidewire.Message, call_next: Any) -> Any:
        seen.append(f"first {message.type}")
        return await call_next()

    @server.use
    async def second(message: tidewire.Message, call_next: Any) -> Any:
        if isinstance(message.payload, dict) and message.payload.get("secret"):
            raise tidewire.CallError("not you", code="NO")
        await asyncio.sleep(0)
        result = await call_next()
        seen.append(f"after {message.type}")
        return [result] if message.kind == "request" else result

    @server.on("connect")
    def connected(message: tidewire.Message) -> None:
        seen.append("connect")

    @server.request("double")
    async def double(message: tidewire.Message) -> int:
        return 2 * int(message.payload)

    @server.on("*")
    async def rest(message: tidewire.Message) -> None:
        seen.append(f"rest {message.type}")

    async def main() -> None:
        async with serving(server), AsyncClient(server.url) as client:
            await client.say("early")
            await client.say("other")
            assert await client.request("double", 21) == {"payload": [42]}
            assert seen == [
                *("connect", "first early", "early", "after early"),
                *("first other", "rest other", "after other", "first double", "after double"),
            ]
            await client.say("early", {"secret": True})
            assert (await client.until("error"))["p"]["code"] == "NO"
            assert seen[-1] == "first early"

    asyncio.run(main())


def test_what_is_no_schema_and_no_middleware_is_refused(serve) -> None:
    server = serve()
    with pytest.raises(tidewire.WrongTypeError, match="two arguments, the message and the payload"):
        server.on("a", schema=Order)(lambda message: None)
    with pytest.raises(tidewire.WrongTypeError, match="pydantic knows no schema for 5"):
        server.on("a", schema=5)(lambda message, payload: None)

    async def later(payload: Any) -> Any:
        return payload

    with pytest.raises(tidewire.WrongTypeError, match="a schema returns the value at once"):
        server.on("a", schema=later)(lambda message, payload: None)
    with pytest.raises(tidewire.WrongTypeError, match="async def"):
        server.use(lambda message, call_next: None)

    async def of_one_argument(message: tidewire.Message) -> None: ...

    with pytest.raises(tidewire.WrongTypeError, match="two arguments, the message and call_next"):
        server.use(of_one_argument)  # type: ignore[type-var]


class Said(BaseModel):
    text: str


class Rooms:
    """A reader of `rooms.tea`, and a writer of a server with open topics."""

    def __init__(self, reader: AsyncClient, writer: AsyncClient) -> None:
        self.reader = reader
        self.writer = writer
        self._number = 0

    async def publish(self, type: str, payload: Any, topic: str = "rooms.tea", **fields: Any) -> str:
        """The type of the answer, or the code of the refusal."""
        self._number += 1
        cid = str(self._number)
        await self.writer.say(
            "publish_request", {"topic": topic, "type": type, "payload": payload, **fields}, cid=cid
        )
        while True:
            answer = await self.writer.hear()
            if answer.get("cid") == cid:
                return str(answer["p"]["code"] if answer["t"] == "error" else answer["t"])


OPEN = {"client_subscribe_allow": [">"], "client_publish_allow": [">"]}


def test_a_handler_of_a_topic_decides_about_what_clients_publish_to_it(serve) -> None:
    server = serve(**OPEN)
    seen: list[Any] = []

    @server.use
    async def noted(message: tidewire.Message, call_next: Any) -> Any:
        seen.append(f"{message.kind} {message.topic}")
        return await call_next()

    @server.on_publish("rooms.*", schema=Said)
    async def said(message: tidewire.Message, said: Said) -> str:
        with pytest.raises(tidewire.InvalidArgumentError):
            message.reply(1)
        if said.text == "rude":
            raise tidewire.CallError("be kind", code="RUDE")
        if said.text == "fails":
            raise RuntimeError("secret")
        if said.text == "loud":
            message.replace({"text": said.text.upper()})
        await asyncio.sleep(0)
        return "what a handler returns does not matter"

    @server.on_publish("images")
    def image(message: tidewire.Message) -> None:
        seen.append([message.type, message.payload, message.json()["tp"]])
        message.replace(b"\3\4")

    @server.on("say")
    def say(message: tidewire.Message) -> None:
        seen.append("say")
        with pytest.raises(tidewire.InvalidArgumentError):
            message.replace(1)

    async def main() -> None:
        async with serving(server), AsyncClient(server.url) as reader, AsyncClient(server.url) as writer:
            await reader.subscribe("rooms.tea")
            rooms = Rooms(reader, writer)
            assert await rooms.publish("said", {"text": "hello", "more": 1}) == "publish_response"
            told = await reader.until("said")
            assert (told["p"], told["tp"]) == ({"text": "hello", "more": 1}, "rooms.tea")
            assert await rooms.publish("said", {"text": "loud"}) == "publish_response"
            assert (await reader.until("said"))["p"] == {"text": "LOUD"}
            assert await rooms.publish("said", {"text": "rude"}) == "RUDE"
            assert await rooms.publish("said", {"text": 7}) == "INVALID_PAYLOAD"
            assert await rooms.publish("said", {"text": "fails"}) == "HANDLER_ERROR"
            assert await rooms.publish("said", {}, "halls.tea") == "publish_response"
            await writer.say("say")
            assert await rooms.publish("image", "AQI=", "images", binary=True) == "publish_response"
            assert await rooms.publish("said", {"text": "last"}) == "publish_response"
            assert (await reader.until("said"))["p"]["text"] == "last", "nobody got what was refused"

    asyncio.run(main())
    assert seen[:5] == ["publication rooms.tea"] * 5
    assert seen[5:8] == ["message None", "say", "publication images"]
    assert seen[8] == ["image", b"\1\2", "images"]
    statistics = server.handler_statistics()
    assert (statistics.handled, statistics.refused, statistics.errors) == (5, 2, 1)


def test_the_client_of_a_refused_publication_gets_its_code(serve) -> None:
    server = serve(**OPEN)
    seen: list[Any] = []

    @server.on_publish("rooms.*")
    def said(message: tidewire.Message) -> None:
        seen.append(message.payload)
        if message.payload == "rude":
            raise tidewire.CallError("be kind", code="RUDE")

    async def main() -> None:
        async with serving(server), tidewire.connect(server.url) as client:
            await client.publish("rooms.tea", "kind")
            with pytest.raises(tidewire.CallError, match="be kind") as raised:
                await client.publish("rooms.tea", "rude")
            assert raised.value.code == "RUDE"
            await client.publish("rooms.tea", "again")

    asyncio.run(main())
    assert seen == ["kind", "rude", "again"]


def test_middleware_that_does_not_go_on_refuses_a_publication(serve) -> None:
    server = serve(**OPEN)
    seen: list[Any] = []

    @server.use
    async def guarded(message: tidewire.Message, call_next: Any) -> Any:
        return await call_next() if message.payload != "secret" else None

    @server.on_publish("rooms.*")
    def said(message: tidewire.Message) -> None:
        seen.append(message.payload)

    async def main() -> None:
        async with serving(server), AsyncClient(server.url) as client:
            rooms = Rooms(client, client)
            assert await rooms.publish("said", "secret") == "TOPIC_FORBIDDEN"
            assert await rooms.publish("said", "open") == "publish_response"

    asyncio.run(main())
    assert seen == ["open"]
    assert server.handler_statistics().refused == 1


def test_the_first_pattern_that_fits_decides_also_in_the_next_run(serve) -> None:
    server = serve(**OPEN)
    seen: list[str] = []

    @server.on_publish("rooms.tea")
    def tea(message: tidewire.Message) -> None:
        seen.append("tea")

    @server.on_publish("rooms.>")
    def rooms_of_all(message: tidewire.Message) -> None:
        seen.append("rooms")

    async def main() -> None:
        async with serving(server), AsyncClient(server.url) as client:
            rooms = Rooms(client, client)
            assert await rooms.publish("a", 1) == "publish_response"
            assert await rooms.publish("a", 1, "rooms.cake") == "publish_response"

            @server.on_publish("a.*")
            def later(message: tidewire.Message) -> None:
                seen.append("later")

            assert await rooms.publish("a", 1, "a.b") == "publish_response"

    asyncio.run(main())
    assert seen == ["tea", "rooms", "later"]
    # Each test of an application starts a new engine with the same handlers.
    server._renew()
    server.start()

    async def again() -> None:
        async with serving(server), AsyncClient(server.url) as client:
            assert await Rooms(client, client).publish("a", 1) == "publish_response"

    asyncio.run(again())
    assert seen[-1] == "tea"


def test_what_is_no_topic_or_has_a_handler_is_refused() -> None:
    server = tidewire.Server(no_auth=True)
    server.on_publish("rooms.tea")(print)
    with pytest.raises(tidewire.InvalidArgumentError, match="already"):
        server.on_publish("rooms.tea")(print)
    with pytest.raises(tidewire.InvalidArgumentError):
        server.on_publish("a..b")(print)
    with pytest.raises(tidewire.WrongTypeError, match="topic is missing"):
        server.on_publish(print)
    with pytest.raises(tidewire.WrongTypeError):
        server.on_publish("a")(7)
