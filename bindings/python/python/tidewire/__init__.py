"""Tidewire: live data between Python and web pages.

`Server` is the engine, `connect` the client; the rest is useful by itself.
"""

from __future__ import annotations

from . import _completion, errors, jwt, sync
from ._client import Client, connect
from ._client_results import (
    EndpointHealth,
    HistoryPage,
    Member,
    PublishResult,
    Quality,
    QueueDepth,
    Subscription,
    TopicPosition,
    TopicPresence,
)
from ._client_types import ClientOptions
from ._handlers import HandlerStatistics
from ._json import RawJson
from ._load import LoadProgress, LoadResult, load
from ._load_types import LoadOptions
from ._native import Batch, ClientBatch, ClientMessage, Connection, Message, Published
from ._native import version as __version__
from ._options import ServerOptions, TopicRule
from ._server import Server
from ._server_results import (
    ConnectionInfo,
    PresentUser,
    PresentUsers,
    TopicHistory,
    TopicInfo,
    TopicPublication,
)
from ._utilities import *  # noqa: F403
from ._utilities import __all__ as _utilities
from .errors import *  # noqa: F403
from .errors import __all__ as _errors

__all__ = [
    "Batch",
    "Client",
    "ClientBatch",
    "ClientMessage",
    "ClientOptions",
    "Connection",
    "ConnectionInfo",
    "EndpointHealth",
    "HandlerStatistics",
    "HistoryPage",
    "LoadOptions",
    "LoadProgress",
    "LoadResult",
    "Member",
    "Message",
    "PresentUser",
    "PresentUsers",
    "PublishResult",
    "Published",
    "Quality",
    "QueueDepth",
    "RawJson",
    "Server",
    "ServerOptions",
    "Subscription",
    "TopicHistory",
    "TopicInfo",
    "TopicPosition",
    "TopicPresence",
    "TopicPublication",
    "TopicRule",
    "__version__",
    "connect",
    "errors",
    "jwt",
    "load",
    "sync",
    *_errors,
    *_utilities,
]


def __dir__() -> list[str]:
    return _completion.names(__all__, globals())
