"""Handlers: what is called for which message, and what becomes of it when one fails."""

from __future__ import annotations

import inspect
import logging
import secrets
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

import orjson

from ._line_limit import LineLimit
from ._refusals import HANDLER_ERROR, is_interrupt, log_error, refusal_of
from .errors import InvalidArgumentError, TidewireError, WrongTypeError

if TYPE_CHECKING:
    from ._native import Message

Function = Callable[["Message"], Any]
Middleware = Callable[["Message", Callable[[], Awaitable[Any]]], Awaitable[Any]]

EVENTS = ("connect", "disconnect", "snapshot_request")
"""Names that stand for what happens to a connection instead of a type of messages."""

REST = "*"
"""Stands for every type that has no handler of its own."""

logger = logging.getLogger("tidewire")


@dataclass(frozen=True)
class HandlerStatistics:
    """The counts of the handlers since the server was created.

    Attributes:
        handled: Messages whose handler came to its end.
        errors: Messages whose handler raised, took too long, or returned what cannot be sent.
        timeouts: Those of `errors` that took too long.
        refused: Messages that a handler refused by raising `CallError`.
        unrouted: Messages for which there is no handler.
        interrupted: Messages whose handler was cancelled when `serve` ended.
        blocked: How often a handler kept the event loop from running for too long.
        running: Handlers that are waiting for something now.
        waiting: Messages that wait for an earlier one of the same connection.
    """

    handled: int = 0
    errors: int = 0
    timeouts: int = 0
    refused: int = 0
    unrouted: int = 0
    interrupted: int = 0
    blocked: int = 0
    running: int = 0
    waiting: int = 0


class Handler:
    """A function and what is known of it."""

    __slots__ = ("_lines", "_run", "answers", "function", "is_surrounded", "name")

    def __init__(self, function: Function, answers: Literal["reply", "accept"] | None) -> None:
        self._run = function
        self.function = function
        self.is_surrounded = False
        self.answers = answers
        """What becomes of its result: a reply, a publication that goes on, or nothing."""
        module = getattr(function, "__module__", None)
        self.name = f"{module}.{getattr(function, '__qualname__', repr(function))}"
        self._lines = LineLimit()

    def surround(self, middleware: list[Middleware]) -> None:
        """Puts middleware around it, the first outermost."""

        async def inner(message: Message, index: int) -> Any:
            if index < len(middleware):
                return await middleware[index](message, lambda: inner(message, index + 1))
            if self.answers == "accept":
                message._note_seen()
            result = self._run(message)
            return await result if inspect.isawaitable(result) else result

        self.is_surrounded = True
        self.function = lambda message: inner(message, 0)

    def log(self, message: Message, error: BaseException) -> None:
        """Logs an error with its traceback; past the limit of a second only their number."""
        if self._lines.renews():
            self.log_unlogged()
        if self._lines.permits():
            log_error("handler %s failed with %r", self.name, message, error=error)

    def log_unlogged(self) -> None:
        """Logs the number of errors that were not logged one by one."""
        if left_out := self._lines.take_left_out():
            logger.error("handler %s failed with %d more messages", self.name, left_out)


class Handlers:
    """The handlers of a server, and what they have done."""

    def __init__(self) -> None:
        self.messages: dict[str, Handler] = {}
        self.requests: dict[str, Handler] = {}
        self.publications: dict[str, Handler] = {}
        """By the topic or pattern, in the order of their registration."""
        self._publications_by_place: list[Handler] = []
        self._registering = threading.Lock()
        self.events: dict[str, Handler] = {}
        self.rest: Handler | None = None
        self.rest_of_requests: Handler | None = None
        self.handled = 0
        self.errors = 0
        self.timeouts = 0
        self.refused = 0
        self.unrouted = 0
        self.interrupted = 0
        self.blocked = 0
        self._types_named: set[str] = set()
        self._middleware: list[Middleware] = []

    def surround(self, middleware: Middleware) -> None:
        """Puts a function around the handlers of messages, requests and publications, those to come, too."""
        if not inspect.iscoroutinefunction(middleware):
            raise WrongTypeError(
                f"middleware is an async def of the message and call_next, not {middleware!r}"
            )
        try:
            inspect.signature(middleware).bind(None, None)
        except TypeError:
            words = "middleware takes two arguments, the message and call_next"
            raise WrongTypeError(f"{words}: {middleware!r}") from None
        self._middleware.append(middleware)
        for handler in self._routed():
            handler.surround(self._middleware)

    def add(self, name: str, function: Function, *, replies: bool) -> None:
        """Registers the handler of a type, an event, or the rest."""
        check_handler(function)
        handler = Handler(function, "reply" if replies else None)
        if self._middleware and (replies or name not in EVENTS):
            handler.surround(self._middleware)
        if name == REST:
            self._add_rest(handler)
            return
        tables = (self.events if name in EVENTS else self.messages, self.requests)
        table = tables[replies]
        if name in table:
            raise InvalidArgumentError(f"{name!r} has a handler already: {table[name].name}")
        table[name] = handler

    def add_publication(
        self, topic: str, function: Function, decide_about: Callable[[list[str]], None]
    ) -> None:
        """Registers the handler that decides about the publications of clients to a topic or pattern."""
        check_handler(function)
        if topic in self.publications:
            held = self.publications[topic].name
            raise InvalidArgumentError(f"{topic!r} has a handler already: {held}")
        handler = Handler(function, "accept")
        if self._middleware:
            handler.surround(self._middleware)
        with self._registering:
            # The engine may name its place from now on.
            self._publications_by_place.append(handler)
            try:
                decide_about([*self.publications, topic])
            except BaseException:
                self._publications_by_place.pop()
                raise
            self.publications[topic] = handler

    def _add_rest(self, handler: Handler) -> None:
        taken = self.rest_of_requests if handler.answers else self.rest
        if taken is not None:
            raise InvalidArgumentError(f"{REST!r} has a handler already: {taken.name}")
        if handler.answers:
            self.rest_of_requests = handler
        else:
            self.rest = handler

    def all(self) -> list[Handler]:
        """Every handler."""
        return [*self._routed(), *self.events.values()]

    def _routed(self) -> list[Handler]:
        """The handlers of messages, requests and publications."""
        rest = [handler for handler in (self.rest, self.rest_of_requests) if handler is not None]
        return [*self.messages.values(), *self.requests.values(), *self.publications.values(), *rest]

    def find(self, message: Message) -> Handler | None:
        """The handler of a message."""
        kind = message.kind
        if kind == "message":
            if not self.messages:
                return self.rest
            return self.messages.get(type_of(message), self.rest)
        if kind == "request":
            return self.requests.get(type_of(message), self.rest_of_requests)
        place = message._place
        if place is not None:
            return self._publications_by_place[place]
        return self.events.get(kind)

    def pass_over(self, message: Message) -> None:
        """Answers a message for which there is no handler."""
        if message.kind in EVENTS:
            return
        self.unrouted += 1
        name = type_of(message)[:TYPE_CHARACTERS_MAX]
        if name not in self._types_named and len(self._types_named) < TYPES_NAMED_MAX:
            self._types_named.add(name)
            logger.warning("no handler takes %ss of the type %r", message.kind, name)
        if message.kind == "request":
            _tell(message, "NOT_FOUND", f"nobody answers requests of the type {name}")

    def done(self, handler: Handler, message: Message, result: Any) -> None:
        """Handles the result of a handler."""
        if handler.answers == "accept" and handler.is_surrounded and not message._is_seen:
            # Middleware that does not call the handler has refused it.
            self.refused += 1
            _tell(message, "TOPIC_FORBIDDEN", "the application refuses this publication")
            return
        if handler.answers:
            try:
                if handler.answers == "reply":
                    message.reply(result)
                else:
                    message._accept()
            except BaseException as error:
                self.failed(handler, message, error)
                if is_interrupt(error):
                    raise
                return
        self.handled += 1

    def failed(self, handler: Handler, message: Message, error: BaseException) -> None:
        """Handles the exception of a handler: answers the client with an error, and logs the traceback."""
        refusal = refusal_of(error)
        if refusal is not None:
            self.refused += 1
            _tell(message, refusal.code, refusal.text)
            return
        self.errors += 1
        handler.log(message, error)
        _tell(message, HANDLER_ERROR, "the handler failed")

    def interrupt(self, message: Message) -> None:
        """Counts a handler that was cancelled because the server has ended."""
        self.interrupted += 1
        _tell(message, HANDLER_ERROR, "the handler was interrupted")

    def timed_out(self, handler: Handler, message: Message, timeout_ms: int) -> None:
        """Counts a handler that was cancelled because of its timeout."""
        self.errors += 1
        self.timeouts += 1
        logger.error(
            "handler %s did not come to an end within %d ms, with %r", handler.name, timeout_ms, message
        )
        _tell(message, HANDLER_ERROR, "the handler took too long")


def type_of(message: Message) -> str:
    """The type of a message; empty if it has none, as when a server does not speak the protocol."""
    try:
        return message.type or ""
    except TidewireError:
        return ""


def _tell(message: Message, code: str, text: str) -> None:
    """Answers the client that its message was not handled."""
    try:
        if message.kind in ("request", "publication"):
            message.fail(code, text)
        # A message without a type is not of the protocol, and its sender would not understand the answer.
        elif message.kind == "message" and type_of(message):
            message.connection.send_raw(_error(message, code, text), wait_ms=0)
    except Exception as error:
        # A client that cannot receive the error is no reason to end, whatever it has sent.
        logger.debug("the client was not told of %s: %r", code, error)


def _error(message: Message, code: str, text: str) -> str:
    """The protocol's message of an error (PROTOCOL.md, section 7.11)."""
    now = time.time_ns() // 1_000_000
    # Version 7 of RFC 9562: the time, then 74 random bits around the version and the variant.
    number = now << 80 | 0x7 << 76 | secrets.randbits(12) << 64 | 0b10 << 62 | secrets.randbits(62)
    whole: Any = {
        "c": "WSE",
        "t": "error",
        "id": str(uuid.UUID(int=number)),
        "ts": datetime.fromtimestamp(now / 1000, timezone.utc).isoformat(timespec="milliseconds")[:-6] + "Z",
        "p": {"code": code, "message": text, "recoverable": True, "retry_after": None},
        "v": 1,
    }
    try:
        fields = message.json()
    except TidewireError:
        fields = None
    if isinstance(fields, dict) and isinstance(fields.get("cid"), str):
        whole["cid"] = fields["cid"]
    return orjson.dumps(whole).decode()


def check_handler(function: object, what: str = "a handler", argument: str = "the message") -> None:
    """Refuses what is no function of one argument."""
    if not callable(function):
        raise WrongTypeError(f"{what} is a function that takes {argument}, not {function!r}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(None)
    except TypeError:
        raise WrongTypeError(
            f"{what} takes one argument, {argument}: {function!r} takes {signature}"
        ) from None


TYPES_NAMED_MAX = 100
TYPE_CHARACTERS_MAX = 100
