"""Tidewire: live data between Python and web pages.

`Server` is the engine, `connect` the client; the rest is useful by itself.
"""

from __future__ import annotations

from . import jwt
from ._handlers import HandlerStatistics
from ._json import RawJson
from ._native import Batch, Connection, Message, Published
from ._native import version as __version__
from ._server import Server
from ._utilities import *  # noqa: F403
from ._utilities import __all__ as _utilities
from .errors import *  # noqa: F403
from .errors import __all__ as _errors

__all__ = [
    "Batch",
    "Connection",
    "HandlerStatistics",
    "Message",
    "Published",
    "RawJson",
    "Server",
    "__version__",
    "jwt",
    *_errors,
    *_utilities,
]
