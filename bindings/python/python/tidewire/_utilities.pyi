"""The types of the utilities that need no server."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import GenericAlias
from typing import Any, Generic, Literal, TypeAlias, TypeVar, final
from uuid import UUID

__all__ = [
    "Envelope",
    "Filter",
    "Gap",
    "IdentityKey",
    "KeyPair",
    "PriorityQueue",
    "RateVerdict",
    "Sequencer",
    "SessionCipher",
    "Signer",
    "TokenBucket",
    "Verifier",
    "compress",
    "decompress",
    "encode_envelope",
    "hmac_sha256",
    "json_to_msgpack",
    "msgpack_to_json",
    "parse_envelope",
    "sign",
    "verify",
]

_T = TypeVar("_T")
_Bytes: TypeAlias = bytes | bytearray | memoryview
_Text: TypeAlias = str | _Bytes
_Algorithm: TypeAlias = Literal["HS256", "RS256", "ES256", "EdDSA"]
_Key: TypeAlias = _Text | TokenKey
_Keys: TypeAlias = _Key | Iterable[_Key] | Mapping[str, _Key]
_Priority: TypeAlias = Literal[1, 3, 5, 8, 10]
_Position: TypeAlias = tuple[str | int, int]

def compress(data: _Bytes, level: int = 6, *, prefix: bool = False) -> bytes:
    """The zlib stream of `data`; `level` is 0 (stored) to 9 (smallest). With `prefix` it starts with `C:`."""

def decompress(data: _Bytes, *, bytes_max: int = 16777216) -> bytes:
    """The decompressed data of a zlib stream, with or without `C:` before it, at most `bytes_max` bytes.

    Raises:
        InvalidMessageError: The stream holds more (`TOO_LARGE`), ends too early, or is none.
    """

def json_to_msgpack(json: _Text, *, prefix: bool = False) -> bytes:
    """The MessagePack of JSON text. With `prefix` it begins with `M:`."""

def msgpack_to_json(data: _Bytes) -> bytes:
    """The JSON text of MessagePack, with or without `M:` before it."""

def hmac_sha256(key: _Text, message: _Text) -> bytes:
    """HMAC-SHA256 of a message: 32 bytes."""

def sign(payload: _Text, secret: _Text, *, version: Literal[1, 2] = 2, now: float | None = None) -> str:
    """A signature of `payload`, with the time and a nonce in it. The secret has at least 32 bytes."""

def verify(payload: _Text, signature: str, secret: _Text, *, now: float | None = None) -> int:
    """Verifies a signature of `sign`, but not that it is new; use `Verifier` for that. Returns its version.

    Raises:
        SecurityError: The signature is wrong, or older than 5 minutes.
    """

@final
class Signer:
    """A key that signs: a secret of at least 32 bytes, or the private key of P-256 as PKCS#8 in PEM."""

    def __new__(cls, secret: _Text | None = None, *, private_key: str | None = None) -> Signer: ...
    def sign(
        self,
        payload: _Text,
        *,
        type: str | None = None,
        id: str | None = None,
        topic: str | None = None,
        correlation_id: str | None = None,
        version: Literal[1, 2] = 2,
        now: float | None = None,
    ) -> str:
        """A signature of the parts of a message. Version 1 covers only the payload."""

    def sign_message(self, message: _Text, *, version: Literal[1, 2] = 2, now: float | None = None) -> str:
        """A signature of a whole message, JSON or MessagePack."""

    @property
    def public_key(self) -> bytes | None:
        """The key for a `Verifier`, if this key is not a secret: 65 bytes."""

@final
class Verifier:
    """Verifies signatures, and accepts each only once within 5 minutes; stores at most `nonces_max` of them."""

    def __new__(
        cls, secret: _Text | None = None, *, public_key: _Bytes | None = None, nonces_max: int = 1000000
    ) -> Verifier: ...
    def verify(
        self,
        payload: _Text,
        signature: str,
        *,
        type: str | None = None,
        id: str | None = None,
        topic: str | None = None,
        correlation_id: str | None = None,
        now: float | None = None,
    ) -> int:
        """Verifies the signature of the parts of a message, and that it is new. Returns its version.

        Raises:
            SecurityError: The signature is wrong, stale or has been used.
            BusyError: Too many signatures to remember.
        """

    def verify_message(self, message: _Text, *, now: float | None = None) -> int:
        """Verifies the signature in a whole message, and that it is new. Returns its version."""

    @property
    def nonces(self) -> int:
        """The number of stored signatures."""

@final
class KeyPair:
    """One side's fresh keys for one agreement (ECDH on P-256, HKDF-SHA256)."""

    def __new__(cls) -> KeyPair: ...
    @property
    def public_key(self) -> bytes:
        """The public key for the other side: an uncompressed point, 65 bytes."""

    def accept(
        self,
        peer_public_key: _Bytes,
        session: UUID | str,
        *,
        version: Literal[1, 2] = 2,
        identity: IdentityKey | None = None,
    ) -> SessionCipher:
        """Ends the exchange on the answering side. Returns the cipher of both sides.

        Args:
            session: A name of the connection that both sides know; in version 2 keys are good for it alone.
            identity: Signs the agreement; see `SessionCipher.proof`.
        """

    def finish(
        self,
        peer_public_key: _Bytes,
        session: UUID | str,
        *,
        version: Literal[1, 2] = 2,
        proof: _Bytes | None = None,
        pinned: _Bytes | None = None,
    ) -> SessionCipher:
        """Ends the exchange on the side that started it. Returns the cipher of both sides.

        Args:
            proof: The other side's `SessionCipher.proof`.
            pinned: The other side's `IdentityKey.public_key`, which it must prove to have.

        Raises:
            SecurityError: The other side's key is none, or it has not proved its identity.
        """

@final
class IdentityKey:
    """A lasting key, by which one side is known: the private key of P-256 as PKCS#8 in PEM."""

    def __new__(cls, private_key: str) -> IdentityKey: ...
    @property
    def public_key(self) -> bytes:
        """The public key that the other side pins: an uncompressed point, 65 bytes."""

@final
class SessionCipher:
    """The encryption of both sides after a key exchange (AES-256-GCM). In version 2 messages must be opened in
    the order in which they were sealed, each once."""

    def seal(self, plain: _Bytes) -> bytes:
        """`plain`, encrypted: 30 bytes more."""

    def open(self, message: _Bytes) -> bytes:
        """The content of a sealed message of the other side.

        Raises:
            SecurityError: The message was changed, repeated, moved, or sealed with another key.
        """

    @property
    def version(self) -> int:
        """1 or 2, as agreed."""

    @property
    def proof(self) -> bytes | None:
        """The `proof` for `KeyPair.finish`, if `KeyPair.accept` had an identity."""

    @property
    def wants_key_update(self) -> bool:
        """Whether a new key is due; never in version 1."""

    def update_sealing_key(self) -> None:
        """Changes the key of this side, after the other side was notified."""

    def update_opening_key(self) -> None:
        """Changes the key of the other side, after its notification."""

@final
class TokenBucket:
    """A rate limit: `capacity` at once, and `refill_per_s` per second in the long run. It starts full."""

    def __new__(cls, capacity: int, refill_per_s: float) -> TokenBucket: ...
    def take(self, n: int = 1, now: float | None = None) -> RateVerdict:
        """Takes `n` tokens or none. `now` is in seconds on any clock; the default is the clock of the bucket."""

    @property
    def capacity(self) -> int:
        """The number of tokens in a full bucket."""

    @property
    def refill_per_s(self) -> float:
        """The number of new tokens per second."""

@final
class RateVerdict:
    """The result of one request; true if the tokens were taken."""

    def __bool__(self) -> bool: ...
    @property
    def allowed(self) -> bool:
        """Whether the tokens were taken."""

    @property
    def low(self) -> bool:
        """Whether less than a fifth is left. It is true once, and again only after the bucket was half full."""

    @property
    def remaining(self) -> float:
        """The number of tokens that are left."""

    @property
    def retry_after(self) -> float | None:
        """The number of seconds until the tokens are available; `None` if they were taken."""

@final
class Sequencer(Generic[_T]):
    """Puts the messages of many topics in order by their positions, drops duplicates, and reports gaps.

    A message that comes before its turn is held for up to `window_ms` until those before it have come.
    """

    def __new__(
        cls, *, topics_max: int = 10000, held_messages_max: int = 1024, window_ms: int = 1000
    ) -> Sequencer[_T]: ...
    def __class_getitem__(cls, item: Any) -> GenericAlias: ...
    def add(
        self, topic: str, position: _Position, message: _T, *, now: float | None = None
    ) -> tuple[Literal["delivered", "held", "duplicate", "new_epoch"], list[_T | Gap]]:
        """Receives a message. Returns its result, and the messages that can be delivered now."""

    def advance(self, topic: str, position: _Position, *, now: float | None = None) -> list[_T | Gap]:
        """Records that everything up to `position` is known. Returns the messages that can be delivered now."""

    def skip(
        self, topic: str, epoch: str | int, first: int, last: int, *, now: float | None = None
    ) -> list[_T | Gap]:
        """Records that the messages from `first` to `last` are missing. Returns those that can be delivered now."""

    def expire(self, *, now: float | None = None) -> list[_T | Gap]:
        """Ends the waits whose time is over. Returns the gaps, and the messages after them."""

    def forget(self, topic: str) -> list[_T | Gap]:
        """Forgets a topic. Returns its held messages."""

    def position(self, topic: str) -> tuple[str, int] | None:
        """The position of the last delivered message of a topic."""

    @property
    def deadline(self) -> float | None:
        """The time of the next call of `expire`, in seconds on the clock of `now`."""

    @property
    def topics(self) -> int:
        """The number of known topics."""

    @property
    def held(self) -> int:
        """The number of held messages."""

@final
class Gap:
    """Missing messages of a topic: those from `first` to `last`, both included."""

    @property
    def topic(self) -> str: ...
    @property
    def epoch(self) -> str: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    def __len__(self) -> int: ...

@final
class PriorityQueue(Generic[_T]):
    """A bounded queue of five priorities: 10 (critical), 8, 5 (normal), 3, 1; in order of age within each."""

    def __new__(cls, *, items_max: int = 10000, bytes_max: int = 16777216) -> PriorityQueue[_T]: ...
    def __class_getitem__(cls, item: Any) -> GenericAlias: ...
    def push(self, item: _T, priority: _Priority = 5, *, size: int | None = None) -> None:
        """Appends an item to those of its priority.

        Args:
            size: The bytes that it counts for; by default its length, if it is text or bytes-like, else 0.

        Raises:
            BusyError: The queue is full; it is as it was before.
        """

    def push_displacing(
        self, item: _T, priority: _Priority = 5, *, size: int | None = None
    ) -> list[tuple[int, _T]]:
        """`push` that removes less urgent items to make room. Returns them."""

    def pop(self) -> tuple[int, _T] | None:
        """Removes and returns the next item with its priority; `None` if the queue is empty."""

    def pop_many(self, n: int) -> list[tuple[int, _T]]:
        """Removes and returns at most `n` items with their priorities."""

    def peek(self) -> tuple[int, _T] | None:
        """The next item, without removing it."""

    @property
    def bytes(self) -> int:
        """The counted size of all items."""

    def __len__(self) -> int: ...

@final
class Filter:
    """A compiled filter document, which selects payloads."""

    def __new__(cls, document: Mapping[str, Any] | _Text) -> Filter: ...
    def matches(self, payload: object) -> bool:
        """Whether the filter selects a payload: a value, or its JSON text as `str` or bytes-like."""

    def select(self, payloads: Iterable[_T]) -> list[_T]:
        """The selected payloads of `payloads`, in their order."""

    @property
    def document(self) -> str:
        """The filter's document as JSON text, the same for equal documents."""

    def __eq__(self, value: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Envelope:
    """A message that was read."""

    @property
    def category(self) -> Literal["update", "snapshot", "system"] | None:
        """The category of the message; `None` if it has none."""

    @property
    def type(self) -> str:
        """The type of the message, such as `order_created`."""

    @property
    def id(self) -> str | None:
        """The message's id."""

    @property
    def time(self) -> datetime | None:
        """The time of the message, in UTC."""

    @property
    def sequence(self) -> int | None:
        """The sender's count of its messages."""

    @property
    def priority(self) -> int:
        """1 (background), 3, 5 (normal), 8 or 10 (critical)."""

    @property
    def correlation_id(self) -> str | None:
        """The correlation id, which an answer shares with its request."""

    @property
    def signature(self) -> str | None:
        """The sender's signature."""

    @property
    def topic(self) -> str | None:
        """The topic that the message was published to."""

    @property
    def position(self) -> tuple[str, int] | None:
        """The position of the message in the history of its topic: epoch and offset."""

    @property
    def number(self) -> int | None:
        """The producer's number of the message."""

    @property
    def delivery(self) -> int | None:
        """The number by which a member of a queue group acknowledges the message."""

    @property
    def redelivered(self) -> bool:
        """Whether the message was delivered to another member before."""

    @property
    def payload(self) -> Any:
        """The payload; decoded when it is first asked for."""

    @property
    def payload_json(self) -> bytes:
        """The payload as JSON text, as it stands in the message."""

def parse_envelope(message: _Text) -> Envelope:
    """Reads a message: JSON, or MessagePack behind `M:`.

    Raises:
        InvalidMessageError: It is no message, or one of its fields has a wrong type.
    """

def encode_envelope(
    type: str,
    payload: object = None,
    *,
    category: Literal["update", "snapshot", "system"] | None = None,
    id: str | None = None,
    time: float | None = None,
    sequence: int | None = None,
    correlation_id: str | None = None,
    signature: str | None = None,
    number: int | None = None,
    topic: str | None = None,
    position: _Position | None = None,
    priority: _Priority | None = None,
    format: Literal["json", "msgpack"] | None = None,
) -> bytes:
    """A message with this type and payload.

    Args:
        category: Default `update`.
        id: A UUID as text; by default a new one, which sorts by the time.
        time: Seconds since 1970; by default now.
        sequence: The sender's count; default 0.
        topic, position, priority: Make it what a server publishes to many, without time and sequence.
        format: Default `json`.
    """

@final
class TokenKey:
    """A key for one algorithm: a secret for HS256, or PEM text, which names its algorithm."""

    def __new__(
        cls, key: _Text, *, algorithm: _Algorithm | None = None, key_id: str | None = None
    ) -> TokenKey: ...
    @property
    def algorithm(self) -> _Algorithm:
        """`HS256`, `RS256`, `ES256` or `EdDSA`."""

    @property
    def key_id(self) -> str | None:
        """The key's name in the header of tokens."""

@final
class TokenSigner:
    """Signs tokens with one key, which is read once."""

    def __new__(
        cls, key: _Key, *, algorithm: _Algorithm | None = None, key_id: str | None = None
    ) -> TokenSigner: ...
    def encode(self, claims: Mapping[str, Any], *, check: bool = True) -> str:
        """The token with these claims; see `encode`."""

@final
class TokenVerifier:
    """Checks tokens with some keys, which are read once."""

    def __new__(
        cls,
        keys: _Keys,
        *,
        algorithms: Sequence[_Algorithm] | None = None,
        issuer: str | None = None,
        audience: str | None = None,
        leeway_s: int = 5,
        required: Sequence[str] | None = None,
    ) -> TokenVerifier: ...
    def decode(self, token: _Text, *, now: float | None = None) -> dict[str, Any]:
        """The claims of a good token.

        Raises:
            TokenError: The token is not accepted; `code` says why.
        """

def encode_token(
    claims: Mapping[str, Any],
    key: _Key,
    *,
    algorithm: _Algorithm | None = None,
    key_id: str | None = None,
    check: bool = True,
) -> str:
    """A token with these claims, signed with `key`.

    Args:
        claims: `exp`, `nbf` and `iat` may be a `datetime`, in UTC if it has no time zone. Nothing is added.
        key: A secret of at least 32 bytes for HS256, or a private key in PEM, which tells its algorithm.
        key_id: The key's name, `kid` in the token's header.
        check: Refuse claims that a server would refuse: without `sub` or `exp`, with a wrong type, or with an
            `exp` that is past; and a token that is too long. `False` signs any claims, such as those of a token
            that is not for a server.

    Raises:
        InvalidArgumentError: The key is too short, or not of the algorithm's kind; or `check` refuses the claims.
    """

def decode_token(
    token: _Text,
    keys: _Keys,
    *,
    algorithms: Sequence[_Algorithm] | None = None,
    issuer: str | None = None,
    audience: str | None = None,
    leeway_s: int = 5,
    required: Sequence[str] | None = None,
    now: float | None = None,
) -> dict[str, Any]:
    """The claims of a token that one of `keys` signed.

    Args:
        keys: A key; several, all of which are tried; or a `dict` of them by their `kid`.
        algorithms: Which of the keys to use, by their algorithms; default all.
        issuer, audience: What `iss` has to be, and `aud` to be or contain; default not checked.
        leeway_s: How far the clocks may be apart.
        required: Claims that must be there; default `sub` and `exp`, as a server wants them.
        now: The time, in seconds since 1970; default the clock's.

    Raises:
        TokenError: The token is not accepted; `code` is `EXPIRED`, `NOT_YET_VALID`, `WRONG_SIGNATURE`,
            `WRONG_ALGORITHM`, `UNKNOWN_KEY`, `WRONG_ISSUER`, `WRONG_AUDIENCE`, `MISSING_CLAIM`, `MALFORMED`,
            `MISSING` or `TOO_LONG`.
    """
