"""JSON Web Tokens (RFC 7519), signed and checked by the server's own code.

A key is a secret (`HS256`, at least 32 bytes) or PEM text (`RS256`, `ES256`, `EdDSA`). It is for one algorithm, so a
token cannot choose how it is checked. `encode` refuses what a server would refuse, such as claims without `sub` or
`exp`, unless it is told `check=False`. `encode` and `decode` read their keys each time; a `TokenSigner` and a
`TokenVerifier` read them once.

    >>> import time
    >>> secret = "a secret that nobody can guess, 32 bytes or more"
    >>> token = encode({"sub": "user-1", "exp": time.time() + 3600}, secret)
    >>> decode(token, secret)["sub"]
    'user-1'
"""

from __future__ import annotations

from ._completion import names
from ._utilities import TokenKey, TokenSigner, TokenVerifier
from ._utilities import decode_token as decode
from ._utilities import encode_token as encode
from .errors import TokenError

__all__ = ["TokenError", "TokenKey", "TokenSigner", "TokenVerifier", "decode", "encode"]


def __dir__() -> list[str]:
    return names(__all__, globals())
