"""Exceptions: each says whether the caller or the peer has to act, or whether a later retry is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ._completion import names

if TYPE_CHECKING:
    from ._client_results import Subscription

Fault = Literal["caller", "peer", "server", "nobody"]


class TidewireError(Exception):
    """The base of every exception of this package.

    Attributes:
        code: A stable name, such as `TOPIC_FORBIDDEN` or `BUSY`.
        fault: Who has to act: `caller` (this program), `peer` (the other end), `server`, or `nobody` (try later).
        retry_after: Seconds after which another try makes sense, or `None`.
    """

    code: str = "ERROR"
    fault: Fault = "caller"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        fault: Fault | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
        if fault is not None:
            self.fault = fault
        self.retry_after = retry_after

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r}, code={self.code!r}, fault={self.fault!r})"


class ConfigurationError(TidewireError, ValueError):
    """An option is unknown, or has an invalid value."""

    code = "CONFIGURATION"


class InvalidArgumentError(TidewireError, ValueError):
    """An argument has an invalid value."""

    code = "INVALID_ARGUMENT"


class WrongTypeError(TidewireError, TypeError):
    """An argument or a value in a message has a wrong type."""

    code = "WRONG_TYPE"


class AddressError(TidewireError, OSError):
    """The address is in use, not of this machine, or not permitted."""

    code = "ADDRESS"


class InvalidMessageError(TidewireError, ValueError):
    """A received message is invalid."""

    code = "INVALID_MESSAGE"
    fault = "peer"


class TokenError(TidewireError):
    """A token is rejected."""

    code = "AUTH_FAILED"
    fault = "peer"


class BusyError(TidewireError):
    """The other side is behind; the call had no effect, retry later."""

    code = "BUSY"
    fault = "nobody"


class StoppedError(TidewireError):
    """The server or client has stopped, or was not started."""

    code = "STOPPED"


class CallError(TidewireError):
    """A request was not answered, or was answered with an error."""

    code = "CALL_FAILED"
    fault = "peer"


class CallTimeoutError(CallError, TimeoutError):
    """No answer arrived in time. The server may have executed the request."""

    code = "TIMEOUT"


class SubscriptionError(TidewireError):
    """The server rejects some of the topics; the others are subscribed.

    Attributes:
        subscription: What is subscribed, a `Subscription`.
        failed: Topics that are not.
        reasons: Why, by topic: an error code such as `TOPIC_FORBIDDEN`, and the same in words. Servers that do not tell
            it here send an event of the kind `error` afterwards.
    """

    code = "SUBSCRIPTION_FAILED"

    def __init__(
        self,
        subscription: Subscription,
        failed: list[str],
        reasons: dict[str, tuple[str, str]] | None = None,
    ) -> None:
        self.reasons = reasons or {}
        told = [
            f"{topic} ({': '.join(self.reasons[topic])})" if topic in self.reasons else topic
            for topic in failed
        ]
        words = f"the server does not give {', '.join(told)}"
        if subscription.topics:
            words += f" (but {', '.join(subscription.topics)})"
        super().__init__(words)
        self.subscription = subscription
        self.failed = failed

    def __reduce__(self) -> tuple[type, tuple[Subscription, list[str], dict[str, tuple[str, str]]]]:
        return type(self), (self.subscription, self.failed, self.reasons)


class ConnectionClosedError(TidewireError, ConnectionError):
    """The connection has ended."""

    code = "CONNECTION_CLOSED"
    fault = "peer"


class SecurityError(TidewireError):
    """A signature or an encrypted message does not match its key."""

    code = "SECURITY"
    fault = "peer"


__all__ = [
    "AddressError",
    "BusyError",
    "CallError",
    "CallTimeoutError",
    "ConfigurationError",
    "ConnectionClosedError",
    "Fault",
    "InvalidArgumentError",
    "InvalidMessageError",
    "SecurityError",
    "StoppedError",
    "SubscriptionError",
    "TidewireError",
    "TokenError",
    "WrongTypeError",
]


def __dir__() -> list[str]:
    return names(__all__, globals())
