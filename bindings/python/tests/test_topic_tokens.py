"""Subscription tokens: topics that a client has by a token of its own, in both clients."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Protocol

import pytest
import tidewire
from client_support import FAST, kinds, run

Serve = Callable[..., tidewire.Server]
USER = "user-1"
LONG_S = 7200
KEPT = {"rooms.>": 1000}


class AnyClient(Protocol):
    """The part of a client that the tests use."""

    async def subscribe(self, topics: Any, **options: Any) -> tidewire.Subscription: ...
    async def ping(self) -> float: ...
    async def event(self, *wanted: str) -> tidewire.ClientMessage: ...


class OnAsyncio:
    def __init__(self, client: tidewire.Client) -> None:
        self.subscribe = client.subscribe
        self.ping = client.ping
        self._client = client

    async def event(self, *wanted: str) -> tidewire.ClientMessage:
        return await kinds(self._client, *wanted)


class InThreads:
    def __init__(self, client: tidewire.sync.Client) -> None:
        self._client = client
        self._events = self._received()

    def _received(self) -> Iterator[tidewire.ClientMessage]:
        for batch in self._client.batches(timeout_ms=50):
            yield from batch

    def subscribe(self, topics: Any, **options: Any) -> Awaitable[tidewire.Subscription]:
        return asyncio.to_thread(self._client.subscribe, topics, **options)

    def ping(self) -> Awaitable[float]:
        return asyncio.to_thread(self._client.ping)

    def event(self, *wanted: str) -> Awaitable[tidewire.ClientMessage]:
        return asyncio.to_thread(lambda: next(message for message in self._events if message.kind in wanted))


Open = Callable[[tidewire.Server], contextlib.AbstractAsyncContextManager[AnyClient]]


@pytest.fixture(params=["asyncio", "threads"])
def opened(request: pytest.FixtureRequest, secret: str) -> Open:
    """Opens a client of each kind. Its user may subscribe to nothing."""
    options = {"token": token(secret, LONG_S), **FAST}

    @contextlib.asynccontextmanager
    async def on_asyncio(server: tidewire.Server) -> AsyncIterator[AnyClient]:
        async with tidewire.connect(server.url, **options) as client:
            yield OnAsyncio(client)

    @contextlib.asynccontextmanager
    async def in_threads(server: tidewire.Server) -> AsyncIterator[AnyClient]:
        client = await asyncio.to_thread(tidewire.sync.connect, server.url, **options)
        try:
            yield InThreads(client)
        finally:
            await asyncio.to_thread(client.close)

    return on_asyncio if request.param == "asyncio" else in_threads


@pytest.fixture
def server(serve: Serve, secret: str) -> tidewire.Server:
    """Nobody may subscribe to anything without a token."""
    return serve(jwt_secret=secret, jwt_leeway_s=0, topics_open=False, history=KEPT)


def token(secret: str, seconds: float, **claims: Any) -> str:
    return tidewire.jwt.encode({"sub": USER, "exp": int(time.time() + seconds), **claims}, secret)


def topic_token(secret: str, topic: str, seconds: float = LONG_S, **claims: Any) -> str:
    return token(secret, seconds, use="subscription", topic=topic, **claims)


def test_a_token_allows_its_topic_and_no_other(server: tidewire.Server, opened: Open, secret: str) -> None:
    async def main() -> None:
        tokens = {"rooms.7": topic_token(secret, "rooms.7"), "rooms.*": topic_token(secret, "rooms.*")}
        async with opened(server) as client:
            with pytest.raises(tidewire.SubscriptionError) as failure:
                await client.subscribe(["rooms.7"])
            assert failure.value.reasons["rooms.7"][0] == "TOPIC_FORBIDDEN"
            with pytest.raises(tidewire.SubscriptionError) as failure:
                await client.subscribe(["rooms.7", "rooms.*", "rooms.8"], tokens=tokens)
            assert failure.value.failed == ["rooms.8"]
            assert sorted(failure.value.subscription.topics) == ["rooms.*", "rooms.7"]
            server.publish("rooms.7", "hello")
            assert (await client.event("message")).payload == "hello"

    run(main())


def test_a_bad_token_fails_its_topic_with_the_reason(
    server: tidewire.Server, opened: Open, secret: str
) -> None:
    wrong = {
        "other": topic_token(secret, "rooms.7"),
        "forged": topic_token("f" * 64, "forged"),
        "garbage": "no.token.at.all",
        "mallory": topic_token(secret, "mallory", sub="mallory"),
        "session": token(secret, LONG_S),
        "late": tidewire.jwt.encode(
            {"sub": USER, "exp": 1_000, "use": "subscription", "topic": "late"}, secret, check=False
        ),
    }

    async def main() -> None:
        async with opened(server) as client:
            tokens = {**wrong, "good": topic_token(secret, "good")}
            with pytest.raises(tidewire.SubscriptionError) as failure:
                await client.subscribe(list(tokens), tokens=tokens)
            assert failure.value.subscription.topics == ["good"]
            codes = {topic: code for topic, (code, _) in failure.value.reasons.items()}
            assert codes.pop("late") == "TOKEN_EXPIRED"
            assert codes == dict.fromkeys(wrong.keys() - {"late"}, "TOKEN_REFUSED")

    run(main())


def test_a_function_is_asked_again_when_the_token_has_expired(
    server: tidewire.Server, opened: Open, secret: str
) -> None:
    asked: list[str] = []

    def token_of(topic: str) -> str:
        asked.append(topic)
        return topic_token(secret, topic, 4 if len(asked) == 1 else LONG_S)

    async def main() -> None:
        async with opened(server) as client:
            await client.subscribe("rooms.7", tokens=token_of)
            published = 0
            # What is published around the end of the first token arrives as well, in order and once.
            while len(asked) < 2 or published < 20:
                server.publish("rooms.7", published)
                published += 1
                await asyncio.sleep(0.05)
            got = [(await client.event("message", "subscription_lost")).payload for _ in range(published)]
            assert got == list(range(published))

    run(main())
    assert asked == ["rooms.7", "rooms.7"]


def test_subscribing_again_prolongs_a_subscription_before_it_ends(
    server: tidewire.Server, opened: Open, secret: str
) -> None:
    asked = []

    def token_of(topic: str) -> str:
        asked.append(topic)
        return topic_token(secret, topic, 3 if len(asked) == 1 else LONG_S)

    async def main() -> None:
        async with opened(server) as client:
            first_ends = time.time() + 3
            await client.subscribe("rooms.7", tokens=token_of)
            await client.subscribe("rooms.7", tokens=token_of)
            await asyncio.sleep(first_ends - time.time() + 1)
            server.publish("rooms.7", "after the first token")
            event = await client.event("message", "subscription_lost")
            assert event.payload == "after the first token"

    run(main())
    # A third call would be that of a subscription that has ended.
    assert len(asked) == 2


def test_a_subscription_is_lost_if_its_token_ends_and_there_is_no_other(
    server: tidewire.Server, opened: Open, secret: str
) -> None:
    async def main() -> None:
        tokens = {"rooms.7": topic_token(secret, "rooms.7", 4)}
        async with opened(server) as client:
            await client.subscribe("rooms.7", tokens=tokens)
            del tokens["rooms.7"]
            assert (await client.event("subscription_lost")).payload["topics"] == ["rooms.7"]
            # The application may have another token later.
            tokens["rooms.7"] = topic_token(secret, "rooms.7")
            assert (await client.subscribe("rooms.7", tokens=tokens)).topics == ["rooms.7"]

    run(main())


def test_a_new_connection_gets_new_tokens(server: tidewire.Server, opened: Open, secret: str) -> None:
    asked: list[str] = []

    def token_of(topic: str) -> str:
        asked.append(topic)
        return topic_token(secret, topic)

    async def main() -> None:
        async with opened(server) as client:
            await client.subscribe(["rooms.7", "rooms.8"], tokens=token_of)
            server.disconnect_user(USER, 4000)
            await client.event("disconnected")
            server.publish("rooms.7", "meanwhile")
            message = await client.event("message", "subscription_lost")
            assert (message.topic, message.payload) == ("rooms.7", "meanwhile")
            server.publish("rooms.8", "after")
            assert (await client.event("message", "subscription_lost")).payload == "after"

    run(main())
    assert sorted(asked) == ["rooms.7", "rooms.7", "rooms.8", "rooms.8"]


async def coroutine(_: str) -> str:
    return "never awaited"


def raising(_: str) -> str:
    raise RuntimeError("the vault is closed")


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (raising, "the vault is closed"),
        (coroutine, "def instead of async def"),
        (lambda _: 17, "the token is a text, not a int"),
        (lambda _: "\udc80", "not ASCII"),
        (lambda: "no argument", "takes 0 positional arguments"),
    ],
    ids=["raises", "coroutine", "number", "surrogate", "arguments"],
)
def test_a_function_that_fails_is_logged_and_fails_only_its_topic(
    server: tidewire.Server,
    opened: Open,
    caplog: pytest.LogCaptureFixture,
    function: Callable[..., Any],
    words: str,
) -> None:
    async def main() -> None:
        async with opened(server) as client:
            with pytest.raises(tidewire.SubscriptionError) as failure:
                await client.subscribe("rooms.7", tokens=function)
            assert failure.value.reasons["rooms.7"][0] == "TOPIC_FORBIDDEN"
            assert await client.ping() > 0

    run(main())
    [record] = [
        record for record in caplog.records if "no token for the topic rooms.7" in record.getMessage()
    ]
    assert (record.name, record.levelno) == ("tidewire", logging.ERROR)
    assert record.exc_info is not None
    assert words in str(record.exc_info[1])


def test_a_function_that_fails_later_loses_the_subscription(
    server: tidewire.Server, opened: Open, secret: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = 0

    def token_of(topic: str) -> str:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise RuntimeError("the vault is closed")
        return topic_token(secret, topic)

    async def main() -> None:
        async with opened(server) as client:
            await client.subscribe("rooms.7", tokens=token_of)
            server.disconnect_user(USER, 4000)
            assert (await client.event("subscription_lost")).payload["topics"] == ["rooms.7"]
            assert await client.ping() > 0

    run(main())
    assert asked == 2
    assert any("no token for the topic rooms.7" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("tokens", ["eyJhbGciOi", 17, ["eyJhbGciOi"]])
def test_tokens_are_a_dict_or_a_function(server: tidewire.Server, opened: Open, tokens: Any) -> None:
    async def main() -> None:
        async with opened(server) as client:
            with pytest.raises(tidewire.WrongTypeError, match="tokens are a dict from topics to tokens"):
                await client.subscribe("rooms.7", tokens=tokens)

    run(main())
