"""The client without asyncio: every call blocks its thread until it is done, and other threads run
meanwhile."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import _client_results as results
from ._client_base import BaseClient, Topics, as_messages, publication, topic_list
from ._client_options import Url
from ._completion import names
from ._json import MISSING
from .errors import BusyError, InvalidArgumentError, StoppedError

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from ._client_types import ClientOptions
    from ._native import ClientBatch, ClientMessage
    from ._topic_tokens import TopicTokens

__all__ = ["Client", "connect"]

WAIT_MS = 1000


def connect(url: Url, **options: Unpack[ClientOptions]) -> Client:
    """Connects to a server, or to several of one service, and returns when one has accepted the session.

    Args:
        url: The address, or several of them, or pairs of an address and its weight.
        options: See `ClientOptions`.

    Raises:
        ConfigurationError: An option is unknown or has a value that cannot be used.
        ConnectionClosedError: No address gives a session.
        TokenError: The server does not accept the token.
    """
    return Client(url, **options).open()


class Client(BaseClient):
    """A client that reconnects by itself. It can be used from any thread.

    The application has to receive the messages, by iteration or by `run`: while more bytes wait than
    `inbox_bytes_max`, the client reads nothing, neither publications nor answers.
    """

    def open(self) -> Self:
        """Connects; `connect` calls it."""
        self._core.start(self._wait)
        if self._wait:
            try:
                self._core.first_connected().wait()
            except BaseException:
                self._abandon()
                raise
        return self

    def __enter__(self) -> Self:
        return self.open() if self.state == "new" else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Sends the waiting messages and closes the connection; received messages can still be read.

        It ends every waiting call in every thread.
        """
        self._is_closing = True
        if self.state != "new":
            self._core.close(code, reason).wait()

    def ready(self) -> None:
        """Waits for an accepted session: with `wait=False`, or after a lost connection."""
        self._core.connected().wait()

    def send(self, payload: Any = MISSING, *, type: str = "message", priority: results.Priority = 5) -> None:
        """Sends a message to the server's application; waits only while the outbox is full.

        It is delivered at most once: a message in flight may be lost with its connection.
        """
        while True:
            try:
                return self._core.try_send(type, payload, priority)
            except BusyError:
                self._core.room().wait()

    def send_raw(self, message: str | bytes) -> None:
        """Sends a whole message, JSON text, unchanged; waits only while the outbox is full."""
        while True:
            try:
                return self._core.try_send_raw(message)
            except BusyError:
                self._core.room().wait()

    def send_acknowledged(
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
        work.wait()

    def send_later(
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
        work.wait()

    def request(self, payload: Any = MISSING, *, type: str, timeout_ms: int | None = None) -> Any:
        """Calls the server's application and returns its answer.

        Raises:
            CallError: The server rejects the call.
            CallTimeoutError: No answer arrived in time; the server may have executed the call.
        """
        return self._core.request(type, payload, timeout_ms).wait()

    def subscribe(
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
        """Subscribes to topics and patterns such as `orders.*`; see `tidewire.Client.subscribe` for the
        options.

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
        return results.subscribed(ticket.wait())

    def unsubscribe(self, topics: Topics) -> results.Subscription:
        """Ends subscriptions. No publication of them arrives after this call."""
        return results.unsubscribed(self._core.unsubscribe(topic_list(topics)).wait())

    def publish(
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
        return results.PublishResult(*self._core.publish(fields).wait())

    def presence(self, topics: Topics) -> dict[str, results.TopicPresence]:
        """The users on these topics."""
        return results.presence(self._core.presence(topic_list(topics)).wait())

    def history(
        self,
        topic: str,
        *,
        since: results.Position | None = None,
        limit: int = 100,
        newest_first: bool = False,
    ) -> results.HistoryPage:
        """Reads the history of a topic; see `tidewire.Client.history`."""
        ticket = self._core.history(topic, since=since, limit=limit, newest_first=newest_first)
        return results.history(ticket.wait())

    def sync(self, topics: Topics = ()) -> None:
        """Requests the state of topics, or of all subscribed ones; it arrives as messages."""
        self._core.sync(topic_list(topics)).wait()

    def acknowledge(self, messages: ClientMessage | Iterable[ClientMessage]) -> None:
        """Acknowledges publications to a member of a queue group."""
        self._core.acknowledge(as_messages(messages)).wait()

    def ping(self) -> float:
        """The round-trip time in seconds."""
        seconds: float = self._core.ping().wait()
        return seconds

    def batches(self, *, timeout_ms: int = 1000) -> Iterator[ClientBatch]:
        """The received messages of every kind in batches, until the client is closed. After `timeout_ms`
        without a message it returns an empty batch. Handlers are not called.

        Raises:
            ConnectionClosedError: The client has ended, and not by `close`.
        """
        while (batch := self._next_batch(timeout_ms)) is not None:
            yield batch

    def _next_batch(self, timeout_ms: int) -> ClientBatch | None:
        """The next batch, empty after the timeout; `None` if the application has closed the client."""
        try:
            return self._core.receive(timeout_ms)
        except StoppedError:
            if self._is_closing:
                return None
            raise self._gone() from None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ClientMessage:
        """The next message without a handler. Messages with a handler are passed to it, one at a time.

        Raises:
            ConnectionClosedError: The client has ended, and not by `close`.
        """
        message = self._take(None)
        if message is None:
            raise StopIteration
        return message

    def next(self, timeout: float | None = None) -> ClientMessage:
        """The next message for which there is no handler, as iterating gives it.

        Args:
            timeout: How long to wait, in seconds; `None` for any time.

        Raises:
            TimeoutError: No message came in time.
            StoppedError: The client is closed, and everything was received.
            ConnectionClosedError: The connection is gone for good, and not by `close`.
        """
        message = self._take(None if timeout is None else time.monotonic() + timeout)
        if message is None:
            raise StoppedError("the client is closed")
        return message

    def _take(self, deadline: float | None) -> ClientMessage | None:
        """The next message without a handler; `None` if the application has closed the client."""
        while True:
            message = self._left.take()
            if message is None:
                wait_ms = WAIT_MS
                if deadline is not None:
                    left_ms = math.ceil((deadline - time.monotonic()) * 1000)
                    wait_ms = max(0, min(WAIT_MS, left_ms))
                if not self._fill(wait_ms):
                    return None
                if not self._left and deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError("no message came in time")
                continue
            handler = self._handler(message)
            if handler is not None:
                self._call(handler, message)
            elif message.kind == "message":
                return message
            else:
                self._pass_over(message)

    def _fill(self, wait_ms: int) -> bool:
        """Waits for messages, which another thread may receive and leave; `False` if the application has closed the
        client. One thread receives, and the others wait for it: each of them then looks at what it has left."""
        began = time.monotonic()
        if not self._receiving.acquire(timeout=wait_ms / 1000):
            return True
        try:
            if self._left:
                return True
            waited_ms = round((time.monotonic() - began) * 1000)
            batch = self._next_batch(max(0, wait_ms - waited_ms))
            if batch is None:
                return False
            self._left.add(batch)
            return True
        finally:
            self._receiving.release()

    def run(self) -> None:
        """Calls handlers until the client is closed."""
        for message in self:
            self._pass_over(message)

    def _call(self, handler: Any, message: ClientMessage) -> None:
        try:
            result = handler(message)
            if inspect.isawaitable(result):
                raise InvalidArgumentError(
                    "a handler of tidewire.sync is no coroutine: use def instead of async def"
                )
        except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
            # The program, not the handler, is to end.
            self._failed(message, error)
            raise
        except BaseException as error:
            self._failed(message, error)
        else:
            self._handled(message, result)


def __dir__() -> list[str]:
    return names(__all__, globals())
