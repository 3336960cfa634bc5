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
