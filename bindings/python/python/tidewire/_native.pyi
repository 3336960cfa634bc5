"""The types of the native module, by parts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, final

from typing_extensions import Self, disjoint_base

from ._lab import (
    LatencyRecorder as LatencyRecorder,
)
from ._lab import (
    lab_check_pid as lab_check_pid,
)
from ._lab import (
    lab_connections_room as lab_connections_room,
)
from ._lab import (
    lab_cores as lab_cores,
)
from ._lab import (
    lab_counters as lab_counters,
)
from ._lab import (
    lab_judge as lab_judge,
)
from ._lab import (
    lab_listener_pids as lab_listener_pids,
)
from ._lab import (
    lab_load as lab_load,
)
from ._lab import (
    lab_machine as lab_machine,
)
from ._lab import (
    lab_preflight as lab_preflight,
)
from ._lab import (
    lab_redacted as lab_redacted,
)
from ._lab import (
    lab_save as lab_save,
)
from ._lab import (
    lab_tables as lab_tables,
)
from ._lab import (
    lab_tree as lab_tree,
)
from ._lab import (
    lab_try_out as lab_try_out,
)
from ._lab import (
    lab_usage as lab_usage,
)
from ._utilities import (
    Envelope as Envelope,
)
from ._utilities import (
    Filter as Filter,
)
from ._utilities import (
    Gap as Gap,
)
from ._utilities import (
    IdentityKey as IdentityKey,
)
from ._utilities import (
    KeyPair as KeyPair,
)
from ._utilities import (
    PriorityQueue as PriorityQueue,
)
from ._utilities import (
    RateVerdict as RateVerdict,
)
from ._utilities import (
    Sequencer as Sequencer,
)
from ._utilities import (
    SessionCipher as SessionCipher,
)
from ._utilities import (
    Signer as Signer,
)
from ._utilities import (
    TokenBucket as TokenBucket,
)
from ._utilities import (
    TokenKey as TokenKey,
)
from ._utilities import (
    TokenSigner as TokenSigner,
)
from ._utilities import (
    TokenVerifier as TokenVerifier,
)
from ._utilities import (
    Verifier as Verifier,
)
from ._utilities import (
    compress as compress,
)
from ._utilities import (
    decode_token as decode_token,
)
from ._utilities import (
    decompress as decompress,
)
from ._utilities import (
    encode_envelope as encode_envelope,
)
from ._utilities import (
    encode_token as encode_token,
)
from ._utilities import (
    hmac_sha256 as hmac_sha256,
)
from ._utilities import (
    json_to_msgpack as json_to_msgpack,
)
from ._utilities import (
    msgpack_to_json as msgpack_to_json,
)
from ._utilities import (
    parse_envelope as parse_envelope,
)
from ._utilities import (
    sign as sign,
)
from ._utilities import (
    verify as verify,
)

version: str

def log_start(level: str) -> None: ...
def log_take(timeout_ms: int) -> list[tuple[int, str, str]]: ...
def log_wake() -> None: ...
def log_before_fork() -> None: ...
def log_after_fork(is_child: bool) -> None: ...
def nearest_name(name: str, known: Iterable[str]) -> str | None: ...

# --- The server -------------------------------------------------------------------------------------------------

_Data = str | bytes | bytearray | memoryview
_Priority = Literal[1, 3, 5, 8, 10]
_Kind = Literal["connect", "message", "request", "snapshot_request", "disconnect"]

@disjoint_base
class ServerCore:
    """The native base of `Server`."""

    def __new__(cls, options: Mapping[str, Any]) -> Self: ...
    @staticmethod
    def option_names() -> list[str]: ...
    def _describe(self) -> str: ...
    @staticmethod
    def _describe_json(text: str) -> str: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def drain(self, timeout_ms: int = 10000) -> int: ...
    def admit(self, admitting: bool) -> None: ...
    def _abandon(self) -> None: ...
    def _renew(self) -> None: ...
    @property
    def state(self) -> Literal["new", "running", "stopped"]: ...
    @property
    def port(self) -> int: ...
    @property
    def address(self) -> tuple[str, int]: ...
    @property
    def ops_address(self) -> tuple[str, int] | None: ...
    @property
    def url(self) -> str: ...
    def receive(self, max_messages: int = 4096, timeout_ms: int = 0) -> Batch: ...
    def fileno(self) -> int: ...
    def arm(self) -> bool: ...
    def disarm(self) -> None: ...
    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        type: str = "message",
        priority: _Priority | None = None,
        id: str | None = None,
        key: str | None = None,
        ttl_ms: int | None = None,
        exclude: Connection | None = None,
        snapshot: bool = False,
        wait_ms: int = 1000,
    ) -> Published: ...
    def _publish_start(
        self,
        signal: ClientSignal,
        topic: str,
        payload: Any,
        *,
        type: str = "message",
        priority: _Priority | None = None,
        id: str | None = None,
        key: str | None = None,
        ttl_ms: int | None = None,
        exclude: Connection | None = None,
        snapshot: bool = False,
    ) -> Published | PendingPublish: ...
    def publish_many(
        self,
        topic: str,
        payloads: Iterable[Any],
        *,
        type: str = "message",
        priority: _Priority | None = None,
        wait_ms: int = 1000,
    ) -> int: ...
    def send_to_user(
        self,
        user: str,
        payload: Any,
        *,
        type: str = "message",
        priority: _Priority | None = None,
        wait_ms: int = 1000,
    ) -> None: ...
    def broadcast(
        self, payload: Any, *, type: str = "message", priority: _Priority | None = None, wait_ms: int = 1000
    ) -> None: ...
    def broadcast_raw(self, data: _Data | Message, *, wait_ms: int = 1000) -> None: ...
    def send_raw_many(
        self, pairs: Iterable[tuple[Connection | Message, _Data | Message]], *, wait_ms: int = 1000
    ) -> None: ...
    def subscribe_user(self, user: str, topic: str) -> None: ...
    def unsubscribe_user(self, user: str, topic: str) -> None: ...
    def disconnect_user(self, user: str, code: int = 1000, reason: str = "") -> None: ...
    def disconnect(self, id: str, code: int = 1000, reason: str = "") -> None: ...
    @property
    def connections(self) -> int: ...
    def statistics(self) -> dict[str, int]: ...
    def _list_connections(
        self,
        *,
        user: str | None = None,
        topic: str | None = None,
        after: str | None = None,
        limit: int = 1000,
    ) -> list[dict[str, Any]]: ...
    def _list_topics(
        self, *, prefix: str = "", after: str | None = None, limit: int = 1000
    ) -> list[dict[str, Any]]: ...
    def _history(
        self, topic: str, *, since: int | None = None, limit: int = 100, newest_first: bool = False
    ) -> dict[str, Any]: ...
    def forget_history(self, topic: str) -> bool: ...
    def _presence(self, topic: str, *, limit: int = 1000) -> dict[str, Any]: ...

@final
class Batch:
    """Messages in the order in which they came."""

    def __len__(self) -> int: ...
    def __iter__(self) -> BatchIterator: ...
    def __getitem__(self, index: int, /) -> Message: ...

@final
class BatchIterator(Iterator[Message]):
    def __iter__(self) -> BatchIterator: ...
    def __next__(self) -> Message: ...

@final
class Message:
    """Something that happened on a connection: `kind` says what. It is decoded as far as it is looked at."""

    @property
    def kind(self) -> _Kind: ...
    @property
    def data(self) -> bytes: ...
    def __len__(self) -> int: ...
    def json(self) -> Any: ...
    @property
    def payload(self) -> Any: ...
    @property
    def type(self) -> str | None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def topics(self) -> list[str]: ...
    @property
    def connection(self) -> Connection: ...
    @property
    def user(self) -> str | None: ...
    @property
    def encoding(self) -> Literal["text", "binary", "msgpack"]: ...
    @property
    def reason(self) -> Literal["peer", "server", "lost"] | None: ...
    @property
    def close_code(self) -> int | None: ...
    @property
    def timeout_ms(self) -> int | None: ...
    def reply(self, payload: Any) -> bool: ...
    def fail(self, code: str, message: str) -> bool: ...
    def reply_snapshot(self, topic: str, payload: Any, *, type: str = "snapshot") -> None: ...

@final
class Connection:
    """A client's connection. Two that are the same are equal, and it can be a key of a dict."""

    @property
    def id(self) -> str: ...
    @property
    def user(self) -> str | None: ...
    @property
    def address(self) -> tuple[str, int] | None: ...
    def send(
        self, payload: Any, *, type: str = "message", priority: _Priority | None = None, wait_ms: int = 1000
    ) -> None: ...
    def send_raw(self, data: _Data | Message, *, wait_ms: int = 1000) -> None: ...
    def close(self, code: int = 1000, reason: str = "") -> None: ...
    def subscribe(self, topic: str) -> None: ...
    def unsubscribe(self, topic: str) -> None: ...
    def set_access(
        self,
        *,
        subscribe_allow: list[str] | None = None,
        subscribe_deny: list[str] | None = None,
        publish_allow: list[str] | None = None,
        publish_deny: list[str] | None = None,
        presence_allow: list[str] | None = None,
        presence_deny: list[str] | None = None,
        queue_group_allow: list[str] | None = None,
        queue_group_deny: list[str] | None = None,
    ) -> None: ...
    def request(self, payload: Any, *, type: str, timeout_ms: int = 10000) -> Any: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Published:
    """The result of a publication."""

    @property
    def offset(self) -> int | None: ...
    @property
    def epoch(self) -> str | None: ...
    @property
    def duplicate(self) -> bool: ...

@final
class PendingPublish:
    """A publication whose result comes later."""

    @property
    def number(self) -> int: ...
    def take(self) -> Published: ...

# --- The client -------------------------------------------------------------------------------------------------

@final
class Ticket:
    """An answer that is awaited."""

    @property
    def number(self) -> int: ...
    def take(self) -> Any: ...
    def wait(self, timeout_ms: int | None = None) -> Any: ...

@final
class ClientMessage:
    """Something that a client received.

    Attributes:
        kind: `message`, `request`, or what happened to the client, such as `connected` and `gap`.
        type: What a message or a request is about.
        payload: What it carries; of what happened to the client, its fields.
        topic: The topic of a publication, or that something happened to.
        position: The place of a publication in its topic's history, a pair of epoch and offset.
    """

    @property
    def kind(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    def __len__(self) -> int: ...
    def json(self) -> Any: ...
    @property
    def payload(self) -> Any: ...
    @property
    def type(self) -> str | None: ...
    @property
    def topic(self) -> str | None: ...
    @property
    def position(self) -> tuple[str, int] | None: ...
    @property
    def id(self) -> str | None: ...
    @property
    def priority(self) -> int: ...
    @property
    def redelivered(self) -> bool: ...
    @property
    def encoding(self) -> Literal["text", "msgpack"]: ...
    @property
    def timeout_ms(self) -> int | None: ...
    def reply(self, payload: Any) -> bool: ...
    def fail(self, code: str, message: str) -> bool: ...

@final
class ClientBatch:
    """Messages that a client received together."""

    def __len__(self) -> int: ...
    def __iter__(self) -> ClientBatchIterator: ...
    def __getitem__(self, index: int, /) -> ClientMessage: ...

@final
class ClientBatchIterator(Iterator[ClientMessage]):
    def __iter__(self) -> ClientBatchIterator: ...
    def __next__(self) -> ClientMessage: ...

@final
class ClientSignal:
    """A descriptor that is readable when something happened."""

    def __new__(cls) -> Self: ...
    def fileno(self) -> int: ...
    def clear(self) -> list[int]: ...

@final
class ClientCore:
    """The native base of `Client`."""

    def __new__(
        cls,
        options: Mapping[str, Any],
        *,
        token: str | None = None,
        token_provider: Any = None,
        server_identity: bytes | None = None,
        signature_secret: bytes | None = None,
    ) -> Self: ...
    @staticmethod
    def option_names() -> list[str]: ...
    def _describe(self) -> str: ...
    @staticmethod
    def forget_all() -> None: ...
    def start(self, once: bool) -> None: ...
    def receive(self, timeout_ms: int = 0) -> ClientBatch: ...
    @property
    def signal(self) -> ClientSignal: ...
    def reason(self) -> BaseException | None: ...
    @property
    def state(self) -> Literal["new", "connecting", "connected", "waiting", "closed"]: ...
    def try_send(self, type: str, payload: Any, priority: _Priority = 5) -> None: ...
    def try_send_raw(self, message: str | bytes | bytearray | memoryview) -> None: ...
    def room(self) -> Ticket: ...
    def connected(self) -> Ticket: ...
    def first_connected(self) -> Ticket: ...
    def close(self, code: int, reason: str) -> Ticket: ...
    def enqueue(
        self,
        topic: str | None,
        type: str,
        payload: Any,
        *,
        priority: _Priority,
        ttl_ms: int | None,
        key: str | None,
        acknowledged: bool,
    ) -> Ticket: ...
    def request(self, type: str, payload: Any, timeout_ms: int | None) -> Ticket: ...
    def subscribe(self, topics: Sequence[str], options: Mapping[str, Any]) -> Ticket: ...
    def unsubscribe(self, topics: Sequence[str]) -> Ticket: ...
    def publish(self, publication: Mapping[str, Any]) -> Ticket: ...
    def try_publish(self, publication: Mapping[str, Any]) -> None: ...
    def presence(self, topics: Sequence[str]) -> Ticket: ...
    def history(
        self, topic: str, *, since: tuple[str, int] | None, limit: int, newest_first: bool
    ) -> Ticket: ...
    def sync(self, topics: Sequence[str]) -> Ticket: ...
    def acknowledge(self, messages: Iterable[ClientMessage]) -> Ticket: ...
    def ping(self) -> Ticket: ...
    def quality_figures(self) -> tuple[float, float, float, int, int]: ...
    def endpoint_figures(
        self,
    ) -> list[tuple[str, int, float | None, Literal["closed", "open", "halfopen"]]]: ...
    def queue_figures(self) -> tuple[int, int]: ...
    @property
    def waiting_bytes(self) -> int: ...

# --- The relay of ASGI connections ------------------------------------------------------------------------------

@final
class Relay:
    def __new__(
        cls,
        host: str,
        target: str,
        headers: list[tuple[bytes, bytes]],
        protocols: list[str],
        message_bytes_max: int,
    ) -> Self: ...
    @property
    def request(self) -> bytes: ...
    def receive(self, data: bytes) -> list[str | bytes | RelayOpened | RelayRefused | RelayClosed]: ...
    def take_replies(self) -> bytes: ...
    def text(self, text: str) -> bytes: ...
    def binary(self, data: bytes) -> bytes: ...
    def close(self, code: int, reason: str) -> bytes: ...

@final
class RelayOpened:
    @property
    def protocol(self) -> str | None: ...

@final
class RelayRefused:
    @property
    def status(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def retry_after(self) -> int | None: ...

@final
class RelayClosed:
    @property
    def code(self) -> int | None: ...
    @property
    def reason(self) -> str: ...
