"""Messages of the application to clients: publications, subscriptions, history, presence."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import threading
import time
import uuid

import pytest
import tidewire
from conftest import received, until
from plain_client import PlainClient


def test_the_smallest_program(serve, secret) -> None:
    server = serve(jwt_secret=secret, client_subscribe_allow=["prices"], topics_open=None)
    token = sign(secret, sub="user-1")
    with PlainClient(server.url, token) as client:
        client.subscribe("prices")
        client.say("anything", {"x": 1})
        (message,) = received(server, 1, "message")
        assert message.user == "user-1"
        assert message.connection.user == "user-1"
        server.publish("prices", {"n": 1}, type="tick")
        tick = client.until("tick")
        assert (tick["p"], tick["c"], tick["tp"]) == ({"n": 1}, "U", "prices")
        assert client.subscribe("other")["failed_topics"] == ["other"]


def sign(secret: str, **claims: object) -> str:
    import jwt

    return jwt.encode({"exp": 4_000_000_000, **claims}, secret, algorithm="HS256")


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Trade:
    symbol: str
    price: decimal.Decimal


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        ([1, 2.5, "é", True], [1, 2.5, "é", True]),
        ((1, 2), [1, 2]),
        ({1: "a"}, {"1": "a"}),
        (datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc), "2026-01-02T03:04:05Z"),
        (datetime.datetime(2026, 1, 2, 3, 4, 5), "2026-01-02T03:04:05Z"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("12.50"), "12.50"),
        (Colour.RED, "red"),
        (Trade("T", decimal.Decimal("1.5")), {"symbol": "T", "price": "1.5"}),
        (b"\x00\xff", "AP8="),
        (bytearray(b"a"), "YQ=="),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        (tidewire.RawJson(b'{"raw": [1]}'), {"raw": [1]}),
    ],
)
def test_python_values_in_messages(serve, value, expected) -> None:
    server = serve()
    with PlainClient(server.url) as client:
        client.subscribe("a")
        server.publish("a", value, type="v")
        assert client.until("v")["p"] == expected


def test_pydantic_models(serve) -> None:
    pydantic = pytest.importorskip("pydantic")

    class Model(pydantic.BaseModel):
        when: datetime.date
        price: decimal.Decimal

    server = serve()
    with PlainClient(server.url) as client:
        client.subscribe("a")
        server.publish("a", Model(when="2026-01-02", price="1.50"), type="v")
        assert client.until("v")["p"] == {"when": "2026-01-02", "price": "1.50"}


@pytest.mark.parametrize(
    "value", [object(), {"a": object()}, {1}, [b"a"], float("nan"), "\ud800", tidewire.RawJson(b"{")]
)
def test_values_that_have_no_form_in_json(serve, value) -> None:
    with pytest.raises(tidewire.TidewireError) as raised:
        serve().publish("a", value)
    assert raised.value.fault == "caller"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"topic": "a..b"}, "empty segment"),
        ({"topic": "a", "type": ""}, "type"),
        ({"topic": "a", "type": "ping"}, "type"),
        ({"topic": "a", "priority": 2}, "1, 3, 5, 8 or 10"),
    ],
)
def test_wrong_arguments_of_publish(serve, arguments, words) -> None:
    server = serve()
    topic = arguments.pop("topic")
    with pytest.raises(tidewire.InvalidArgumentError, match=words):
        server.publish(topic, 1, **arguments)


def test_many_publications_in_one_order(serve) -> None:
    server = serve(rate_limit_capacity=0)
    with PlainClient(server.url) as client, PlainClient(server.url) as other:
        for each in (client, other):
            each.subscribe("a")
        threads = [
            threading.Thread(target=lambda: server.publish_many("a", range(500), type="n")),
            threading.Thread(target=lambda: [server.publish("a", n, type="n") for n in range(500)]),
        ]
        for thread in threads:
            thread.start()
        seen = [[each.until("n")["p"] for _ in range(1000)] for each in (client, other)]
        for thread in threads:
            thread.join()
    assert seen[0] == seen[1]
    assert sorted(seen[0]) == sorted([*range(500), *range(500)])


def test_history_positions_and_duplicates(serve) -> None:
    server = serve(history={"news": 2})
    first = server.publish("news", 1, id="one")
    again = server.publish("news", 1, id="one")
    assert (first.offset, first.duplicate) == (1, False)
    assert (again.offset, again.epoch, again.duplicate) == (1, first.epoch, True)
    assert "duplicate" in repr(again)
    assert server.publish_many("news", [2, 3], type="n") == 2
    page = server.history("news")
    assert [kept.payload for kept in page.publications] == [2, 3]
    assert (page.position, page.oldest, page.more) == ((first.epoch, 3), 2, False)
    last = server.history("news", limit=1, newest_first=True)
    assert [kept.payload for kept in last.publications] == [3]
    assert last.more
    assert server.publish("plain", 1).offset is None
    nothing = server.history("plain")
    assert (nothing.publications, nothing.position, nothing.oldest) == ([], None, None)
    with PlainClient(server.url) as client:
        position = {"news": {"epoch": first.epoch, "offset": 2}}
        answer = client.subscribe("news", recover=True, recovery=position)
        assert answer["recovery"]["news"]["recovered"] is True
        assert client.until("n")["p"] == 3
    assert server.forget_history("news")


def test_kept_publications_are_typed_and_still_mappings(serve) -> None:
    server = serve(history={"news": 10})
    server.publish("news", {"n": 1}, type="article", id="one")
    server.publish("news", {"n": 2}, type="state", snapshot=True)
    page = server.history("news")
    assert set(page) == {"epoch", "offset", "oldest", "publications", "more"}
    assert (page["offset"], page["publications"][0]["p"]) == (2, {"n": 1})
    article, state = page.publications
    assert (article.type, article.topic, article.id, article.category) == ("article", "news", "one", "update")
    assert (article.position, article["o"]) == ((page.epoch, 1), 1)
    assert (state.id, state.category, state.payload) == (None, "snapshot", {"n": 2})
    with pytest.raises(dataclasses.FrozenInstanceError):
        page.offset = 5
    with pytest.raises(KeyError, match="position"):
        page["position"]
    assert "n': 2" in repr(page)


def test_presence(serve, secret) -> None:
    server = serve(presence=["rooms.*"], jwt_secret=secret)
    with PlainClient(server.url, sign(secret, sub="ann")) as client:
        client.subscribe("rooms.1", presence={"mood": "good"})
        present = server.presence("rooms.1")
        assert present.members == [tidewire.PresentUser("ann", 1, {"mood": "good"})]
        assert present == {
            "users": 1,
            "connections": 1,
            "members": [{"user": "ann", "connections": 1, "data": {"mood": "good"}}],
        }
    until(lambda: server.presence("rooms.1").users == 0)


def test_users_and_connections(serve, secret) -> None:
    server = serve(jwt_secret=secret)
    tokens = [sign(secret, sub=user) for user in ("ann", "bob")]
    with PlainClient(server.url, tokens[0]) as ann, PlainClient(server.url, tokens[1]) as bob:
        connections = {message.user: message.connection for message in received(server, 2, "connect")}
        server.send_to_user("ann", 1, type="one")
        assert ann.until("one")["p"] == 1
        connections["bob"].send(2, type="two", priority=10)
        assert bob.until("two")["p"] == 2
        server.broadcast({"n": 3}, type="all")
        assert [each.until("all")["p"] for each in (ann, bob)] == [{"n": 3}] * 2
        server.broadcast_raw(json.dumps({"t": "raw"}))
        assert [each.until("raw")["t"] for each in (ann, bob)] == ["raw"] * 2
        server.subscribe_user("ann", "a")
        connections["bob"].subscribe("b")
        until(lambda: [info.topic for info in server.list_topics()] == ["a", "b"])
        assert [info.user for info in server.list_connections(topic="b")] == ["bob"]
        (info,) = server.list_connections(user="ann")
        assert (info.connection, info.user, info.topics) == (connections["ann"].id, "ann", 1)
        assert (info["connection"], info.format) == (connections["ann"].id, "json")
        server.publish("a", 5, type="five", exclude=connections["ann"])
        server.publish("a", 6, type="six")
        assert ann.until("six")["p"] == 6
        server.broadcast(7, type="seven", exclude=connections["bob"])
        server.broadcast(8, type="eight", exclude=connections.values())
        server.send_to_user("bob", 9, type="nine", exclude=[])
        server.broadcast(10, type="ten")
        for client, expected in ((ann, ["seven", "ten"]), (bob, ["nine", "ten"])):
            types: list[str] = []
            while types[-1:] != ["ten"]:
                types.append(client.hear()["t"])
            assert [type for type in types if type != "subscription_update"] == expected
        for sent in (
            lambda **given: server.broadcast(11, type="11", **given),
            lambda **given: server.publish("b", 11, type="11", **given),
            lambda **given: server.send_to_user("bob", 11, type="11", **given),
            lambda **given: connections["bob"].send(11, type="11", **given),
        ):
            sent(volatile=True)
            assert bob.until("11")["p"] == 11
            with pytest.raises(tidewire.WrongTypeError, match="volatile"):
                sent(volatile=1)
        for wrong in (7, ["ann"], connections):
            with pytest.raises(tidewire.WrongTypeError, match="exclude"):
                server.broadcast(1, exclude=wrong)
        server.unsubscribe_user("ann", "a")
        connections["bob"].unsubscribe("b")
        until(lambda: server.list_topics() == [])
        connections["bob"].close(4000, "enough")
        server.disconnect_user("ann")
        left = received(server, 2, "disconnect")
        assert {(message.user, message.close_code) for message in left} == {("ann", 1000), ("bob", 4000)}
    with pytest.raises(tidewire.InvalidArgumentError, match="code"):
        connections["bob"].close(999)
    connections["bob"].send(1)  # to nobody, without an error
    with pytest.raises(tidewire.InvalidArgumentError, match="hyphen"):
        server.disconnect("nonsense")


def test_a_connection_with_rules_of_its_own(serve) -> None:
    server = serve(topics_open=None)
    with PlainClient(server.url) as client:
        (connected,) = received(server, 1, "connect")
        assert client.subscribe("news.eu")["failed_topics"] == ["news.eu"]
        connected.connection.set_access(subscribe_allow=["news.>"], subscribe_deny=["news.secret"])
        connected.connection.send_raw('{"t":"told"}')
        client.until("told")
        answer = client.subscribe("news.eu", "news.secret")
        assert (answer["success_topics"], answer["failed_topics"]) == (["news.eu"], ["news.secret"])
        with pytest.raises(tidewire.InvalidArgumentError):
            connected.connection.set_access(subscribe_allow=["a..b"])


def test_the_server_asks_a_client(serve) -> None:
    server = serve()
    with PlainClient(server.url) as client:
        client.say("client_hello", {"protocol_version": 1, "features": {"calls": True}})
        client.until("server_hello")
        (connected,) = received(server, 1, "connect")
        answers: list[object] = []

        def ask() -> None:
            try:
                answers.append(connected.connection.request({"n": 1}, type="confirm", timeout_ms=20_000))
            except tidewire.CallError as error:
                answers.append(error)

        for answer in ({"payload": "yes"}, {"error": {"code": "NO", "message": "never"}}):
            thread = threading.Thread(target=ask)
            thread.start()
            asked = client.until("call_request")
            assert asked["p"]["payload"] == {"n": 1}
            client.say("call_response", answer, cid=asked["cid"])
            thread.join()
        assert answers[0] == "yes"
        assert isinstance(answers[1], tidewire.CallError)
        assert "NO" in str(answers[1])
        with pytest.raises(tidewire.CallTimeoutError) as raised:
            connected.connection.request(1, type="confirm", timeout_ms=1)
        assert isinstance(raised.value, TimeoutError)
    received(server, 1, "disconnect")
    with pytest.raises(tidewire.ConnectionClosedError):
        connected.connection.request(1, type="confirm")


def test_statistics(serve) -> None:
    server = serve()
    with PlainClient(server.url) as client:
        client.subscribe("a")
        server.publish("a", 1, type="n")
        client.until("n")
        deadline = time.monotonic() + 10
        # The server counts after it has written, which the client may have read before.
        while (statistics := server.statistics())["deliveries"] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert statistics["connections_open"] == 1
    assert statistics["deliveries"] == 1


def test_a_client_that_lags_does_not_get_what_is_volatile(serve) -> None:
    server = serve(no_auth=True, topics_open=True, outbox_bytes_max=256 << 20)
    with PlainClient(server.url) as slow, PlainClient(server.url) as quick:
        for client, topics in ((slow, ["filling", "a"]), (quick, ["a"])):
            client.say("subscription_update", {"action": "subscribe", "topics": topics})
            client.until("subscription_update")
        server.publish_many("filling", ["x" * 60_000] * 200, wait_ms=30_000)

        def is_skipped() -> bool:
            server.publish("a", 1, type="here", volatile=True)
            return bool(server.statistics()["deliveries_skipped"])

        until(is_skipped)
        assert quick.until("here")["p"] == 1
