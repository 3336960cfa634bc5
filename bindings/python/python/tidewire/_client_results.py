"""Results of the requests of a client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .errors import SubscriptionError

if TYPE_CHECKING:
    from ._native import ClientBatch

Position = tuple[str, int]
"""A position in the history of a topic: its epoch, 8 hex digits, and the offset."""


Priority = Literal[1, 3, 5, 8, 10]
"""A priority of messages: 1 (background), 3, 5 (normal), 8 or 10 (critical)."""

Overload = Literal["disconnect", "conflate", "drop_oldest"]
"""The treatment of publications of a subscription that are not read in time."""


@dataclass(frozen=True)
class TopicPosition:
    """The position of a topic with history at the time of its subscription.

    Attributes:
        position: Its newest publication.
        recovered: Whether all publications after the position that was asked for follow.
        count: Publications that are sent again.
    """

    position: Position
    recovered: bool = False
    count: int = 0


@dataclass(frozen=True)
class Subscription:
    """The result of a subscription.

    Attributes:
        topics: Topics that are subscribed now.
        positions: Where the topics with history stand.
    """

    topics: list[str] = field(default_factory=list)
    positions: dict[str, TopicPosition] = field(default_factory=dict)


@dataclass(frozen=True)
class PublishResult:
    """The result of a publication.

    Attributes:
        duplicate: Whether one with the same id had been taken before, so that this one was not.
        position: Its place in the topic's history, if there is one.
    """

    duplicate: bool = False
    position: Position | None = None


@dataclass(frozen=True)
class Member:
    """A user on a topic.

    Attributes:
        connections: On how many connections.
        data: What the user tells about itself.
    """

    connections: int = 1
    data: Any = None


@dataclass(frozen=True)
class TopicPresence:
    """The presence of a topic.

    Attributes:
        users: How many users.
        connections: How many connections they have.
        truncated: Whether `members` has not all of them.
        members: Those that are named, by user.
    """

    users: int = 0
    connections: int = 0
    truncated: bool = False
    members: dict[str, Member] = field(default_factory=dict)


@dataclass(frozen=True)
class HistoryPage:
    """A part of a topic's history.

    Attributes:
        position: The current position of the topic.
        oldest: The offset of the oldest publication that is kept; that of the next one if none is.
        publications: The publications, in the order that was asked for.
        more: Whether there are more publications in this direction.
        complete: Whether no publication is missing between the requested position and the returned publications.
    """

    position: Position
    oldest: int
    publications: ClientBatch
    more: bool = False
    complete: bool = True

    @property
    def last(self) -> Position | None:
        """The position of the last publication, for a query of the next page; `None` if there is none."""
        return self.publications[-1].position if len(self.publications) else None


@dataclass(frozen=True)
class Quality:
    """The quality of the connection, by the round trips of pings.

    Attributes:
        latency_ms: The smoothed time there and back.
        jitter_ms: The smoothed difference between one answer's time and the next.
        loss: The share of pings that were not answered in time, from 0 to 1.
        score: From 0 (useless) to 100.
        answered: Pings that were answered.
    """

    latency_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    score: int = 100
    answered: int = 0


@dataclass(frozen=True)
class EndpointHealth:
    """The health of one of the addresses.

    Attributes:
        url: The address.
        score: From 0 (every attempt fails) to 100.
        connect_ms: How long connecting took, smoothed.
        breaker: `closed`: attempts are made; `open`: it is left alone; `halfopen`: one attempt at a time.
    """

    url: str
    score: int = 100
    connect_ms: float | None = None
    breaker: Literal["closed", "open", "halfopen"] = "closed"


@dataclass(frozen=True)
class QueueDepth:
    """The messages that wait for an acknowledgement.

    Attributes:
        messages: How many messages.
        bytes: The bytes of their payloads.
    """

    messages: int = 0
    bytes: int = 0


SubscribeAnswer = tuple[
    list[str], list[str], dict[str, tuple[str, int, bool, int]], dict[str, tuple[str, str]]
]
"""Topics, failed topics, for topics the epoch, the offset, whether they were recovered and the count, and for failed
topics the code and the message."""


def subscribed(answer: SubscribeAnswer) -> Subscription:
    """The result of subscribing.

    Raises:
        SubscriptionError: The server does not give some of the topics.
    """
    subscription, failed, reasons = unsubscribed(answer), answer[1], answer[3]
    if failed:
        raise SubscriptionError(subscription, failed, reasons)
    return subscription


def unsubscribed(answer: SubscribeAnswer) -> Subscription:
    """The result of unsubscribing; topics that were never subscribed count as unsubscribed."""
    topics, _, positions, _ = answer
    known = {
        topic: TopicPosition((epoch, offset), recovered, count)
        for topic, (epoch, offset, recovered, count) in positions.items()
    }
    return Subscription(topics, known)


def history(answer: tuple[Position, int, ClientBatch, bool, bool]) -> HistoryPage:
    """The result of reading a history."""
    return HistoryPage(*answer)


def presence(answer: tuple[dict[str, Any], list[str]]) -> dict[str, TopicPresence]:
    """The result of a presence request. Topics whose presence is not available are missing."""
    topics, _ = answer
    return {
        topic: TopicPresence(
            users, connections, truncated, {user: Member(*member) for user, member in members.items()}
        )
        for topic, (users, connections, truncated, members) in topics.items()
    }
