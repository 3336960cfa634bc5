"""Who may connect, as the application decides it by the request."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import datetime
from inspect import isawaitable
from typing import Any, TypedDict

from ._line_limit import LineLimit
from ._native import nearest_name
from ._refusals import is_interrupt, log_error
from .errors import CallError, InvalidArgumentError, TidewireError, WrongTypeError

logger = logging.getLogger("tidewire")


class Admission(TypedDict, total=False):
    """What `authorize` returns of a client that it lets in. Each key may be left out."""

    user: str | None
    """Who it is: `connection.user`."""
    access: Mapping[str, Any]
    """The topics that it may have, in the form of the access claim; without it those of the server's options."""
    subscriptions: list[str]
    """Topics that it is subscribed to from the start, at most 1000."""
    expires_at: float | datetime
    """When the connection ends: an aware `datetime`, or seconds since 1970."""
    attachment: Any
    """The application's own: `connection.attachment`."""


Answer = Admission | bool | None
Authorize = Callable[[MutableMapping[str, Any]], Answer | Awaitable[Answer]]

UNDECIDED = "null"
"""In JSON: the application could not decide."""


class Complaints:
    """Lines of the log about clients that cannot connect, though it is not their fault."""

    def __init__(self) -> None:
        self._lines = LineLimit()

    def add(self, error: BaseException) -> None:
        """Logs an error with its traceback; past the limit of a second only their number."""
        if self._lines.renews() and (left_out := self._lines.take_left_out()):
            logger.error("%d more clients cannot connect", left_out)
        if self._lines.permits():
            log_error("a client cannot connect", error=error)


async def decide(
    authorize: Authorize, scope: MutableMapping[str, Any], timeout_s: float, complaints: Complaints
) -> tuple[str | None, Any]:
    """The decision of `authorize` in JSON, `None` if the token decides, and what is attached to the connection."""
    try:
        return _written(await _answer(authorize, scope, timeout_s))
    except CallError as error:
        return json.dumps({"refused": {"code": str(error.code), "reason": str(error)}}), None
    except asyncio.CancelledError:
        # Of who waits for the decision.
        raise
    except BaseException as error:
        if is_interrupt(error):
            raise
        complaints.add(error)
    return UNDECIDED, None


async def _answer(authorize: Authorize, scope: MutableMapping[str, Any], timeout_s: float) -> Any:
    answer = authorize(scope)
    if not isawaitable(answer):
        return answer
    # A timeout of the application's own is an error like any other.
    asking = asyncio.ensure_future(_outcome(answer))
    try:
        await asyncio.wait({asking}, timeout=timeout_s)
    finally:
        is_late = not asking.done()
        asking.cancel()
    if is_late:
        raise InvalidArgumentError(f"authorize has not answered in {timeout_s} s")
    answer, error = asking.result()
    if error is not None:
        raise error
    return answer


async def _outcome(awaitable: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    """What it gives, or its error: one that ends a program must not come from a task."""
    try:
        return await awaitable, None
    except asyncio.CancelledError as error:
        return None, TidewireError("authorize was cancelled", code="CANCELLED").with_traceback(
            error.__traceback__
        )
    except BaseException as error:
        if is_interrupt(error):
            raise
        return None, error


def _written(answer: Any) -> tuple[str | None, Any]:
    if answer is True:
        return None, None
    if answer is None or answer is False:
        return json.dumps({"refused": {}}), None
    if not isinstance(answer, Mapping):
        raise WrongTypeError(f"authorize returns a dict, True, False or None, not {answer!r}")
    decision = dict(answer)
    attachment = decision.pop("attachment", None)
    for key in decision:
        if key not in KEYS:
            found = nearest_name(str(key), KEYS)
            hint = f"did you mean {found}?" if found else f"there are {', '.join(KEYS)}"
            raise InvalidArgumentError(f"the answer of authorize has the unknown key {key!r}: {hint}")
    expires_at = decision.get("expires_at")
    if isinstance(expires_at, datetime):
        if expires_at.tzinfo is None:
            raise InvalidArgumentError("expires_at needs a time zone, such as datetime.now(timezone.utc) has")
        expires_at = expires_at.timestamp()
    if isinstance(expires_at, float):
        expires_at = int(expires_at)
    decision["expires_at"] = expires_at
    return json.dumps({key: value for key, value in decision.items() if value is not None}), attachment


KEYS = ("user", "access", "subscriptions", "expires_at", "attachment")
