"""Messages for the application, and its answers."""

from __future__ import annotations

import json
import socket

import pytest
import tidewire
from conftest import received, until
from plain_client import PlainClient
from websockets.sync.client import connect


def test_the_first_payload_counts_and_a_broken_message_has_none(serve) -> None:
    server = serve(protocol="raw")
    with connect(server.url, proxy=None) as socket:
        socket.send('{"t":"a","payload":{"n":1},"p":{"n":2}}')
        socket.send('{"t":"a","p":{"n":1}')
        socket.send('{"t":"a","p":{"n":1},"z":')
        socket.send("[1]")
        twice, cut, broken, other = received(server, 4, "message")
    assert twice.json()["p"] == {"n": 2}
    assert twice.payload == {"n": 1}
    assert twice.payload is twice.payload
    for message in (cut, broken):
        with pytest.raises(tidewire.InvalidMessageError):
            _ = message.payload
    assert other.payload is None


def test_the_life_of_a_connection(serve) -> None:
    server = serve()
    with PlainClient(server.url) as client:
        client.say("chat", {"text": "hi"}, tp="rooms.1")
        connected, message = received(server, 2, "connect", "message")
        assert connected.kind == "connect"
        assert (connected.type, connected.payload, len(connected), connected.data) == (
            None,
            None,
            0,
            b"",
        )
        assert message.json() == {"t": "chat", "p": {"text": "hi"}, "tp": "rooms.1"}
        assert message.json() is message.json()
        assert message.payload == {"text": "hi"}
        assert (message.type, message.topic, message.user) == ("chat", "rooms.1", None)
        assert message.encoding == "text"
        assert isinstance(message.data, bytes)
        assert json.loads(message.data) == message.json()
        assert len(message) == len(message.data)
        assert message.connection == connected.connection
        assert hash(message.connection) == hash(connected.connection)
        assert message.connection.address == client.socket.local_address
        assert "message" in repr(message)
        assert message.connection.id in repr(message)
        client.socket.close(4321, "bye")
    (left,) = received(server, 1, "disconnect")
    assert (left.reason, left.close_code) == ("peer", 4321)
    assert left.connection == connected.connection


def test_a_lost_connection(serve) -> None:
    server = serve()
    client = PlainClient(server.url)
    client.socket.socket.shutdown(socket.SHUT_RDWR)
    (left,) = received(server, 1, "disconnect")
    assert (left.reason, left.close_code) == ("lost", None)


def test_data_outlives_its_batch(serve) -> None:
    server = serve()
    with PlainClient(server.url) as client:
        for number in range(100):
            client.say("n", number)
        kept = [message.data for message in received(server, 100, "message")]
    server.stop()
    assert [json.loads(bytes(data))["p"] for data in kept] == list(range(100))


def test_batches_are_split_and_keep_their_order(serve) -> None:
    server = serve()
    with PlainClient(server.url) as client:
        client.socket.send(b"".join([]))  # the connection is there
        for number in range(50):
            client.say("n", number)
        until(lambda: server.statistics()["messages_delivered"] >= 50)
        seen = []
        while len(seen) < 50:
            batch = server.receive(max_messages=7, timeout_ms=1000)
            assert 0 < len(batch) <= 7
            assert [m.kind for m in batch] == [batch[i].kind for i in range(len(batch))]
            assert batch[-1].json() == batch[len(batch) - 1].json()
            with pytest.raises(IndexError):
                batch[len(batch)]
            seen += [message.payload for message in batch if message.kind == "message"]
    assert seen == list(range(50))


def test_nothing_to_receive_is_an_empty_batch(serve) -> None:
    batch = serve().receive(timeout_ms=1)
    assert (len(batch), list(batch)) == (0, [])
    assert repr(batch) == "<tidewire.Batch of 0 messages>"
    with pytest.raises(IndexError):
        batch[0]


def test_plain_messages_of_any_client(serve) -> None:
    server = serve(protocol="raw", topics_open=None)
    with connect(server.url, proxy=None) as client:
        client.send("text")
        client.send(b"\xff\x00")
        text, binary = received(server, 2, "message")
        assert (text.data, text.encoding) == (b"text", "text")
        assert (binary.data, binary.encoding) == (b"\xff\x00", "binary")
        with pytest.raises(tidewire.InvalidMessageError, match="not JSON") as raised:
            text.json()
        assert raised.value.fault == "peer"
        with pytest.raises(tidewire.InvalidMessageError, match="binary"):
            binary.json()
        text.connection.send_raw("back")
        server.send_raw_many([(text.connection, binary.data), (text.connection, bytearray(b"\x01"))])
        server.send_raw_many((message, message) for message in (text, binary))
        seen = [client.recv(timeout=30) for _ in range(5)]
        assert seen == ["back", b"\xff\x00", b"\x01", "text", b"\xff\x00"]
        for wrong in ([("a", "b")], [(text,)], [text], 1):
            with pytest.raises((tidewire.WrongTypeError, TypeError, ValueError)):
                server.send_raw_many(wrong)


def test_messagepack_is_decoded_as_well(serve) -> None:
    server = serve()
    with PlainClient(server.url) as client:
        # {"t": "n", "p": [1, null, "é"]}
        client.socket.send(b"M:\x82\xa1t\xa1n\xa1p\x93\x01\xc0\xa2\xc3\xa9")
        (message,) = received(server, 1, "message")
    assert message.encoding == "msgpack"
    assert message.json() == {"t": "n", "p": [1, None, "é"]}
    assert message.type == "n"


def test_a_request_is_answered_once(serve) -> None:
    server = serve()
    with PlainClient(server.url) as client:
        client.say("call_request", {"type": "sum", "payload": [1, 2], "timeout_ms": 5000}, cid="a")
        (request,) = received(server, 1, "request")
        assert (request.type, request.payload, request.timeout_ms) == ("sum", [1, 2], 5000)
        assert request.json() == {"t": "sum", "p": [1, 2]}
        assert request.reply(3)
        assert not request.reply(4)
        assert client.until("call_response")["p"] == {"payload": 3}
        client.say("call_request", {"type": "sum"}, cid="b")
        (request,) = received(server, 1, "request")
        with pytest.raises(tidewire.InvalidArgumentError, match="code"):
            request.fail("", "")
        request.fail("NO_CLUE", "sorry")
        assert client.until("call_response")["p"] == {"error": {"code": "NO_CLUE", "message": "sorry"}}


def test_a_request_that_is_dropped_is_answered_as_failed(serve) -> None:
    server = serve()
    with PlainClient(server.url) as client:
        client.say("call_request", {"type": "sum"}, cid="a")
        received(server, 1, "request")
        assert client.until("call_response")["p"]["error"]["code"] == "HANDLER_ERROR"


def test_only_requests_are_replied_to(serve) -> None:
    server = serve()
    with PlainClient(server.url) as client:
        client.say("n", 1)
        (message,) = received(server, 1, "message")
        with pytest.raises(tidewire.InvalidArgumentError, match="request"):
            message.reply(1)
        with pytest.raises(tidewire.InvalidArgumentError, match="snapshot_request"):
            message.reply_snapshot("a", 1)


def test_snapshots_by_the_application(serve) -> None:
    server = serve(snapshot_requests=True)
    with PlainClient(server.url) as client:
        client.subscribe("state.a")
        client.say("sync_request", {"topics": ["state.a"], "include_snapshots": True}, c="S")
        (request,) = received(server, 1, "snapshot_request")
        assert request.topics == ["state.a"]
        assert request.payload["include_snapshots"] is True
        request.reply_snapshot("state.a", {"n": 1}, type="state")
        answer = client.until("state")
        assert (answer["c"], answer["p"]) == ("S", {"n": 1})


def test_a_full_queue_stops_the_senders_and_loses_nothing(serve) -> None:
    server = serve(queue_bytes_max=10_000, rate_limit_capacity=0)
    count, filling = 2_000, "x" * 5_000
    with PlainClient(server.url) as client:
        import threading

        def send() -> None:
            for number in range(count):
                client.say("n", [number, filling])

        thread = threading.Thread(target=send)
        thread.start()
        seen = []
        while len(seen) < count:
            seen += [message.payload[0] for message in server.receive(10, 1000) if message.kind == "message"]
        thread.join()
    assert seen == list(range(count))


def test_a_descriptor_tells_of_the_next_batch(serve) -> None:
    import select

    server = serve()
    assert server.arm()
    with PlainClient(server.url) as client:
        client.say("n", 1)
        assert select.select([server.fileno()], [], [], 30)[0]
        server.disarm()
        assert not select.select([server.fileno()], [], [], 0)[0]
        until(lambda: server.statistics()["messages_delivered"] == 1)
        assert not server.arm()
        received(server, 1, "message")
