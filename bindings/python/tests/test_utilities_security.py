"""Signatures and encryption, against hmac and cryptography."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import uuid
from typing import Any

import pytest
import tidewire
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from tidewire import BusyError, InvalidArgumentError, InvalidMessageError, SecurityError, WrongTypeError

SECRET = b"a secret of more than thirty-two bytes"
NOW = 1_700_000_000.0


def private_key() -> tuple[ec.EllipticCurvePrivateKey, str]:
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key, pem.decode()


def point(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)


def refused(action: Any, *given: Any, **named: Any) -> str:
    with pytest.raises(SecurityError) as error:
        action(*given, **named)
    return error.value.code


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 100_000])
def test_hmac_is_that_of_the_standard_library(length: int) -> None:
    generator = random.Random(length)
    for key_length in (0, 16, 64, 65, 1000):
        key, message = generator.randbytes(key_length), generator.randbytes(length)
        assert tidewire.hmac_sha256(key, message) == hmac.digest(key, message, "sha256")
    assert tidewire.hmac_sha256("ü", "ü") == hmac.digest("ü".encode(), "ü".encode(), "sha256")


def test_the_older_signature_can_be_made_by_hand() -> None:
    payload = b'{"n": 1}'
    signature = tidewire.sign(payload, SECRET, version=1, now=NOW)
    digest, seconds, nonce, mac = signature.split(":")
    assert (digest, seconds) == (hashlib.sha256(payload).hexdigest(), "1700000000")
    assert mac == hmac.new(SECRET, f"{digest}:{seconds}:{nonce}".encode(), "sha256").hexdigest()
    assert tidewire.verify(payload, signature, SECRET, now=NOW) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_signature_covers_the_payload_and_the_time(version: Any) -> None:
    signature = tidewire.sign("pay 5", SECRET, version=version, now=NOW)
    assert tidewire.verify(b"pay 5", signature, SECRET, now=NOW + 300) == version
    assert refused(tidewire.verify, "pay 6", signature, SECRET, now=NOW) == "SIGNATURE_WRONG"
    assert refused(tidewire.verify, "pay 5", signature, SECRET + b"x", now=NOW) == "SIGNATURE_WRONG"
    for stale in (NOW + 301, NOW - 301):
        assert refused(tidewire.verify, "pay 5", signature, SECRET, now=stale) == "SIGNATURE_STALE"
    for broken in ("", "x", "2:", signature[:-4], signature + ":", signature.replace(":", ";")):
        assert refused(tidewire.verify, "pay 5", broken, SECRET, now=NOW).startswith("SIGNATURE_")


def test_a_verifier_accepts_each_signature_once() -> None:
    signer, verifier = tidewire.Signer(SECRET), tidewire.Verifier(SECRET, nonces_max=3)
    first = signer.sign("a", now=NOW)
    assert verifier.verify("a", first, now=NOW) == 2
    assert refused(verifier.verify, "a", first, now=NOW + 1) == "SIGNATURE_REPLAYED"
    assert refused(verifier.verify, "b", first, now=NOW + 1) == "SIGNATURE_WRONG"
    assert verifier.nonces == 1, "what is wrong takes no room"
    for _ in range(2):
        assert verifier.verify("a", signer.sign("a", now=NOW), now=NOW) == 2
    with pytest.raises(BusyError) as full:
        verifier.verify("a", signer.sign("a", now=NOW), now=NOW)
    assert full.value.retry_after == 100.0
    assert verifier.verify("a", signer.sign("a", now=NOW + 500), now=NOW + 500) == 2
    assert refused(verifier.verify, "a", first, now=NOW) == "SIGNATURE_STALE"


def test_the_newer_signature_covers_the_whole_message() -> None:
    signer, verifier = tidewire.Signer(SECRET), tidewire.Verifier(SECRET)
    parts: Any = {"type": "transfer", "id": "7", "topic": "bank", "correlation_id": "c"}
    signature = signer.sign("{}", **parts, now=NOW)
    for part in parts:
        changed: Any = {**parts, part: "other"}
        assert refused(verifier.verify, "{}", signature, **changed, now=NOW) == "SIGNATURE_WRONG"
    assert verifier.verify("{}", signature, **parts, now=NOW) == 2
    with pytest.raises(InvalidArgumentError, match="line break"):
        signer.sign("{}", type="a\nb")


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_whole_messages_are_signed_and_verified(form: Any) -> None:
    signer, verifier = tidewire.Signer(SECRET), tidewire.Verifier(SECRET)
    identity = str(uuid.uuid4())
    fields: Any = {"payload": {"to": "b"}, "id": identity, "format": form}
    unsigned = tidewire.encode_envelope("transfer", **fields)
    assert refused(verifier.verify_message, unsigned) == "SIGNATURE_MISSING"
    signature = signer.sign_message(unsigned)
    message = tidewire.encode_envelope("transfer", signature=signature, **fields)
    assert verifier.verify_message(message) == 2
    assert refused(verifier.verify_message, message) == "SIGNATURE_REPLAYED"
    other = tidewire.encode_envelope("refund", signature=signature, **fields)
    assert refused(verifier.verify_message, other) == "SIGNATURE_WRONG"
    with pytest.raises(InvalidMessageError):
        verifier.verify_message("[]")
    assert refused(verifier.verify_message, '{"t":"a","t":"b","sig":"x"}') == "SIGNATURE_AMBIGUOUS"


def test_a_private_key_signs_and_others_verify() -> None:
    key, pem = private_key()
    signer = tidewire.Signer(private_key=pem)
    assert signer.public_key == point(key.public_key())
    verifier = tidewire.Verifier(public_key=signer.public_key)
    signature = signer.sign("{}", type="a")
    assert verifier.verify("{}", signature, type="a") == 2
    assert refused(verifier.verify, "{}", signature, type="b") == "SIGNATURE_WRONG"
    assert refused(tidewire.Verifier(SECRET).verify, "{}", signature, type="a") == "SIGNATURE_WRONG"
    with pytest.raises(InvalidArgumentError, match="version 1"):
        signer.sign("{}", version=1)
    algorithm, seconds, nonce, encoded = signature.removeprefix("2:").split(":")
    raw = base64.urlsafe_b64decode(encoded + "==")
    der = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    lines = ["tidewire signature 2", "a", "", "", "", seconds, nonce, hashlib.sha256(b"{}").hexdigest()]
    assert algorithm == "es256"
    key.public_key().verify(der, "\n".join(lines).encode(), ec.ECDSA(hashes.SHA256()))


def test_unusable_signing_keys() -> None:
    for short in ("", b"x" * 31):
        with pytest.raises(InvalidArgumentError, match="32 bytes"):
            tidewire.sign("a", short)
        with pytest.raises(InvalidArgumentError, match="32 bytes"):
            tidewire.Verifier(short)
    for nothing in (tidewire.Signer, tidewire.Verifier):
        with pytest.raises(InvalidArgumentError, match="either"):
            nothing()
    with pytest.raises(InvalidArgumentError, match="either"):
        tidewire.Signer(SECRET, private_key="x")
    with pytest.raises(InvalidArgumentError, match="PEM"):
        tidewire.Signer(private_key="x")
    with pytest.raises(InvalidArgumentError, match="65 bytes, not 3"):
        tidewire.Verifier(public_key=b"abc")
    with pytest.raises(InvalidArgumentError, match="P-256"):
        tidewire.Verifier(public_key=bytes(65))
    with pytest.raises(InvalidArgumentError, match="version"):
        tidewire.sign("a", SECRET, version=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="surrogate"):
        tidewire.sign("\ud800", SECRET)


def agreed(version: Any, **named: Any) -> tuple[tidewire.SessionCipher, tidewire.SessionCipher]:
    client, server, session = tidewire.KeyPair(), tidewire.KeyPair(), uuid.uuid4()
    identity = named.pop("identity", None)
    at_server = server.accept(client.public_key, session, version=version, identity=identity)
    at_client = client.finish(
        server.public_key, str(session), version=version, proof=at_server.proof, pinned=named.get("pinned")
    )
    return at_client, at_server


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("plain", [b"", b"a", b"x" * 100_000], ids=len)
def test_both_sides_open_what_the_other_sealed(version: Any, plain: bytes) -> None:
    client, server = agreed(version)
    for _ in range(3):
        sealed = client.seal(plain)
        assert sealed[:2] == b"E:"
        assert len(sealed) == len(plain) + 30
        assert server.open(sealed) == plain
        assert client.open(server.seal(memoryview(plain))) == plain
    assert (client.version, server.version) == (version, version)


def test_version_1_is_ecdh_hkdf_and_aes_gcm() -> None:
    key, _ = private_key()
    ours = tidewire.KeyPair()
    cipher = ours.accept(point(key.public_key()), str(uuid.uuid4()), version=1)
    theirs = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), ours.public_key)
    derived = HKDF(hashes.SHA256(), 32, salt=None, info=b"wse-encryption/aes-gcm-key").derive(
        key.exchange(ec.ECDH(), theirs)
    )
    sealed = cipher.seal(b"from us")
    assert AESGCM(derived).decrypt(sealed[2:14], sealed[14:], None) == b"from us"
    iv = bytes(12)
    assert cipher.open(b"E:" + iv + AESGCM(derived).encrypt(iv, b"from them", None)) == b"from them"


def test_what_was_changed_repeated_or_moved_is_refused() -> None:
    client, server = agreed(2)
    first, second = client.seal(b"first"), client.seal(b"second")
    assert refused(server.open, second) == "OUT_OF_ORDER"
    assert refused(server.open, first[:-1] + bytes([first[-1] ^ 1])) == "TAMPERED"
    assert server.open(first) == b"first"
    assert refused(server.open, first) == "OUT_OF_ORDER"
    assert server.open(second) == b"second"
    for broken in (b"", b"E:", first[:29], b"M:" + first[2:]):
        assert refused(server.open, broken) == "NOT_ENCRYPTED"
    older, _ = agreed(1)
    assert refused(older.open, older.seal(b"own")) == "REFLECTED"
    stranger, _ = agreed(2)
    assert refused(stranger.open, server.seal(b"x")) == "TAMPERED"


def test_keys_are_changed_under_way() -> None:
    client, server = agreed(2)
    assert server.open(client.seal(b"a")) == b"a"
    client.update_sealing_key()
    sealed = client.seal(b"b")
    assert refused(server.open, sealed) in {"TAMPERED", "OUT_OF_ORDER"}
    server.update_opening_key()
    assert server.open(sealed) == b"b"
    assert not client.wants_key_update
    older, _ = agreed(1)
    with pytest.raises(InvalidArgumentError, match="version=2"):
        older.update_sealing_key()


def test_a_pinned_server_proves_who_it_is() -> None:
    key, pem = private_key()
    identity = tidewire.IdentityKey(pem)
    pinned = identity.public_key
    assert pinned == point(key.public_key())
    client, server = agreed(2, identity=identity, pinned=pinned)
    assert server.open(client.seal(b"x")) == b"x"
    with pytest.raises(SecurityError, match="identity"):
        agreed(2, pinned=pinned)
    with pytest.raises(SecurityError, match="identity"):
        agreed(2, identity=tidewire.IdentityKey(private_key()[1]), pinned=pinned)


def test_the_session_is_part_of_the_agreement() -> None:
    client, server = tidewire.KeyPair(), tidewire.KeyPair()
    at_server = server.accept(client.public_key, uuid.uuid4())
    at_client = client.finish(server.public_key, uuid.uuid4())
    assert refused(at_server.open, at_client.seal(b"x")) == "TAMPERED"


def test_unusable_agreements() -> None:
    pair = tidewire.KeyPair()
    session = uuid.uuid4()
    for wrong in (b"", bytes(64), bytes(66)):
        with pytest.raises(InvalidArgumentError, match="65 bytes"):
            pair.accept(wrong, session)
    with pytest.raises(InvalidArgumentError, match="session"):
        pair.accept(pair.public_key, "room 5")
    with pytest.raises(InvalidArgumentError, match="version"):
        pair.accept(pair.public_key, session, version=3)  # type: ignore[arg-type]
    with pytest.raises(WrongTypeError):
        pair.accept("x" * 65, session)  # type: ignore[arg-type]
    assert refused(pair.accept, bytes([4]) + bytes(64), session) == "PEER_KEY"
    with pytest.raises(InvalidArgumentError, match="agrees once"):
        pair.accept(tidewire.KeyPair().public_key, session)
    assert "secret" not in json.dumps([repr(pair), repr(tidewire.Signer(SECRET))])
