"""Who may connect to the endpoint of an application, as the application decides it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import socket
import weakref
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import tidewire
import tidewire.asgi
import tidewire.testing
from asgi_support import SERVERS, Application
from async_client import AsyncClient
from conftest import until
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse
from starlette.websockets import WebSocketDisconnect
from tidewire._line_limit import LINES_PER_SECOND_MAX
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

ROOT = Path(__file__).parents[3]
CASES = json.loads((ROOT / "protocol/vectors/admissions.json").read_text())["cases"]

Authorize = Callable[[Any], Any]


class PortSocket:
    """A WebSocket of the server's own port, with the methods of one of Starlette's test client."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    def send_json(self, value: Any) -> None:
        self._socket.send(json.dumps(value))

    def receive_json(self) -> Any:
        try:
            return json.loads(self._socket.recv(timeout=30))
        except ConnectionClosed as closed:
            raise WebSocketDisconnect(closed.rcvd.code if closed.rcvd else 1006) from None


class PortClient:
    """Connects to the server's own port, as Starlette's test client does to the endpoint."""

    def __init__(self, server: tidewire.Server) -> None:
        self._server = server

    @contextlib.contextmanager
    def websocket_connect(self, path: str, headers: dict[str, str] | None = None) -> Iterator[PortSocket]:
        url = f"ws://127.0.0.1:{self._server.port}{path}"
        try:
            socket = connect(url, additional_headers=headers, proxy=None)
        except InvalidStatus as refused:
            status, body = refused.response.status_code, bytes(refused.response.body)
            answer_headers = list(refused.response.headers.raw_items())
            raise WebSocketDenialResponse(status, headers=answer_headers, content=body) from None
        with socket:
            yield PortSocket(socket)


@pytest.fixture(params=["endpoint", "port"])
def serving(request: Any) -> Iterator[Callable[..., tuple[tidewire.Server, Any]]]:
    """Starts an application whose endpoint asks this function, or a server that does at its own port."""
    with contextlib.ExitStack() as stack:

        def start(authorize: Authorize, **options: Any) -> tuple[tidewire.Server, Any]:
            timeout_ms = options.pop("opening_timeout_ms", 10_000)
            if "jwt_secret" not in options:
                options["no_auth"] = True
            server = tidewire.Server(port=0, shards=1, **options)
            if request.param == "port":
                server.authorize(timeout_ms=timeout_ms)(authorize)
                stack.enter_context(tidewire.testing.running(server))
                return server, PortClient(server)
            endpoint = tidewire.asgi.WebSocketEndpoint(
                server, authorize=authorize, opening_timeout_ms=timeout_ms
            )
            routes = [WebSocketRoute("/ws", endpoint)]
            app = Starlette(routes=routes, lifespan=tidewire.asgi.lifespan(server))
            return server, stack.enter_context(TestClient(app))

        yield start


def heard(socket: Any, kind: str) -> Any:
    while True:
        message = socket.receive_json()
        if message["t"] == kind:
            return message["p"]


def subscribed(socket: Any, topic: str) -> bool:
    socket.send_json({"t": "subscription_update", "p": {"action": "subscribe", "topics": [topic]}})
    return topic in heard(socket, "subscription_update")["success_topics"]


def refused(client: Any) -> Any:
    with pytest.raises(WebSocketDenialResponse) as denied, client.websocket_connect("/ws"):
        raise AssertionError
    return denied.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_authorize_returns_decides(serving: Any, caplog: Any, case: dict[str, Any]) -> None:
    _, client = serving(lambda scope: case["answer"])
    if case["status"] != 101:
        response = refused(client)
        assert response.status_code == case["status"]
        assert case.get("words", "") in response.text
        logged = 1 if case["status"] == 503 else 0
        # The client may be answered before the line is there.
        until(lambda: sum(record.levelno == logging.ERROR for record in caplog.records) == logged)
        return
    with client.websocket_connect("/ws") as socket:
        assert heard(socket, "server_ready")["details"].get("user_id") == case["user"]
        for topic in case.get("subscribed", []):
            assert heard(socket, "subscription_update")["success_topics"] == [topic]
        assert all(subscribed(socket, topic) for topic in case.get("allowed", []))
        assert not any(subscribed(socket, topic) for topic in case.get("forbidden", []))
        if "closed" in case:
            with pytest.raises(WebSocketDisconnect) as closed:
                heard(socket, "nothing of this kind")
            assert closed.value.code == case["closed"]


async def fails(scope: Any) -> Any:
    raise RuntimeError("no database")


async def is_late_itself(scope: Any) -> Any:
    raise TimeoutError("the database was too slow")


async def hangs(scope: Any) -> Any:
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("authorize", "words"),
    [
        (fails, "no database"),
        (is_late_itself, "the database was too slow"),
        (hangs, "has not answered in 0.2 s"),
        (lambda scope: {"user": "ann", "expires_at": datetime(2100, 1, 1)}, "needs a time zone"),
        (lambda scope: {"usr": "ann"}, "did you mean user"),
    ],
)
def test_a_client_comes_back_when_authorize_has_failed(
    serving: Any, caplog: Any, authorize: Authorize, words: str
) -> None:
    _, client = serving(authorize, opening_timeout_ms=200)
    response = refused(client)
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) > 0
    assert words in caplog.text


def test_of_many_failures_the_first_are_logged_one_by_one(serving: Any, caplog: Any) -> None:
    _, client = serving(fails)
    for _ in range(15):
        assert refused(client).status_code == 503
    assert "no database" in caplog.text
    assert caplog.text.count("Traceback") <= 2 * LINES_PER_SECOND_MAX
    until(lambda: refused(client) and "more clients cannot connect" in caplog.text)


def test_a_long_head_is_refused_by_the_engine(serving: Any) -> None:
    _, client = serving(lambda scope: True)
    headers = {"X-Long": "x" * 60_000}
    with (
        pytest.raises(WebSocketDenialResponse) as denied,
        client.websocket_connect("/ws", headers=headers),
    ):
        raise AssertionError
    assert denied.value.status_code == 431


def test_a_call_error_refuses_in_its_words(serving: Any, caplog: Any) -> None:
    async def authorize(scope: Any) -> Any:
        raise tidewire.CallError("members only", code="MEMBERS")

    _, client = serving(authorize)
    response = refused(client)
    assert (response.status_code, response.text.strip()) == (403, "members only")
    assert "authorize" not in caplog.text


def test_true_lets_the_token_decide(serving: Any, secret: str) -> None:
    server, client = serving(lambda scope: True, jwt_secret=secret)
    assert refused(client).status_code == 401
    headers = {"Authorization": f"Bearer {tidewire.testing.token(server, 'ann')}"}
    with client.websocket_connect("/ws", headers=headers) as socket:
        assert heard(socket, "server_ready")["details"]["user_id"] == "ann"


def test_what_is_attached_is_there_as_long_as_the_connection(serving: Any) -> None:
    class Session:
        pass

    kept: list[weakref.ref[Session]] = []

    def authorize(scope: Any) -> tidewire.asgi.Admission:
        session = Session()
        kept.append(weakref.ref(session))
        later = datetime.now(timezone.utc) + timedelta(hours=1)
        return {"user": "ann", "expires_at": later, "attachment": session}

    server, client = serving(authorize)
    seen: list[Any] = []

    @server.request("whose")
    def whose(message: tidewire.Message) -> str:
        seen.append(weakref.ref(message.connection.attachment))
        return type(message.connection.attachment).__name__

    for _ in range(3):
        with client.websocket_connect("/ws") as socket:
            socket.send_json({"t": "call_request", "cid": "1", "p": {"type": "whose", "payload": None}})
            assert heard(socket, "call_response")["payload"] == "Session"
    until(lambda: server.connections == 0)

    def is_dropped_with_the_next() -> bool:
        with client.websocket_connect("/ws"):
            gc.collect()
        return [ref() for ref in kept[:3]] == [None] * 3

    until(is_dropped_with_the_next)
    assert [ref() for ref in seen] == [None] * 3


def test_what_was_attached_to_a_refused_client_is_dropped(serving: Any, caplog: Any) -> None:
    class Session:
        pass

    kept: list[weakref.ref[Session]] = []
    answers: Iterator[Any] = iter(["", "ann", "ann"])

    def authorize(scope: Any) -> tidewire.asgi.Admission:
        session = Session()
        kept.append(weakref.ref(session))
        return {"user": next(answers, "ann"), "attachment": session}

    # The traceback of a line would keep it.
    caplog.set_level(logging.CRITICAL, logger="tidewire")
    _, client = serving(authorize)
    assert refused(client).status_code == 503

    def is_dropped() -> bool:
        with client.websocket_connect("/ws"):
            gc.collect()
        return kept[0]() is None

    until(is_dropped)


def test_the_scope_of_the_own_port_is_that_of_an_asgi_server(serving: Any) -> None:
    scopes: list[dict[str, Any]] = []

    def authorize(scope: Any) -> tidewire.asgi.Admission:
        scopes.append(scope)
        return {"user": HTTPConnection(scope).cookies["sid"]}

    _, client = serving(authorize)
    headers = {"Cookie": "a=1; sid=ann"}
    with client.websocket_connect("/ws?room=tea%20house&a=1", headers=headers) as socket:
        assert heard(socket, "server_ready")["details"]["user_id"] == "ann"
    [scope] = scopes
    connection = HTTPConnection(scope)
    assert connection.query_params["room"] == "tea house"
    assert connection.url.path == "/ws"
    assert (scope["type"], scope["scheme"], scope["subprotocols"]) == ("websocket", "ws", [])
    assert scope["client"][0] in ("127.0.0.1", "testclient")
    assert all(name == name.lower() for name, _ in scope["headers"])


def test_a_target_that_is_a_whole_url_has_its_path() -> None:
    scopes: list[dict[str, Any]] = []
    server = tidewire.Server(port=0, no_auth=True, shards=1)
    server.authorize(lambda scope: scopes.append(scope))
    with (
        tidewire.testing.running(server),
        socket.create_connection(("127.0.0.1", server.port), timeout=30) as client,
    ):
        client.sendall(
            b"GET ws://example.com/ws?a=1 HTTP/1.1\r\nHost: example.com\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert client.recv(12) == b"HTTP/1.1 403"
    assert [(scope["path"], scope["query_string"]) for scope in scopes] == [("/ws", b"a=1")]


def test_an_endpoint_without_a_function_of_its_own_asks_that_of_the_server() -> None:
    server = tidewire.Server(port=0, no_auth=True, shards=1)
    own = tidewire.asgi.WebSocketEndpoint(server, authorize=lambda scope: {"user": "by the endpoint"})
    routes = [
        WebSocketRoute("/ws", tidewire.asgi.WebSocketEndpoint(server)),
        WebSocketRoute("/own", own),
    ]

    @server.authorize
    async def authorize(scope: Any) -> Any:
        return {"user": "by the server"} if scope["query_string"] else None

    # A renewed server asks as the first one did.
    for _ in range(2):
        with TestClient(Starlette(routes=routes, lifespan=tidewire.asgi.lifespan(server))) as app:
            users = []
            for client, path in ((PortClient(server), "/ws?x"), (app, "/ws?x"), (app, "/own")):
                with client.websocket_connect(path) as socket:
                    users.append(heard(socket, "server_ready")["details"]["user_id"])
            assert users == ["by the server", "by the server", "by the endpoint"]
            assert refused(app).status_code == refused(PortClient(server)).status_code == 403


def test_a_client_that_waits_when_the_handlers_end_comes_back() -> None:
    asked = asyncio.Event()

    async def authorize(scope: Any) -> Any:
        asked.set()
        await asyncio.sleep(60)

    async def main() -> None:
        server = tidewire.Server(port=0, no_auth=True, shards=1)
        server.authorize(authorize)
        async with server:
            waiting = asyncio.create_task(asyncio.to_thread(refused, PortClient(server)))
            serving = asyncio.create_task(server.serve())
            await asyncio.wait_for(asked.wait(), 30)
            serving.cancel()
            assert (await waiting).status_code == 503

    asyncio.run(main())


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_nothing_that_authorize_raises_ends_the_server(
    serving: Any, caplog: Any, error: BaseException
) -> None:
    failures: list[BaseException] = [error]

    async def authorize(scope: Any) -> Any:
        if failures:
            raise failures.pop()
        return {"user": "ann"}

    _, client = serving(authorize)
    assert refused(client).status_code == 503
    until(lambda: "a client cannot connect" in caplog.text)
    with client.websocket_connect("/ws") as socket:
        assert heard(socket, "server_ready")["details"]["user_id"] == "ann"


def test_who_receives_in_a_loop_is_asked_too() -> None:
    async def main() -> None:
        server = tidewire.Server(port=0, no_auth=True, shards=1)
        server.authorize(lambda scope: {"user": "ann"})
        async with server:

            async def receive() -> list[str | None]:
                users = []
                async for message in server:
                    users.append(message.user)
                    if message.kind == "message":
                        break
                return users

            receiving = asyncio.create_task(receive())
            async with AsyncClient(server.url) as client:
                await client.say("hello")
                assert await asyncio.wait_for(receiving, 30) == ["ann"] * 2

    asyncio.run(main())


def test_authorize_is_registered_once_before_the_start() -> None:
    server = tidewire.Server(port=0, no_auth=True, shards=1)
    with pytest.raises(tidewire.WrongTypeError, match="authorize is a function that takes the ASGI scope"):
        server.authorize(5)  # type: ignore[type-var]
    with pytest.raises(tidewire.WrongTypeError, match="takes one argument"):
        server.authorize(lambda: True)  # type: ignore[misc, arg-type]
    server.authorize(lambda scope: True)
    with pytest.raises(tidewire.InvalidArgumentError, match="has an authorize already"):
        server.authorize(lambda scope: True)
    other = tidewire.Server(port=0, no_auth=True, shards=1)
    for wrong in (0, -5):
        with pytest.raises(tidewire.InvalidArgumentError, match="timeout_ms"):
            other.authorize(timeout_ms=wrong)
    with pytest.raises(tidewire.WrongTypeError, match="timeout_ms"):
        other.authorize(timeout_ms=2.5)  # type: ignore[call-overload]
    later = other.authorize(timeout_ms=1_000)
    with other:
        for register in (later, other.authorize):
            with pytest.raises(tidewire.StoppedError, match="comes before start"):
                register(lambda scope: True)


def test_a_session_of_starlette_is_enough() -> None:
    server = tidewire.Server(port=0, no_auth=True, shards=1)
    endpoint = tidewire.asgi.WebSocketEndpoint(
        server, authorize=lambda scope: {"user": scope["session"]["user"]} if scope["session"] else None
    )

    async def login(request: Request) -> PlainTextResponse:
        request.session["user"] = "ann"
        return PlainTextResponse("welcome")

    app = Starlette(
        lifespan=tidewire.asgi.lifespan(server),
        routes=[Route("/login", login, methods=["POST"]), WebSocketRoute("/ws", endpoint)],
        middleware=[Middleware(SessionMiddleware, secret_key="a secret")],
    )
    with TestClient(app) as client:
        assert refused(client).status_code == 403
        client.post("/login")
        with client.websocket_connect("/ws") as socket:
            assert heard(socket, "server_ready")["details"]["user_id"] == "ann"


ADDRESSES = """
import tidewire
import tidewire.asgi

server = tidewire.Server(port=0, no_auth=True)
app = tidewire.asgi.WebSocketEndpoint(server)

@server.request("address")
def address(message):
    return message.connection.address
"""


@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_the_engine_knows_the_address_of_the_client(kind: str, tmp_path: Path) -> None:
    (tmp_path / "addresses.py").write_text(ADDRESSES)
    application = Application(kind, "addresses:app", tmp_path, tmp_path / "log")

    async def main() -> None:
        async with AsyncClient(application.url()) as client:
            host, port = client.socket.local_address[:2]
            assert await client.request("address") == {"payload": [host, port]}

    try:
        asyncio.run(main())
    finally:
        application.end()


DJANGO = """
import tidewire
import tidewire.asgi
from django.conf import settings

settings.configure(
    SECRET_KEY="a secret", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
)

from django.core.asgi import get_asgi_application
from django.contrib.sessions.backends.signed_cookies import SessionStore
from django.http import HttpResponse, parse_cookie
from django.urls import path

def login(request):
    request.session["user"] = "ann"
    return HttpResponse("welcome")

urlpatterns = [path("login", login)]

async def authorize(scope):
    lines = [value for name, value in scope["headers"] if name == b"cookie"]
    cookies = parse_cookie(b"; ".join(lines).decode("latin-1"))
    session = SessionStore(cookies.get(settings.SESSION_COOKIE_NAME))
    user = await session.aget("user")
    return {"user": user} if user else None

server = tidewire.Server(port=0, no_auth=True)
endpoint = tidewire.asgi.WebSocketEndpoint(server, authorize=authorize)
site = get_asgi_application()

async def app(scope, receive, send):
    await (site if scope["type"] == "http" else endpoint)(scope, receive, send)
"""


@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_a_session_of_django_is_enough(kind: str, tmp_path: Path) -> None:
    (tmp_path / "site_of_django.py").write_text(DJANGO)
    application = Application(kind, "site_of_django:app", tmp_path, tmp_path / "log")

    async def main() -> None:
        answer = application.http.get("/login")
        cookies = "; ".join(f"{name}={value}" for name, value in answer.cookies.items())
        async with AsyncClient(application.url(), additional_headers={"Cookie": cookies}) as client:
            assert client.ready["p"]["details"]["user_id"] == "ann"

    try:
        asyncio.run(main())
    finally:
        application.end()
