"""The client in threads."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import tidewire
from conftest import received

SECRET = "a secret of at least thirty-two bytes"

Serve = Callable[..., tidewire.Server]


def test_sends_and_receives(serve: Serve) -> None:
    server = serve(history={"kept.>": 100})
    with tidewire.sync.connect(server.url) as client:
        client.send({"id": 17}, type="order")
        assert received(server, 1, "message")[0].payload == {"id": 17}
        assert client.subscribe("kept.a").topics == ["kept.a"]
        result = client.publish("kept.a", {"n": 1}, type="tick")
        message = next(client)
        assert (message.type, message.payload, message.position) == ("tick", {"n": 1}, result.position)
        assert client.unsubscribe("kept.a").topics == ["kept.a"]
        assert client.presence("kept.a")["kept.a"].users == 0
        assert client.ping() > 0
        assert client.quality.answered == 1
    assert client.state == "closed"
    assert list(client) == []


def test_next_waits_as_long_as_it_is_told(serve: Serve) -> None:
    server = serve()
    with tidewire.sync.connect(server.url) as client:
        client.subscribe("plain")
        with pytest.raises(TimeoutError, match="no message came in time"):
            client.next(timeout=0)
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            client.next(timeout=0.05)
        assert time.monotonic() - started >= 0.05
        server.publish("plain", 1)
        server.publish("plain", 2)
        assert [client.next(timeout=60).payload, client.next().payload] == [1, 2]
    with pytest.raises(tidewire.StoppedError, match="closed"):
        client.next(timeout=60)


def test_two_threads_that_take_get_everything_once(serve: Serve) -> None:
    server = serve()
    seen: list[Any] = []
    with tidewire.sync.connect(server.url) as client:
        client.subscribe("plain")
        threads = [
            threading.Thread(target=lambda: seen.extend(message.payload for message in client))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        for start in range(0, 5_000, 50):
            server.publish_many("plain", range(start, start + 50))
        while len(seen) < 5_000:
            client.ping()
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(5_000))


def test_a_topic_that_is_not_given_is_an_error(serve: Serve) -> None:
    server = serve(topics_open=False)
    with (
        tidewire.sync.connect(server.url) as client,
        pytest.raises(tidewire.SubscriptionError, match="secret") as raised,
    ):
        client.subscribe(["secret", "not..valid"])
    reasons = raised.value.reasons
    assert reasons["secret"] == ("TOPIC_FORBIDDEN", "this topic is not allowed")
    assert reasons["not..valid"][0] == "INVALID_SUBSCRIPTION"
    assert "secret (TOPIC_FORBIDDEN: this topic is not allowed)" in str(raised.value)
    assert pickle.loads(pickle.dumps(raised.value)).reasons == reasons


def test_the_error_says_what_is_wrong_with_the_token() -> None:
    server = tidewire.Server(port=0, jwt_secret=SECRET)
    server.start()
    good = tidewire.jwt.encode({"sub": "ada", "exp": time.time() + 60}, SECRET)
    tokens = {
        "a token is needed": None,
        "the token is malformed": "not.a.token",
        "the token has expired": tidewire.jwt.encode({"sub": "ada", "exp": 1}, SECRET, check=False),
        "the token's signature is wrong": good[:-4] + "AAAA",
    }
    for words, token in tokens.items():
        with pytest.raises(tidewire.TokenError, match=words):
            tidewire.sync.connect(server.url, **({"token": token} if token else {}))
    server.stop()


def test_iterating_ends_with_the_close(serve: Serve) -> None:
    server = serve()
    client = tidewire.sync.connect(server.url)
    client.subscribe("a")
    seen: list[Any] = []

    def read() -> None:
        seen.extend(message.payload for message in client)

    thread = threading.Thread(target=read)
    thread.start()
    server.publish_many("a", list(range(500)))
    client.ping()
    client.close()
    thread.join()
    assert seen == list(range(500))


def test_from_many_threads(serve: Serve) -> None:
    server = serve()
    with tidewire.sync.connect(server.url) as client:

        def send(first: int) -> None:
            for number in range(first, first + 500):
                client.send(number, type="count")

        threads = [threading.Thread(target=send, args=(500 * index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        numbers = [message.payload for message in received(server, 2_000, "message")]
    assert sorted(numbers) == list(range(2_000))


def test_handlers(serve: Serve) -> None:
    server = serve()
    client = tidewire.sync.connect(server.url, wait=False)
    seen: list[Any] = []

    @client.on("*")
    def rest(message: tidewire.ClientMessage) -> None:
        seen.append(message.payload)
        if message.payload == 9:
            client.close()

    @client.on_request("double")
    def double(message: tidewire.ClientMessage) -> Any:
        return 2 * message.payload

    client.ready()
    client.subscribe("a")
    thread = threading.Thread(target=client.run)
    thread.start()
    (peer,) = received(server, 1, "connect")
    assert peer.connection.request(4, type="double") == 8
    server.publish_many("a", list(range(10)))
    thread.join()
    assert seen == list(range(10))


def test_refusals(serve: Serve) -> None:
    server = serve()
    with tidewire.sync.connect(server.url) as client:
        with pytest.raises(tidewire.InvalidArgumentError):
            client.send(1, type="ping")
        with pytest.raises(tidewire.WrongTypeError):
            client.send(object(), type="order")
        with pytest.raises(tidewire.InvalidArgumentError, match="queue"):
            client.send_acknowledged(type="order")
        with pytest.raises(tidewire.InvalidArgumentError):
            client.subscribe([])
        with pytest.raises(tidewire.WrongTypeError):
            client.subscribe([1])  # type: ignore[list-item]
        with pytest.raises(tidewire.InvalidArgumentError, match="priority"):
            client.send(priority=7, type="order")
        with pytest.raises(tidewire.InvalidArgumentError, match="overload"):
            client.subscribe("a", overload="sometimes")
        with pytest.raises(tidewire.InvalidArgumentError, match="hex"):
            client.subscribe("a", positions={"a": ("xyz", 1)})
        with pytest.raises(tidewire.CallError) as refused:
            client.publish("a.*", 1)
        assert refused.value.code == "INVALID_MESSAGE"


def test_before_it_is_opened() -> None:
    client = tidewire.connect("ws://127.0.0.1:9/ws")
    assert client.state == "new"
    assert repr(client) == "<tidewire.Client new>"
    with pytest.raises(tidewire.StoppedError, match="not started"):
        client.try_send(1, type="a")
