"""The client on asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _client_results as results
from ._client_base import BaseClient, Received, Topics, as_messages, publication, topic_list
from ._client_options import Url
from ._json import MISSING
from ._waker import Waker
from .errors import BusyError, StoppedError

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._client_types import ClientOptions
    from ._native import ClientBatch, ClientMessage, Ticket
    from ._topic_tokens import TopicTokens


def connect(url: Url, **options: Unpack[ClientOptions]) -> Client:
    """Connects to a server, or to several of one service: use `async with` or `await`.

    >>> async def main():
    ...     async with connect("ws://127.0.0.1:5006/ws", token="…") as client:
    ...         await client.subscribe("prices")
    ...         async for message in client:
    ...             print(message.payload)

    Args:
        url: The address, or several of them, or pairs of an address and its weight.
        options: See `ClientOptions`.

    Raises:
        ConfigurationError: An option is unknown or has a value that cannot be used.
        ConnectionClosedError: When it is awaited: no address gives a session.
        TokenError: The server does not accept the token.
    """
    return Client(url, **options)


class Client(BaseClient):
    """A client that reconnects by itself. Everything is called on the event loop on which it was opened.

    The application has to receive the messages, by iteration or by `run`: while more bytes wait than
    `inbox_bytes_max`, the client reads nothing, neither publications nor answers.
    """

    def __init__(self, url: Url, **options: Unpack[ClientOptions]) -> None:
        """See `connect`."""
        super().__init__(url, **options)
        self._waker = Waker(self._core)

    async def open(self) -> Self:
        """Connects; `connect` and `async with` call it. A cancelled call closes the client."""
        self._core.start(self._wait)
        self._waker.attach()
        if self._wait:
            try:
                await self._done(self._core.first_connected())
            except BaseException:
                self._abandon()
                raise
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open() if self.state == "new" else self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Sends the waiting messages and closes the connection; received messages can still be read.

        It ends every waiting call in every task. The close continues if this call is cancelled.
        """
        self._is_closing = True
        if self.state == "new":
            return
        await self._done(self._core.close(code, reason))

    async def ready(self) -> None:
        """Waits for an accepted session: with `wait=False`, or after a lost connection."""
        await self._done(self._core.connected())

    async def send(
        self, payload: Any = MISSING, *, type: str = "message", priority: results.Priority = 5
    ) -> None:
        """Sends a message to the server's application; waits only while the outbox is full.

        It is delivered at most once: a message in flight may be lost with its connection.
        """
        while True:
            try:
                return self._core.try_send(type, payload, priority)
            except BusyError:
                await self._done(self._core.room())

    async def send_raw(self, message: str | bytes) -> None:
        """Sends a whole message, JSON text, unchanged; waits only while the outbox is full."""
        while True:
            try:
                return self._core.try_send_raw(message)
            except BusyError:
                await self._done(self._core.room())

    async def send_acknowledged(
        self,
        payload: Any = MISSING,
        *,
        type: str = "message",
        priority: results.Priority = 5,
        ttl_ms: int | None = None,
    ) -> None:
        """Sends a message through the queue (`offline_queue`), and returns when the server has accepted it.
        The server accepts each message once."""
        work = self._core.enqueue(
            None, type, payload, priority=priority, ttl_ms=ttl_ms, key=None, acknowledged=True
        )
        await self._done(work)

    async def send_later(
        self,
        payload: Any = MISSING,
        *,
        type: str = "message",
        topic: str | None = None,
        priority: results.Priority = 5,
        ttl_ms: int | None = None,
        key: str | None = None,
    ) -> None:
        """Stores a message, or with `topic` a publication, in the queue (`offline_queue`), and returns when it
        is stored: in a file it then survives a crash of the program. The client sends it as soon as it has a
        connection."""
        work = self._core.enqueue(
            topic, type, payload, priority=priority, ttl_ms=ttl_ms, key=key, acknowledged=False
        )
        await self._done(work)

    async def request(self, payload: Any = MISSING, *, type: str, timeout_ms: int | None = None) -> Any:
        """Calls the server's application and returns its answer.

        Raises:
            CallError: The server rejects the call.
            CallTimeoutError: No answer arrived in time; the server may have executed the call.
        """
        return await self._done(self._core.request(type, payload, timeout_ms))

    async def subscribe(
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
    ) -> results.Subscription:
        """Subscribes to topics and patterns such as `orders.*`.

        Args:
            topics: One or several.
            recover: Recover missed publications after a lost connection.
            positions: Where to go on, by topic: what came after is sent first.
            replay: How many of the newest publications of each topic's history come first. After a lost
                connection they come only if `recover` is on and the server cannot say what was missed.
            presence: What other subscribers are told about this one.
            queue_group: Share the publications with this group: each goes to one member.
            acknowledge: As a member of a group, call `acknowledge` for what is done.
            window: Publications that may be unacknowledged at once.
            filter: Which publications are wanted.
            overload: What becomes of those that are not read in time: `disconnect`, `conflate` or
                `drop_oldest`.
            tokens: Subscription tokens, which allow topics that this user's rights do not: a dict by topic,
                or a function that takes the topic. It is asked for each request: the first one, after a
                lost connection, and when the server has ended the subscription because its token has
                expired. The function is called on the thread of all clients and must return at once; if it
                raises, that is logged, and the topic has no token. To prolong a subscription before its
                token expires, subscribe again.

        Raises:
            SubscriptionError: The server does not give some of the topics; the others are subscribed.
        """
        ticket = self._subscribe(
            topics,
            recover=recover,
            positions=positions,
            replay=replay,
            presence=presence,
            queue_group=queue_group,
            acknowledge=acknowledge,
            window=window,
            filter=filter,
            overload=overload,
            tokens=tokens,
        )
        return results.subscribed(await self._done(ticket))

    async def unsubscribe(self, topics: Topics) -> results.Subscription:
        """Ends subscriptions. No publication of them arrives after this call."""
        return results.unsubscribed(await self._done(self._core.unsubscribe(topic_list(topics))))

    async def publish(
        self,
        topic: str,
        payload: Any = MISSING,
        *,
        type: str = "message",
        id: str | None = None,
        key: str | None = None,
        ttl_ms: int | None = None,
        priority: results.Priority | None = None,
        exclude_self: bool = False,
        snapshot: bool = False,
    ) -> results.PublishResult:
        """Publishes, and returns when the server has accepted the publication. After a lost connection the
        client publishes it again, and the server accepts it once.

        Raises:
            CallError: The server rejects it, and nobody receives it.
            CallTimeoutError: No answer came in time; whether it was taken is not known.
        """
        fields = publication(
            topic,
            payload,
            type=type,
            id=id,
            key=key,
            ttl_ms=ttl_ms,
            priority=priority,
            exclude_self=exclude_self,
            snapshot=snapshot,
        )
        return results.PublishResult(*await self._done(self._core.publish(fields)))

    async def presence(self, topics: Topics) -> dict[str, results.TopicPresence]:
        """The users on these topics."""
        return results.presence(await self._done(self._core.presence(topic_list(topics))))

    async def history(
        self,
        topic: str,
        *,
        since: results.Position | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> results.HistoryPage:
        """Reads the history of a topic; no subscription is needed.

        Args:
            topic: The topic.
            since: Read publications after this position or, with the newest first, before it.
            limit: Publications at most, 1 to 1000.
            newest_first: From the newest backwards, instead of from the oldest on.

        Raises:
            CallError: This user may not have the topic, or it keeps no history.
            CallTimeoutError: No answer came in time.
        """
        answer = await self._done(
            self._core.history(topic, since=since, limit=limit, newest_first=newest_first)
        )
        return results.history(answer)

    async def sync(self, topics: Topics = ()) -> None:
        """Requests the state of topics, or of all subscribed ones; it arrives as messages."""
        await self._done(self._core.sync(topic_list(topics)))

    async def acknowledge(self, messages: ClientMessage | Iterable[ClientMessage]) -> None:
        """Acknowledges publications to a member of a queue group."""
        await self._done(self._core.acknowledge(as_messages(messages)))

    async def ping(self) -> float:
        """The round-trip time in seconds."""
        seconds: float = await self._done(self._core.ping())
        return seconds

    def batches(self) -> AsyncIterator[ClientBatch]:
        """The received messages of every kind in batches, until the client is closed. Handlers are not
        called. A cancelled wait, as by `asyncio.wait_for`, loses no message.

        Raises:
            ConnectionClosedError: The client has ended, and not by `close`.
        """
        return _Batches(self._next_batch)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ClientMessage:
        """The next message without a handler. Messages with a handler are passed to it, one at a time.

        A cancelled wait, as by `asyncio.wait_for(anext(client), 5)`, loses no message, but cancels a running
        handler.

        Raises:
            ConnectionClosedError: The client has ended, and not by `close`.
        """
        while True:
            while (message := self._left.take()) is not None:
                handler = self._handler(message)
                if handler is not None:
                    await self._call(handler, message)
                elif message.kind == "message":
                    return message
                else:
                    self._pass_over(message)
            batch = await self._next_batch(self._left)
            if batch is None:
                raise StopAsyncIteration
            self._left.add(batch)
            if len(batch) > 1:
                # Other tasks that wait take the rest.
                self._waker.wake_receivers()

    async def _next_batch(self, left: Received | None = None) -> ClientBatch | None:
        """The next batch, empty if meanwhile another task has left something in `left`; `None` if the application has
        closed the client."""
        self._waker.attach()
        # Others have a turn, however much there is to receive.
        await asyncio.sleep(0)
        while True:
            try:
                batch = self._core.receive()
            except StoppedError:
                if self._is_closing:
                    return None
                raise self._gone() from None
            if len(batch) or left:
                return batch
            await self._waker.happening()

    async def run(self) -> None:
        """Calls handlers until the client is closed."""
        async for message in self:
            self._pass_over(message)

    async def _call(self, handler: Any, message: ClientMessage) -> None:
        try:
            result = handler(message)
            if inspect.isawaitable(result):
                result = await result
        except asyncio.CancelledError as error:
            self._failed(message, error)
            raise
        except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
            # The program, not the handler, is to end.
            self._failed(message, error)
            raise
        except BaseException as error:
            self._failed(message, error)
        else:
            self._handled(message, result)

    def _done(self, ticket: Ticket) -> Coroutine[Any, Any, Any]:
        """Waits for the answer to a request."""
        return self._waker.answer(ticket)


class _Batches:
    """An iterator that, unlike a generator, continues after a cancelled wait."""

    def __init__(self, next_batch: Callable[[], Awaitable[ClientBatch | None]]) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ClientBatch:
        batch = await self._next_batch()
        if batch is None:
            raise StopAsyncIteration
        return batch
