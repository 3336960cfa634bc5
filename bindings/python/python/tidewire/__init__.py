"""Tidewire: live data between Python and web pages.

`Server` is the engine, `connect` the client; the rest is useful by itself.
"""

from __future__ import annotations

from ._native import version as __version__
from .errors import *  # noqa: F403
from .errors import __all__ as _errors

__all__ = ["__version__", *_errors]
