"""Schemas of payloads: models and types of pydantic, and functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .errors import CallError, WrongTypeError

if TYPE_CHECKING:
    from ._native import Message


def checked(schema: Any, function: Callable[[Message, Any], Any]) -> Callable[[Message], Any]:
    """A handler that gets the checked payload as its second argument.

    Raises:
        WrongTypeError: It is no schema, or no function of two arguments.
    """
    if not callable(function):
        raise WrongTypeError(f"a handler is a function, not {function!r}")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        raise WrongTypeError(
            f"a handler with a schema takes two arguments, the message and the payload: {function!r}"
        ) from None
    check = _check_of(schema)

    def call(message: Message) -> Any:
        return function(message, _accepted(check, message.payload))

    functools.update_wrapper(call, function)
    del call.__wrapped__  # type: ignore[attr-defined]
    return call


def _check_of(schema: Any) -> Callable[[Any], Any]:
    """The function that checks payloads: it returns the value, or raises `ValueError`."""
    if hasattr(schema, "model_validate"):
        return schema.model_validate  # type: ignore[no-any-return]
    if inspect.isroutine(schema):
        if inspect.iscoroutinefunction(schema):
            raise WrongTypeError(f"a schema returns the value at once: {schema!r} is an async def")
        return schema
    try:
        from pydantic import TypeAdapter
    except ImportError:
        raise WrongTypeError(
            f"a schema is a model or type of pydantic, which is not installed, or a function, not {schema!r}"
        ) from None
    if isinstance(schema, TypeAdapter):
        return schema.validate_python
    try:
        return TypeAdapter(schema).validate_python
    except Exception as error:
        raise WrongTypeError(f"pydantic knows no schema for {schema!r}: {error}") from None


def _accepted(check: Callable[[Any], Any], payload: Any) -> Any:
    """The checked value.

    Raises:
        CallError: The payload is another one; its words name what is wrong.
    """
    try:
        return check(payload)
    except ValueError as error:
        raise CallError(_words(error), code=INVALID_PAYLOAD) from None


def _words(error: ValueError) -> str:
    try:
        faults = [(fault["loc"], fault["msg"]) for fault in error.errors()]  # type: ignore[attr-defined]
    except Exception:
        # It is not of pydantic.
        return str(error)
    words = []
    for where, what in faults[:FAULTS_MAX]:
        place = ".".join(str(part) for part in where)
        words.append(f"{place}: {what}" if place else what)
    if len(faults) > FAULTS_MAX:
        words.append(f"{len(faults) - FAULTS_MAX} more")
    return "; ".join(words)


INVALID_PAYLOAD = "INVALID_PAYLOAD"
FAULTS_MAX = 3
"""Faults that the words of a refusal name."""
