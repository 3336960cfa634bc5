"""The server on asyncio: handlers, and receiving with `async for`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from ._admission import Authorize
from ._dispatch import Dispatcher
from ._doorkeeper import Doorkeeper
from ._handlers import Handlers, HandlerStatistics, Middleware, check_handler
from ._schemas import checked
from ._server_answers import until_free
from ._server_async import AsyncCalls
from ._server_waker import ServerWaker
from .errors import InvalidArgumentError, StoppedError, TidewireError, WrongTypeError

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._native import Batch, Message

logger = logging.getLogger("tidewire")

A = TypeVar("A", bound=Authorize)
F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound=Middleware)
R = TypeVar("R")


class AsyncServer(AsyncCalls):
    """The methods of a server for an event loop."""

    _handlers_made: Handlers | None = None
    _waker_made: ServerWaker | None = None
    _left_made: deque[Message] | None = None
    _dispatcher: Dispatcher | None = None
    _doorkeeper: Doorkeeper | None = None
    _has_served = False
    """Whether `serve` has begun once."""

    def on(self, name: str, *, schema: Any = None) -> Callable[[F], F]:
        """Registers a handler, an `async def` or `def` function of the message.

        Args:
            name: A type of messages; or `connect`, `disconnect` or `snapshot_request` for what happens to a
                connection; or `*` for messages of all other types. Messages whose type is one of these names
                come to `*`.
            schema: The shape of the payload: a model of pydantic, a type that pydantic knows, or a function that
                returns the value or raises `ValueError`. The handler then gets the checked value as its second
                argument. The client of another payload gets the error `INVALID_PAYLOAD`, with words that name the
                fault.

        What it returns does not matter. If it raises, the traceback is logged and the client is told
        `HANDLER_ERROR`. To refuse a message in words of your own, raise `CallError(words, code=...)`.

        Example:
            @server.on("order")
            async def order(message):
                await save(message.payload)

        Raises:
            InvalidArgumentError: The name has a handler already.
            WrongTypeError: It is no function of one argument.
        """
        return self._registrar(name, schema, replies=False)

    def request(self, name: str, *, schema: Any = None) -> Callable[[F], F]:
        """Registers the handler of a type of requests; with `*`, of all other types.

        What it returns is the reply.
        It may also answer by `message.reply()` or `message.fail()`, before it returns: the first answer
        counts. To answer with an error, raise `CallError(words, code=...)`. A `schema` is that of `on`.

        Example:
            @server.request("sum")
            def add(message):
                return sum(message.payload)

        Raises:
            InvalidArgumentError: The name has a handler already.
            WrongTypeError: It is no function of one argument.
        """
        return self._registrar(name, schema, replies=True)

    def on_publish(self, topic: str, *, schema: Any = None) -> Callable[[F], F]:
        """Registers the handler that decides about what clients publish to a topic or pattern.

        It is asked once the access rules allow the publication. When it ends, the publication goes on, with the
        payload of `message.replace()` if it has called that. When it raises, the publication is refused: by
        `CallError(words, code=...)` in its words. The first pattern that fits a topic decides, in the order of their
        registration. The messages of the client wait meanwhile: do not ask the same client something in the handler.
        A publication that is not decided within `call_timeout_ms` is refused with `TIMEOUT`. What the server
        publishes itself is not asked about.

        Args:
            topic: A topic or pattern, such as `rooms.tea`, `rooms.*` or `rooms.>`.
            schema: The shape of the payload, as for `on`.

        Example:
            @server.on_publish("rooms.*")
            async def said(message):
                if message.payload["text"] in FORBIDDEN:
                    raise CallError("not here", code="RUDE")
                await save(message.topic, message.user, message.payload)

        Raises:
            InvalidArgumentError: It is no topic or pattern, or has a handler already.
            WrongTypeError: It is no function of one argument; with a schema, of two.
        """
        if not isinstance(topic, str):
            raise WrongTypeError('the topic is missing: write @server.on_publish("rooms.*")')

        def register(function: F) -> F:
            handler = function if schema is None else checked(schema, function)
            self._handlers.add_publication(topic, handler, self._decide_about)
            return function

        return register

    @overload
    def authorize(self, function: A) -> A: ...
    @overload
    def authorize(self, *, timeout_ms: int) -> Callable[[A], A]: ...
    def authorize(self, function: A | None = None, *, timeout_ms: int = 10_000) -> A | Callable[[A], A]:
        """Registers the function, a `def` or `async def`, that decides who may connect, by the request.

        It is asked on the event loop of the handlers about the clients of the server's own port, and of each
        `tidewire.asgi.WebSocketEndpoint` without an `authorize` of its own. It gets the request as an ASGI scope:
        `headers`, `path`, `query_string`, `client` and so on. It returns an `Admission`; or `True`, and the token
        decides; or `False` or `None`, and the client gets 403. A `CallError` does that in its own words. With another
        exception, or without an answer in time, the client gets 503, and comes back. So it does when the clients that
        wait are too many.

        Args:
            timeout_ms: How long it may take; at most `call_timeout_ms` counts.

        Example:
            @server.authorize
            async def authorize(scope):
                session = await find_session(cookies(scope))
                return {"user": session.user} if session else None

        Raises:
            InvalidArgumentError: There is one already.
            StoppedError: The server was started before.
            WrongTypeError: It is no function of one argument.
        """
        check_positive(timeout_ms=timeout_ms)

        def register(function: A) -> A:
            if self.state == "running":
                raise StoppedError("authorize comes before start()")
            if self._doorkeeper is not None:
                raise InvalidArgumentError("this server has an authorize already")
            check_handler(function, "authorize", "the ASGI scope")
            self._doorkeeper = Doorkeeper(function, timeout_ms / 1000)
            self._decide_connections(self._doorkeeper.signal)
            return function

        return register if function is None else register(function)

    def use(self, middleware: M) -> M:
        """Puts an `async def` around every handler of messages, requests and publications; the first is the outermost.

        It gets the message, and a function without arguments that calls what is inside, and whose result it awaits.
        What it returns is the result of the handler. To refuse a message, raise `CallError`.

        Example:
            @server.use
            async def logged(message, call_next):
                result = await call_next()
                print(message.type, "is done")
                return result

        Raises:
            WrongTypeError: It is no `async def` of two arguments.
        """
        self._handlers.surround(middleware)
        return middleware

    def _registrar(self, name: str, schema: Any, *, replies: bool) -> Callable[[F], F]:
        if not isinstance(name, str):
            decorator = "request" if replies else "on"
            raise WrongTypeError(f'the type of messages is missing: write @server.{decorator}("type")')

        def register(function: F) -> F:
            handler = function if schema is None else checked(schema, function)
            self._handlers.add(name, handler, replies=replies)
            return function

        return register

    async def serve(
        self,
        *,
        handlers_max: int = 256,
        waiting_max: int = 1024,
        waiting_bytes_max: int = 16 * 1024 * 1024,
        handler_timeout_ms: int | None = None,
        keep_order: bool = True,
        blocked_warning_ms: int = 250,
        stop_timeout_ms: int = 5_000,
    ) -> None:
        """Calls the handlers for received messages, until the server has stopped.

        A server that is new is started. Messages of one connection are handled one after another, those of
        different connections at once.

        Args:
            handlers_max: So many handlers may wait at once. At the limit nothing more is received: what comes
                waits in the server, up to `queue_bytes_max`, and then in the clients.
            waiting_max: So many messages may wait for an earlier one of their connection; at the limit as
                above.
            waiting_bytes_max: The same in bytes of these messages.
            handler_timeout_ms: A handler that waits for longer is cancelled; by default none is.
            keep_order: With `False` messages of one connection are handled at once, too.
            blocked_warning_ms: A handler that does not let the event loop run for so long is told in the log;
                0 for never.
            stop_timeout_ms: How long handlers have to end after the server has stopped, before they are
                cancelled.

        It ends when the server has stopped, or when it is cancelled. No handler ends it: whatever one raises is
        logged, told to the client as `HANDLER_ERROR`, and counted, `SystemExit` too; but Ctrl-C ends the
        program as it always does. A handler that cancels the task in which it runs cancels itself alone.

        If it is cancelled, handlers that wait are cancelled too. What was received and not handled is kept
        for who receives next, and its number is logged. The server goes on, but lets no new client in until
        somebody receives again.

        Raises:
            TidewireError: Somebody serves already, or receives on another event loop.
        """
        check_positive(
            handlers_max=handlers_max, waiting_max=waiting_max, waiting_bytes_max=waiting_bytes_max
        )
        if self._dispatcher is not None and not self._dispatcher.is_dead:
            raise TidewireError("the handlers of this server run already", code="SERVING")
        if self.state == "new":
            self.start()
        dispatcher = self._dispatcher = Dispatcher(
            self,
            self._handlers,
            self._waker,
            self._left,
            handlers_max=handlers_max,
            waiting_max=waiting_max,
            waiting_bytes_max=waiting_bytes_max,
            handler_timeout_ms=handler_timeout_ms,
            keep_order=keep_order,
        )
        self._has_served = True
        self.admit(True)
        try:
            with self._deciding():
                await dispatcher.run(blocked_warning_ms, stop_timeout_ms)
        finally:
            if self._dispatcher is dispatcher:
                self._dispatcher = None
                if self.state == "running":
                    self.admit(False)
                    logger.warning(
                        "nobody serves any more: new clients are turned away until somebody receives again"
                    )

    def run(
        self, *, drain_timeout_ms: int = 5_000, handlers_max: int = 256, handler_timeout_ms: int | None = None
    ) -> None:
        """Starts, serves until SIGINT or SIGTERM, drains the clients, and stops: a whole program.

        Args:
            drain_timeout_ms: The time for which clients can leave.
            handlers_max: As in `serve`.
            handler_timeout_ms: As in `serve`.
        """
        asyncio.run(self._run(drain_timeout_ms, handlers_max, handler_timeout_ms))

    async def _run(self, drain_timeout_ms: int, handlers_max: int, handler_timeout_ms: int | None) -> None:
        loop = asyncio.get_running_loop()
        told = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            # Only the main thread receives signals.
            with contextlib.suppress(ValueError, RuntimeError):
                loop.add_signal_handler(number, told.set)
        async with self:
            serving = loop.create_task(
                self.serve(handlers_max=handlers_max, handler_timeout_ms=handler_timeout_ms)
            )
            waiting = loop.create_task(told.wait())
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if not serving.done():
                await asyncio.to_thread(self.drain, drain_timeout_ms)
            await serving

    async def async_batches(
        self, *, max_messages: int = 1024, timeout_ms: int | None = None
    ) -> AsyncIterator[Batch]:
        """The received messages in batches, until the server has stopped and no message is left.

        Args:
            max_messages: The maximum number of messages in a batch.
            timeout_ms: After this time without a message it returns an empty batch; by default it waits forever.

        Raises:
            StoppedError: The server was not started.
        """
        with self._waker.watching() as watch, self._deciding():
            while True:
                try:
                    batch = self.receive(max_messages, 0)
                    if not len(batch):
                        await watch.wait(timeout_ms)
                        batch = self.receive(max_messages, 0)
                except StoppedError:
                    return
                if len(batch) or timeout_ms is not None:
                    yield batch

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Each message, until the server has stopped. A later iteration continues where this one ended."""
        left = self._left
        while left:
            yield left.popleft()
        async for batch in self.async_batches():
            left.extend(batch)
            while left:
                yield left.popleft()

    async def when_free(
        self, function: Callable[..., R], *arguments: Any, wait_ms: int = 1_000, **keywords: Any
    ) -> R:
        """Calls `send` or another method that may raise `BusyError`, and retries without blocking the loop. For
        `publish`, which may wait for a broker as well, there is `async_publish`.

        Args:
            function: A method of the server or of a connection that takes `wait_ms`.
            arguments: What it is called with, and `keywords`.
            wait_ms: For how long it is tried again.

        Example:
            await server.when_free(server.send_to_user, "user-1", payload, type="order_created")

        Raises:
            BusyError: The server has not caught up in that time; nothing was done.
        """

        async def attempt() -> R:
            return function(*arguments, wait_ms=0, **keywords)

        return await until_free(attempt, wait_ms)

    def _deciding(self) -> contextlib.AbstractContextManager[None]:
        """Asks `authorize` about clients on the running loop, if there is one."""
        doorkeeper = self._doorkeeper
        return contextlib.nullcontext() if doorkeeper is None else doorkeeper.watching(self)

    def _renew(self) -> None:
        """Makes a server that has stopped new, with the same options and handlers: for who owns the whole life of a
        program more than once, such as the tests of an application."""
        super()._renew()
        self._waker_made = None
        self._left_made = None

    async def __aenter__(self) -> Self:
        if self.state == "new":
            self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def handler_errors(self) -> int:
        """Messages whose handler failed."""
        return self._handlers.errors

    def handler_statistics(self) -> HandlerStatistics:
        """The counts of the handlers."""
        handlers, dispatcher = self._handlers, self._dispatcher
        return HandlerStatistics(
            handled=handlers.handled,
            errors=handlers.errors,
            timeouts=handlers.timeouts,
            refused=handlers.refused,
            unrouted=handlers.unrouted,
            interrupted=handlers.interrupted,
            blocked=handlers.blocked,
            running=dispatcher.running if dispatcher else 0,
            waiting=dispatcher.waiting if dispatcher else 0,
        )

    @property
    def _handlers(self) -> Handlers:
        if self._handlers_made is None:
            self._handlers_made = Handlers()
        return self._handlers_made

    @property
    def _waker(self) -> ServerWaker:
        if self._waker_made is None:
            self._waker_made = ServerWaker(self)
        return self._waker_made

    @property
    def _left(self) -> deque[Message]:
        """Messages that were received by a cancelled iteration and not handled yet."""
        if self._left_made is None:
            self._left_made = deque()
        return self._left_made


def check_positive(**values: int) -> None:
    """Refuses what is no whole number of 1 or more."""
    for name, value in values.items():
        if not isinstance(value, int):
            raise WrongTypeError(f"{name} is an int, not a {type(value).__name__}")
        if value < 1:
            raise InvalidArgumentError(f"{name} is {value}; it has to be 1 or more")
