"""Python's websockets as the client of `tidewire serve`."""

import json
import random
import threading
import uuid

import pytest
from conftest import MESSAGE_BYTES_MAX
from websockets.exceptions import ConnectionClosed
from websockets.extensions.permessage_deflate import ClientPerMessageDeflateFactory
from websockets.sync.client import connect

SIZES = [0, 1, 125, 126, 127, 65_535, 65_536, 1 << 20, 15 << 20]


@pytest.fixture(params=["deflate", None], ids=["offered", "plain"])
def connection(request, echo):
    url, mode = echo
    with connect(url, compression=request.param, max_size=None) as connection:
        has_deflate = request.param == "deflate" and mode != "off"
        assert bool(connection.protocol.extensions) == has_deflate
        yield connection


@pytest.mark.parametrize("size", SIZES)
def test_text(connection, size):
    text = ("größe €\U0001f30a 0123456789 " * (size // 25 + 1))[: size // 2]
    connection.send(text)
    assert connection.recv() == text


@pytest.mark.parametrize("size", SIZES)
def test_binary(connection, size):
    data = random.Random(size).randbytes(size)
    connection.send(data)
    assert connection.recv() == data


def test_fragments(connection):
    connection.send(["", "grö", "", "ße", ""])
    connection.send([b"\x00", b"x" * 70_000, b""])
    assert connection.recv() == "größe"
    assert connection.recv() == b"\x00" + b"x" * 70_000


def test_ping(connection):
    assert connection.ping(b"").wait(10)
    assert connection.ping(bytes(range(125))).wait(10)
    connection.send("after")
    assert connection.recv() == "after"


def test_a_thousand_small_messages(connection):
    messages = [f"message {number}" * (number % 7) for number in range(1000)]
    sender = threading.Thread(target=lambda: [connection.send(message) for message in messages])
    sender.start()
    assert [connection.recv() for _ in messages] == messages
    sender.join()


@pytest.mark.parametrize("code, reason", [(1000, ""), (1001, "gone"), (3000, "ö" * 61), (4999, "x" * 123)])
def test_close(connection, code, reason):
    connection.send("last")
    assert connection.recv() == "last"
    connection.close(code, reason)
    assert connection.protocol.close_rcvd.code == code
    assert not connection.protocol.close_rcvd_then_sent


def test_a_message_past_the_limit(connection):
    with pytest.raises(ConnectionClosed) as closed:
        connection.send(bytes(MESSAGE_BYTES_MAX + 1))
        connection.recv()
    assert closed.value.rcvd.code == 1009


@pytest.mark.parametrize("server_no_context", [False, True])
@pytest.mark.parametrize("client_no_context", [False, True])
@pytest.mark.parametrize("server_bits, client_bits", [(None, None), (None, True), (9, 9), (12, True)])
def test_deflate_parameters(echo, server_no_context, client_no_context, server_bits, client_bits):
    url, mode = echo
    offer = ClientPerMessageDeflateFactory(server_no_context, client_no_context, server_bits, client_bits)
    with connect(url, compression=None, extensions=[offer], max_size=None) as connection:
        assert bool(connection.protocol.extensions) == (mode != "off")
        text = json.dumps([{"symbol": "TIDE", "price": price} for price in range(5000)])
        for message in [text, text, "", text[:3000], text]:
            connection.send(message)
            assert connection.recv() == message


def test_the_first_subprotocol_is_taken(echo):
    with connect(echo[0], subprotocols=["chat", "other"]) as connection:
        assert connection.subprotocol == "chat"


def test_version_1(version_1):
    with connect(version_1) as connection:
        ready = json.loads(connection.recv())
        assert (ready["c"], ready["t"], ready["v"]) == ("WSE", "server_ready", 1)
        details = ready["p"]["details"]
        assert uuid.UUID(details["connection_id"]).version == 7

        hello = {"client_version": "interop", "protocol_version": 1, "features": {"batching": False}}
        connection.send(json.dumps({"c": "WSE", "t": "client_hello", "cid": "1", "p": hello, "v": 1}))
        answer = json.loads(connection.recv())
        assert (answer["t"], answer["cid"]) == ("server_hello", "1")
        assert answer["p"]["protocol_version"] == 1
        assert answer["p"]["connection_id"] == details["connection_id"]
        assert answer["p"]["limits"]["max_message_size"] == 1 << 20

        connection.send(json.dumps({"t": "ping", "p": {"timestamp": 5}}))
        pong = json.loads(connection.recv())
        assert (pong["t"], pong["p"]["client_timestamp"]) == ("PONG", 5)

        trade = json.dumps({"t": "trade", "p": {"symbol": "TIDE", "text": "größe"}})
        connection.send(trade)
        assert connection.recv() == trade

        connection.send("no JSON")
        error = json.loads(connection.recv())
        assert (error["t"], error["p"]["code"]) == ("error", "INVALID_MESSAGE")
