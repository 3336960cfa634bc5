"""Utilities that need no server."""

from __future__ import annotations

from ._native import (
    Envelope,
    Filter,
    Gap,
    IdentityKey,
    KeyPair,
    PriorityQueue,
    RateVerdict,
    Sequencer,
    SessionCipher,
    Signer,
    TokenBucket,
    Verifier,
    compress,
    decompress,
    encode_envelope,
    hmac_sha256,
    json_to_msgpack,
    msgpack_to_json,
    parse_envelope,
    sign,
    verify,
)
from ._native import TokenKey as TokenKey
from ._native import TokenSigner as TokenSigner
from ._native import TokenVerifier as TokenVerifier
from ._native import decode_token as decode_token
from ._native import encode_token as encode_token

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
