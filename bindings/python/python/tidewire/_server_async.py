"""The calls of a server that may wait for the broker, as awaitables: other tasks run meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from . import _server_results as results
from ._client_results import Priority
from ._native import Connection, Published
from ._server_answers import Answers, on_thread, until_free
from ._server_queries import ServerQueries


class AsyncCalls(ServerQueries):
    """The awaitable forms of `publish`, `history` and others, with their arguments, results and exceptions."""

    async def async_publish(
        self,
        topic: str,
        payload: Any,
        *,
        type: str = "message",
        priority: Priority | None = None,
        id: str | None = None,
        key: str | None = None,
        ttl_ms: int | None = None,
        exclude: Connection | Collection[Connection] | None = None,
        snapshot: bool = False,
        volatile: bool = False,
        wait_ms: int = 1000,
    ) -> Published:
        """Publishes to a topic; see `publish`. Neither a broker nor a busy server holds up the event loop.

        If the call is cancelled while the broker has the publication, it may be published all the same. Calls that
        wait at the same time may be published in any order; for an order await one after the other, or call
        `async_publish_many`.

        Raises:
            BusyError: The server has not caught up within `wait_ms`; nobody got it.
            TidewireError: The broker does not answer: `BROKER_UNAVAILABLE` if nobody got it, `PUBLISH_UNKNOWN` if
                it is not known.
        """
        answers = Answers.of_loop()
        # An attempt that is made again excludes the same connections.
        excluded = exclude if exclude is None or isinstance(exclude, Connection) else list(exclude)

        async def attempt() -> Published:
            started = self._publish_start(
                answers.signal,
                topic,
                payload,
                type=type,
                priority=priority,
                id=id,
                key=key,
                ttl_ms=ttl_ms,
                exclude=excluded,
                snapshot=snapshot,
                volatile=volatile,
            )
            return started if isinstance(started, Published) else await answers.wait(started)

        return await until_free(attempt, wait_ms)

    async def async_publish_many(
        self,
        topic: str,
        payloads: Iterable[Any],
        *,
        type: str = "message",
        priority: Priority | None = None,
        wait_ms: int = 1000,
    ) -> int:
        """Publishes several payloads to one topic, in their order, and returns how many were new.

        With a broker each is published when the one before has its answer.

        Raises:
            BusyError: The server has not caught up with one of them within `wait_ms`; those after it are not
                published.
        """
        new = 0
        for payload in payloads:
            place = await self.async_publish(topic, payload, type=type, priority=priority, wait_ms=wait_ms)
            new += not place.duplicate
        return new

    async def async_history(
        self, topic: str, *, since: int | None = None, limit: int = 100, newest_first: bool = False
    ) -> results.TopicHistory:
        """A part of the history of a topic; see `history`."""
        return await on_thread(self.history, topic, since=since, limit=limit, newest_first=newest_first)

    async def async_forget_history(self, topic: str) -> bool:
        """Deletes the history of a topic; see `forget_history`."""
        return await on_thread(self.forget_history, topic)

    async def async_presence(self, topic: str, *, limit: int = 1000) -> results.PresentUsers:
        """The users on a topic; see `presence`."""
        return await on_thread(self.presence, topic, limit=limit)

    async def async_list_topics(
        self, *, prefix: str = "", after: str | None = None, limit: int = 1000
    ) -> list[results.TopicInfo]:
        """Some topics and patterns that have subscribers; see `list_topics`."""
        return await on_thread(self.list_topics, prefix=prefix, after=after, limit=limit)

    async def async_list_connections(
        self,
        *,
        user: str | None = None,
        topic: str | None = None,
        after: str | None = None,
        limit: int = 1000,
    ) -> list[results.ConnectionInfo]:
        """Some connections; see `list_connections`."""
        return await on_thread(self.list_connections, user=user, topic=topic, after=after, limit=limit)

    async def async_subscribe_user(self, user: str, topic: str) -> None:
        """Subscribes every connection that a user has now, on every server; see `subscribe_user`."""
        await on_thread(self.subscribe_user, user, topic)

    async def async_unsubscribe_user(self, user: str, topic: str) -> None:
        """Ends a subscription of every connection of a user, on every server; see `unsubscribe_user`."""
        await on_thread(self.unsubscribe_user, user, topic)

    async def async_disconnect_user(self, user: str, code: int = 1000, reason: str = "") -> None:
        """Ends every connection of a user, on every server; see `disconnect_user`."""
        await on_thread(self.disconnect_user, user, code, reason)
