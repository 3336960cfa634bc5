"""Subscription tokens: tokens of single topics, which the application gives (section 19.10 of the protocol)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ._refusals import log_error
from .errors import InvalidArgumentError, WrongTypeError

TopicTokens = Mapping[str, str] | Callable[[str], str | None]
"""Tokens by topic, or a function that returns the token of a topic, or `None` if there is none."""


class TokenSource:
    """The tokens of one subscription, for the native client. A call never raises, because it runs on the client's
    thread, which has no caller for an exception."""

    __slots__ = ("_token_of",)

    def __init__(self, tokens: TopicTokens) -> None:
        if isinstance(tokens, Mapping):
            self._token_of: Callable[[str], Any] = tokens.get
        elif callable(tokens):
            self._token_of = tokens
        else:
            raise WrongTypeError(
                f"tokens are a dict from topics to tokens, or a function that takes the topic, "
                f"not a {type(tokens).__name__}"
            )

    def __call__(self, topic: str) -> str | None:
        """The token of a topic; `None` if there is none, or if the application's function fails, which is logged."""
        try:
            return _checked(self._token_of(topic))
        except BaseException as error:
            log_error("no token for the topic %s: the function that gives tokens failed", topic, error=error)
            return None


def token_source(tokens: TopicTokens | None) -> TokenSource | None:
    """The argument `tokens` as the native client takes it.

    Raises:
        WrongTypeError: It is neither a dict nor a function.
    """
    return None if tokens is None else TokenSource(tokens)


def _checked(token: Any) -> str | None:
    if inspect.isawaitable(token):
        if inspect.iscoroutine(token):
            token.close()
        raise InvalidArgumentError(
            "the function that gives tokens of topics is no coroutine: fetch tokens before they are needed, "
            "and return them from a function with def instead of async def"
        )
    if token is not None and not isinstance(token, str):
        raise WrongTypeError(f"the token is a text, not a {type(token).__name__}")
    if token is not None and not token.isascii():
        raise InvalidArgumentError("the token is no JWT: it has characters that are not ASCII")
    return token
