"""Queries of the application to the running server."""

from __future__ import annotations

from . import _server_results as results
from ._completion import PublicNames
from ._native import ServerCore


class ServerQueries(PublicNames, ServerCore):
    """The methods of a server that ask for its connections and topics. Each waits for the answer."""

    def list_connections(
        self,
        *,
        user: str | None = None,
        topic: str | None = None,
        after: str | None = None,
        limit: int = 1000,
    ) -> list[results.ConnectionInfo]:
        """Some connections, in the order of their ids.

        Args:
            user: Only those of this user.
            topic: Only those that are subscribed to this topic or pattern.
            after: Only those behind this one, the `connection` of the last one of the page before.
            limit: Connections at most.

        Raises:
            BusyError: The server has not answered in time.
            StoppedError: The server does not run.
        """
        listed = self._list_connections(user=user, topic=topic, after=after, limit=limit)
        return [results.known(results.ConnectionInfo, values) for values in listed]

    def list_topics(
        self, *, prefix: str = "", after: str | None = None, limit: int = 1000
    ) -> list[results.TopicInfo]:
        """Some topics and patterns that have subscribers, in the order of their names.

        Args:
            prefix: Only those whose names begin with it.
            after: Only those behind this name.
            limit: Topics at most.

        Raises:
            BusyError: The server has not answered in time.
            StoppedError: The server does not run.
        """
        listed = self._list_topics(prefix=prefix, after=after, limit=limit)
        return [results.known(results.TopicInfo, values) for values in listed]

    def history(
        self, topic: str, *, since: int | None = None, limit: int = 100, newest_first: bool = False
    ) -> results.TopicHistory:
        """A part of the history of a topic. If servers share the topic, it waits for their broker.

        Args:
            topic: The topic.
            since: Only publications after this offset or, with the newest first, before it.
            limit: Publications at most.
            newest_first: From the newest backwards, instead of from the oldest on.

        Raises:
            TidewireError: The broker does not answer (`BROKER_UNAVAILABLE`).
            StoppedError: The server does not run.
        """
        return results.history(self._history(topic, since=since, limit=limit, newest_first=newest_first))

    def presence(self, topic: str, *, limit: int = 1000) -> results.PresentUsers:
        """The users on a topic: how many, and at most `limit` of them. If servers share the topic, it may wait for
        their broker.

        Raises:
            TidewireError: The broker does not answer (`BROKER_UNAVAILABLE`).
            StoppedError: The server does not run.
        """
        return results.presence(self._presence(topic, limit=limit))
