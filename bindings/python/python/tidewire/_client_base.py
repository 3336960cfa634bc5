"""The common base of the clients on asyncio and in threads."""

from __future__ import annotations

import atexit
import contextlib
import inspect
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from . import _client_results as results
from ._client_options import Url, split_options
from ._completion import PublicNames
from ._json import MISSING
from ._native import ClientCore, ClientMessage
from ._refusals import HANDLER_ERROR, Refusal, log_error, refusal_of
from ._topic_tokens import TopicTokens, token_source
from .errors import ConnectionClosedError, InvalidArgumentError, TidewireError, WrongTypeError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._client_types import ClientOptions
    from ._native import ClientBatch, Ticket

Handler = Callable[[ClientMessage], Any]
F = TypeVar("F", bound=Callable[[ClientMessage], Any])
Topics = str | Iterable[str]

logger = logging.getLogger("tidewire")

HAPPENINGS = (
    "connected",
    "disconnected",
    "gap",
    "unrecovered",
    "subscription_lost",
    "presence_join",
    "presence_leave",
    "presence_update",
    "rate_limit_warning",
    "broker_update",
    "error",
    "uncertain",
    "expired",
    "queue_failed",
)
"""Kinds of messages that report events of the client."""

QUIET = (
    "connected",
    "presence_join",
    "presence_leave",
    "presence_update",
    "rate_limit_warning",
    "broker_update",
)
"""Those that are no reason for a warning if nobody handles them."""


class BaseClient(PublicNames):
    """A client's handlers and what is known of it."""

    def __init__(self, url: Url, **options: Unpack[ClientOptions]) -> None:
        """See `connect`."""
        plain, apart = split_options(url, options, ClientCore.option_names())
        self._core = ClientCore(plain, **apart)
        self._wait = bool(plain.get("wait", True))
        self._is_closing = False
        self._left = Received()
        self._receiving = threading.Lock()
        self._messages: dict[str, Handler] = {}
        self._requests: dict[str, Handler] = {}
        _cores.add(self._core)

    @property
    def state(self) -> str:
        """`new`, `connecting`, `connected`, `waiting` (for the next attempt) or `closed`."""
        return self._core.state

    @property
    def waiting_bytes(self) -> int:
        """Bytes that wait to be sent."""
        return self._core.waiting_bytes

    def try_send(
        self, payload: Any = MISSING, *, type: str = "message", priority: results.Priority = 5
    ) -> None:
        """`send` that does not wait.

        Raises:
            BusyError: There is no room for what waits to be sent.
        """
        self._core.try_send(type, payload, priority)

    def try_send_raw(self, message: str | bytes) -> None:
        """`send_raw` that does not wait.

        Raises:
            BusyError: There is no room for what waits to be sent.
        """
        self._core.try_send_raw(message)

    def on(self, name: str) -> Callable[[F], F]:
        """Registers a handler, a function that takes the message: for a type of messages; for what happens
        to the client, such as `connected`, `disconnected` or `gap`; or with `*` for all other types.

        Raises:
            InvalidArgumentError: The name has a handler already.
            WrongTypeError: It is no function of one argument.
        """
        return self._registrar(self._messages, name, "on")

    def on_request(self, name: str) -> Callable[[F], F]:
        """Registers the handler of what the server asks, by type, or with `*` of all other types. What it
        returns is the reply; to answer with an error, raise `CallError(words, code=...)`.

        Raises:
            InvalidArgumentError: The name has a handler already.
            WrongTypeError: It is no function of one argument.
        """
        return self._registrar(self._requests, name, "on_request")

    def _registrar(self, table: dict[str, Handler], name: str, decorator: str) -> Callable[[F], F]:
        if not isinstance(name, str):
            raise WrongTypeError(f'the type of messages is missing: write @client.{decorator}("type")')

        def register(function: F) -> F:
            _check_handler(function)
            if name in table:
                raise InvalidArgumentError(f"{name!r} has a handler already: {table[name]!r}")
            table[name] = function
            return function

        return register

    def _handler(self, message: ClientMessage) -> Handler | None:
        """The consumer of a message; `None` if it is for the iterator."""
        kind = message.kind
        if kind == "message":
            if not self._messages:
                return None
            return self._messages.get(message.type or "", self._messages.get("*"))
        if kind == "request":
            return self._requests.get(message.type or "", self._requests.get("*"))
        return self._messages.get(kind)

    def _abandon(self) -> None:
        """Closes the client without waiting for it."""
        self._is_closing = True
        self._core.close(1000, "")

    def _gone(self) -> ConnectionClosedError:
        """The reason for the end of a client that the application has not closed."""
        reason = self._core.reason()
        if isinstance(reason, ConnectionClosedError):
            return reason
        if isinstance(reason, TidewireError):
            return ConnectionClosedError(str(reason), code=reason.code, fault=reason.fault)
        return ConnectionClosedError("the client is closed")

    def _pass_over(self, message: ClientMessage) -> None:
        """Logs an event without a handler."""
        if message.kind == "request":
            message.fail("NOT_FOUND", f"nobody answers requests of the type {message.type}")
        is_quiet = self._is_closing or message.kind in QUIET
        level = logging.DEBUG if is_quiet else logging.WARNING
        logger.log(level, "%r", message)

    def _handled(self, message: ClientMessage, result: Any) -> None:
        """Handles the result of a handler."""
        if message.kind == "request":
            try:
                message.reply(result)
            except Exception as error:
                self._failed(message, error)

    def _failed(self, message: ClientMessage, error: BaseException) -> None:
        """Handles the exception of a handler: logs the traceback, and answers a call with an error."""
        refusal = refusal_of(error)
        if refusal is None:
            log_error("a handler failed with %r", message, error=error)
            refusal = Refusal(HANDLER_ERROR, "the handler failed")
        if message.kind != "request":
            return
        try:
            message.fail(refusal.code, refusal.text)
        except TidewireError as problem:
            logger.debug("the server was not told: %r", problem)

    def _subscribe(
        self,
        topics: Topics,
        *,
        recover: bool = True,
        positions: Mapping[str, results.Position] | None = None,
        replay: int = 0,
        presence: Mapping[str, Any] | None = None,
        queue_group: str | None = None,
        acknowledge: bool = False,
        window: int | None = None,
        filter: Mapping[str, Any] | None = None,
        overload: results.Overload | None = None,
        tokens: TopicTokens | None = None,
    ) -> Ticket:
        options = {
            "recover": recover,
            "positions": _pairs(positions),
            "replay": replay,
            "presence": presence,
            "queue_group": queue_group,
            "acknowledge": acknowledge,
            "window": window,
            "filter": filter,
            "overload": overload,
            "tokens": token_source(tokens),
        }
        return self._core.subscribe(topic_list(topics), options)

    @property
    def quality(self) -> results.Quality:
        """The quality of the connection, by the round trips of pings."""
        return results.Quality(*self._core.quality_figures())

    @property
    def endpoints(self) -> list[results.EndpointHealth]:
        """The health of each address."""
        return [results.EndpointHealth(*figures) for figures in self._core.endpoint_figures()]

    @property
    def queue(self) -> results.QueueDepth:
        """The messages that wait for an acknowledgement."""
        return results.QueueDepth(*self._core.queue_figures())

    def __repr__(self) -> str:
        if self.state in ("new", "closed"):
            return f"<tidewire.{type(self).__name__} {self.state}>"
        return f"<tidewire.{type(self).__name__} {self.state} quality={self.quality.score}>"


class Received:
    """Messages that were received together and that nobody has got yet.

    A message is made when somebody gets it, so that it is known of each whether the application has it. Several
    threads may take messages; each goes to one.
    """

    def __init__(self) -> None:
        self._batches: deque[Iterator[ClientMessage]] = deque()

    def __bool__(self) -> bool:
        """Whether there may be a message."""
        return bool(self._batches)

    def add(self, batch: ClientBatch) -> None:
        """Puts a batch behind the others."""
        if len(batch):
            self._batches.append(iter(batch))

    def take(self) -> ClientMessage | None:
        """The next message; `None` if there is none."""
        while True:
            try:
                batch = self._batches[0]
            except IndexError:
                return None
            message = next(batch, None)
            if message is not None:
                return message
            # Another thread may have found its end as well.
            with contextlib.suppress(ValueError):
                self._batches.remove(batch)


def topic_list(topics: Topics) -> list[str]:
    """One topic or several."""
    if isinstance(topics, str):
        return [topics]
    try:
        names = list(topics)
    except TypeError:
        raise WrongTypeError(f"topics are a text or several, not a {type(topics).__name__}") from None
    for name in names:
        if not isinstance(name, str):
            raise WrongTypeError(f"a topic is a text, not a {type(name).__name__}")
    return names


def publication(
    topic: str,
    payload: Any,
    *,
    type: str,
    id: str | None,
    key: str | None,
    ttl_ms: int | None,
    priority: results.Priority | None,
    exclude_self: bool,
    snapshot: bool,
) -> dict[str, Any]:
    """A publication as the native client takes it."""
    return {
        "topic": topic,
        "payload": payload,
        "type": type,
        "id": id,
        "key": key,
        "ttl_ms": ttl_ms,
        "priority": priority,
        "exclude_self": exclude_self,
        "snapshot": snapshot,
    }


def _pairs(positions: Mapping[str, results.Position] | None) -> list[tuple[str, results.Position]] | None:
    if positions is None:
        return None
    if not isinstance(positions, Mapping):
        raise WrongTypeError(f"positions are a dict, not a {type(positions).__name__}")
    return list(positions.items())


def as_messages(messages: ClientMessage | Iterable[ClientMessage]) -> list[ClientMessage]:
    """One message or several."""
    if isinstance(messages, ClientMessage):
        return [messages]
    try:
        return list(messages)
    except TypeError:
        raise WrongTypeError(f"messages are needed, not a {type(messages).__name__}") from None


def _check_handler(function: object) -> None:
    if not callable(function):
        raise WrongTypeError(f"a handler is a function that takes the message, not {function!r}")
    try:
        inspect.signature(function).bind(None)
    except ValueError:
        return
    except TypeError:
        raise WrongTypeError(f"a handler takes one argument, the message: {function!r} does not") from None


def _close_all() -> None:
    """Closes all clients at once; there is one deadline for all of them."""
    closing = []
    for core in list(_cores):
        if core.state in ("connected", "connecting", "waiting"):
            with contextlib.suppress(TidewireError):
                closing.append(core.close(1000, ""))
    deadline = time.monotonic() + CLOSE_AT_EXIT_S
    for ticket in closing:
        left_ms = max(0, round((deadline - time.monotonic()) * 1000))
        try:
            ticket.wait(left_ms)
        except TidewireError as error:
            logger.debug("a client was not closed: %r", error)


_cores: weakref.WeakSet[ClientCore] = weakref.WeakSet()
CLOSE_AT_EXIT_S = 2.0
# What waits to be sent is sent before the program ends. A forked process has no part in its parent's clients.
atexit.register(_close_all)
os.register_at_fork(after_in_child=ClientCore.forget_all)
