"""Options of the client, good and bad, and what lies around its messages."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tidewire
from conftest import received, until
from option_examples import client_options
from tidewire._client_options import split_options
from tidewire._client_types import ClientOptions
from tidewire._native import ClientCore

CLIENT_OPTIONS = client_options()

Serve = Callable[..., tidewire.Server]


def test_the_keyword_arguments_are_those_of_the_table() -> None:
    keywords = {option["name"] for option in CLIENT_OPTIONS if option["keyword"]}
    assert set(ClientOptions.__annotations__) == keywords
    assert set(ClientCore.option_names()) == keywords


@pytest.mark.parametrize(
    "option",
    [
        option
        for option in CLIENT_OPTIONS
        if "default" in option and option["keyword"] and option["name"] != "wait"
    ],
    ids=lambda option: option["name"],
)
def test_a_default_given_is_the_default(option: dict[str, Any]) -> None:
    name = option["name"]
    beside: dict[str, Any] = {"offline_queue": ":memory:"} if name.startswith("queue_") else {}
    if name == "signature_version":
        beside = {"signature_secret": b"s" * 32}
    assert described({**beside, name: option["default"]}) == described(beside)
    assert described({**beside, name: option["example"]}) != described(beside)


def described(options: dict[str, Any]) -> str:
    plain, apart = split_options("ws://127.0.0.1:9/ws", options, ClientCore.option_names())
    return ClientCore(plain, **apart)._describe()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tokn": "a"}, "did you mean token"),
        ({"format": "xml"}, "json"),
        ({"connect_timeout_ms": -1}, "connect_timeout_ms"),
        ({"connect_timeout_ms": "soon"}, "connect_timeout_ms"),
        ({"outbox_bytes_max": 0}, "outbox_bytes_max"),
        ({"reconnect": 1}, "True or False"),
        ({"reconnect_delay": "never"}, "exponential"),
        ({"signature_secret": b"short"}, "32 bytes"),
        ({"signature_version": 3}, "1 or 2"),
        ({"server_identity": b"1"}, "65 bytes"),
        ({"headers": {"a": 1}}, "headers"),
        ({"tls_ca_file": "/nowhere.pem"}, "nowhere"),
    ],
)
def test_wrong_options_name_themselves(options: dict[str, Any], words: str) -> None:
    with pytest.raises((tidewire.ConfigurationError, tidewire.InvalidArgumentError), match=words) as wrong:
        tidewire.sync.connect("wss://127.0.0.1:9/ws", **options)
    assert wrong.value.fault == "caller"


@pytest.mark.parametrize("url", ["", "http://a", "ws://", [], [("ws://127.0.0.1:9", 0)], 7])
def test_wrong_addresses(url: Any) -> None:
    with pytest.raises(tidewire.TidewireError) as wrong:
        tidewire.sync.connect(url)
    assert wrong.value.fault == "caller"


@pytest.mark.parametrize("options", [{"token": 7}, {"signature_secret": 7}, {"server_identity": "x"}])
def test_wrong_types(options: dict[str, Any]) -> None:
    with pytest.raises(tidewire.WrongTypeError):
        tidewire.connect("ws://127.0.0.1:9/ws", **options)


def test_certificate_of_openssl(serve: Serve, tmp_path: Path) -> None:
    """It says that it is an authority, and is accepted where the user names exactly this one."""
    for name in ("ours", "other"):
        options = "-x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost"
        options += " -addext subjectAltName=DNS:localhost"
        files = ["-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.pem"]
        subprocess.run(["openssl", "req", *options.split(), *files], check=True, capture_output=True)
    server = serve(tls_certificate=tmp_path / "ours.pem", tls_key=tmp_path / "ours.key")
    url = server.url.replace("127.0.0.1", "localhost")
    with tidewire.sync.connect(url, tls_ca_file=tmp_path / "ours.pem") as client:
        client.send([1], type="x")
        assert received(server, 1, "message")[0].payload == [1]
    with pytest.raises(tidewire.ConnectionClosedError, match="certificate"):
        tidewire.sync.connect(url, tls_ca_file=tmp_path / "other.pem")


def test_nobody_there() -> None:
    with pytest.raises(tidewire.ConnectionClosedError) as refused:
        tidewire.sync.connect("ws://127.0.0.1:9/ws")
    assert refused.value.code == "CONNECT_FAILED"


@pytest.mark.parametrize(
    ("server_options", "client_options"),
    [
        ({}, {"format": "msgpack"}),
        ({}, {"compression": "zlib"}),
        ({"deflate": "shared"}, {"compression": "deflate"}),
        ({"encryption": "required"}, {"encryption": "on"}),
        ({"encryption": "required"}, {"encryption": "version-1", "format": "msgpack"}),
        (
            {"signature_secret": "s" * 32, "require_signatures": True},
            {"signature_secret": "s" * 32, "compression": "zlib"},
        ),
    ],
)
def test_layers(serve: Serve, server_options: dict[str, Any], client_options: dict[str, Any]) -> None:
    server = serve(**server_options)
    with tidewire.sync.connect(server.url, **client_options) as client:
        payload = {"text": "tidewire " * 500, "numbers": list(range(20))}
        client.send(payload, type="large")
        assert received(server, 1, "message")[0].payload == payload
        client.subscribe("a")
        server.publish("a", payload, type="tick")
        message = next(client)
        assert message.payload == payload
        assert (message.type, message.topic) == ("tick", "a")
        assert message.json()["p"] == payload
        expected = "msgpack" if client_options.get("format") == "msgpack" else "text"
        assert message.encoding == expected


def token(secret: str, seconds: float = 60) -> str:
    return tidewire.jwt.encode({"sub": "user-1", "exp": int(time.time() + seconds)}, secret)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"token_placement": "cookie"},
        {"token_placement": "query"},
        {"token_placement": "subprotocol", "token_name": "bearer."},
    ],
)
def test_tokens(serve: Serve, secret: str, options: dict[str, Any]) -> None:
    server = serve(jwt_secret=secret, token_query_parameter="token", token_subprotocol_prefix="bearer.")
    with tidewire.sync.connect(server.url, token=token(secret), **options):
        (message,) = received(server, 1, "connect")
        assert message.user == "user-1"
    with pytest.raises(tidewire.TokenError):
        tidewire.sync.connect(server.url, token=token(secrets.token_hex(32)), **options)


def test_a_function_gives_tokens(serve: Serve, secret: str) -> None:
    server = serve(jwt_secret=secret)
    asked: list[float] = []

    async def provide() -> str:
        asked.append(time.time())
        return token(secret, -60 if len(asked) == 1 else 60)

    with tidewire.sync.connect(server.url, token=provide, wait=False, reconnect_base_ms=10) as client:
        client.ready()
        assert len(asked) == 2

    def broken() -> str:
        raise RuntimeError("the vault is closed")

    with pytest.raises(tidewire.ConnectionClosedError, match="the vault is closed"):
        tidewire.sync.connect(server.url, token=broken)


def test_the_next_address_takes_over(serve: Serve) -> None:
    first, second = serve(), serve()
    urls = [("ws://127.0.0.1:9/ws", 1), (first.url, 1), (second.url, 1)]
    options: Any = {"choice": "round_robin", "reconnect_base_ms": 10, "reconnect_max_ms": 50}
    with tidewire.sync.connect(urls, **options) as client:
        assert first.connections == 1
        first.stop()
        until(lambda: second.connections == 1)
        client.ready()
        scores = {endpoint.url: endpoint.score for endpoint in client.endpoints}
        assert scores["ws://127.0.0.1:9/ws"] < scores[second.url]
