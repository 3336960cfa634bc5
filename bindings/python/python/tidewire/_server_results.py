"""Results of the queries of a server."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from ._client_results import Position


class Record(Mapping[str, Any]):
    """A frozen dataclass that is also a read-only mapping from the names of its fields, such as `page["more"]`."""

    __slots__ = ()

    def __getitem__(self, name: str) -> Any:
        if name in _names(type(self)):
            return getattr(self, name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_names(type(self)))

    def __len__(self) -> int:
        return len(_names(type(self)))


class TopicPublication(Mapping[str, Any]):
    """A publication in the history of a topic: the message as clients receive it.

    It is also a read-only mapping from the names of the fields in the message, such as `publication["p"]`.
    """

    __slots__ = ("_envelope",)

    def __init__(self, envelope: Mapping[str, Any]) -> None:
        """A publication with these fields."""
        self._envelope = envelope

    @property
    def type(self) -> str:
        """The type of the publication."""
        name: str = self._envelope["t"]
        return name

    @property
    def payload(self) -> Any:
        """The payload of the publication; `bytes` if it is binary."""
        payload = self._envelope.get("p")
        if self._envelope.get("b") is True and isinstance(payload, str):
            return base64.b64decode(payload)
        return payload

    @property
    def topic(self) -> str | None:
        """The topic."""
        return self._envelope.get("tp")

    @property
    def position(self) -> Position | None:
        """Its place in the history: the epoch and the offset."""
        epoch, offset = self._envelope.get("e"), self._envelope.get("o")
        return None if epoch is None or offset is None else (epoch, offset)

    @property
    def id(self) -> str | None:
        """The id that its publisher gave it, by which repetitions are recognised."""
        return self._envelope.get("id")

    @property
    def category(self) -> Literal["update", "snapshot"]:
        """`snapshot` if it replaces the publications before it, otherwise `update`."""
        return "snapshot" if self._envelope.get("c") == "S" else "update"

    def __getitem__(self, name: str) -> Any:
        return self._envelope[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._envelope)

    def __len__(self) -> int:
        return len(self._envelope)

    def __repr__(self) -> str:
        return f"TopicPublication(type={self.type!r}, position={self.position!r}, payload={self.payload!r})"


@dataclass(frozen=True, eq=False)
class TopicHistory(Record):
    """A part of the history of a topic.

    Attributes:
        epoch: The life of the topic that offsets belong to, 8 hex digits; `None` if the topic keeps no history.
        offset: The offset of the newest publication; 0 if there was none.
        oldest: The offset of the oldest publication that is kept; `None` if the topic keeps no history.
        publications: The publications, in the requested order.
        more: Whether there are more publications in this direction.
    """

    epoch: str | None
    offset: int
    oldest: int | None
    publications: list[TopicPublication]
    more: bool

    @property
    def position(self) -> Position | None:
        """The current position of the topic: the epoch and the offset."""
        return None if self.epoch is None else (self.epoch, self.offset)


@dataclass(frozen=True, eq=False)
class PresentUser(Record):
    """A user on a topic.

    Attributes:
        user: The `sub` of its token or, without authentication, the id of its connection.
        connections: The number of its connections.
        data: What it told about itself when it subscribed.
    """

    user: str
    connections: int
    data: Any


@dataclass(frozen=True, eq=False)
class PresentUsers(Record):
    """The users on a topic.

    Attributes:
        users: The number of users.
        connections: The number of their connections.
        members: Some of the users, at most as many as requested.
    """

    users: int
    connections: int
    members: list[PresentUser]


@dataclass(frozen=True, eq=False)
class TopicInfo(Record):
    """A topic or pattern that has subscribers.

    Attributes:
        topic: Its name.
        pattern: Whether it is a pattern.
        subscribers: The number of its subscribers.
        publications: Publications since it has had subscribers without a break.
        per_s: Publications per second since the last query, at least a second ago.
    """

    topic: str
    pattern: bool
    subscribers: int
    publications: int
    per_s: float


@dataclass(frozen=True, eq=False)
class ConnectionInfo(Record):
    """A connection.

    Attributes:
        connection: Its id, as in `Connection.id` and `disconnect`.
        id: The UUID that its client was told; `None` with the protocol `raw`.
        user: The `sub` of its token, if it has one.
        address: The other end, as `address:port`.
        format: `json` or `msgpack`.
        topics: The number of topics and patterns that it is subscribed to.
        queued_bytes: Bytes that wait to be sent to it.
        connected_unix_ms: When it was opened, in milliseconds since 1970; `None` with the protocol `raw`.
    """

    connection: str
    format: Literal["json", "msgpack"]
    topics: int
    queued_bytes: int
    id: str | None = None
    user: str | None = None
    address: str | None = None
    connected_unix_ms: int | None = None


def history(page: Mapping[str, Any]) -> TopicHistory:
    """The result of a query of a history."""
    return TopicHistory(
        epoch=page["epoch"],
        offset=page["offset"],
        oldest=page["oldest"],
        publications=[TopicPublication(envelope) for envelope in page["publications"]],
        more=page["more"],
    )


def presence(present: Mapping[str, Any]) -> PresentUsers:
    """The result of a query of presence."""
    members = [known(PresentUser, member) for member in present["members"]]
    return PresentUsers(present["users"], present["connections"], members)


def known(record: type[Any], values: Mapping[str, Any]) -> Any:
    """A record of those values that it has fields for."""
    names = _names(record)
    return record(**{name: value for name, value in values.items() if name in names})


def _names(record: type[Any]) -> tuple[str, ...]:
    names = _NAMES.get(record)
    if names is None:
        names = _NAMES[record] = tuple(field.name for field in fields(record))
    return names


_NAMES: dict[type[Any], tuple[str, ...]] = {}
