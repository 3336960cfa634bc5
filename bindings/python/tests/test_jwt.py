"""Tokens, against PyJWT as the independent implementation."""

from __future__ import annotations

import base64
import hmac
import time
from datetime import datetime, timedelta, timezone
from typing import Any

import jwt as pyjwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tidewire import InvalidArgumentError, TidewireError, TokenError, WrongTypeError, jwt

SECRET = "a secret of more than thirty-two bytes"
OTHER = "another secret of more than 32 bytes!!"
NOW = 1_700_000_000


def pems(private: Any) -> tuple[str, str]:
    return (
        private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ).decode(),
        private.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode(),
    )


RSA = pems(rsa.generate_private_key(65537, 2048))
EC = pems(ec.generate_private_key(ec.SECP256R1()))
ED = pems(ed25519.Ed25519PrivateKey.generate())
PAIRS: dict[str, tuple[str, str]] = {"HS256": (SECRET, SECRET), "RS256": RSA, "ES256": EC, "EdDSA": ED}


def claims(**more: Any) -> dict[str, Any]:
    return {"sub": "user-1", "exp": int(time.time()) + 600, **more}


def code_of(token: str | bytes, keys: Any, **rules: Any) -> str:
    with pytest.raises(TokenError) as refused:
        jwt.decode(token, keys, **rules)
    assert refused.value.fault == "peer"
    return refused.value.code


@pytest.mark.parametrize("algorithm", PAIRS)
def test_pyjwt_reads_our_tokens_and_we_read_its(algorithm: Any) -> None:
    private, public = PAIRS[algorithm]
    said = claims(roles=["a", "b"], nested={"ü": None, "n": 1.5})
    ours = jwt.encode(said, private, algorithm=algorithm, key_id="k1")
    assert pyjwt.decode(ours, public, algorithms=[algorithm]) == said
    assert pyjwt.get_unverified_header(ours) == {"typ": "JWT", "alg": algorithm, "kid": "k1"}
    theirs = pyjwt.encode(said, private, algorithm=algorithm)
    assert jwt.decode(theirs, public) == said
    assert jwt.decode(theirs.encode(), public, algorithms=[algorithm]) == said


@pytest.mark.parametrize("algorithm", PAIRS)
def test_a_changed_token_is_refused(algorithm: Any) -> None:
    private, public = PAIRS[algorithm]
    head, body, signature = jwt.encode(claims(), private).split(".")
    for changed in range(0, len(body), 7):
        other = body[:changed] + ("A" if body[changed] != "A" else "B") + body[changed + 1 :]
        assert code_of(f"{head}.{other}.{signature}", public) == "WRONG_SIGNATURE"
    middle = len(signature) // 2
    other = signature[:middle] + ("A" if signature[middle] != "A" else "B") + signature[middle + 1 :]
    assert code_of(f"{head}.{body}.{other}", public) == "WRONG_SIGNATURE"


def test_the_key_tells_the_algorithm() -> None:
    for algorithm, (private, public) in PAIRS.items():
        assert jwt.TokenKey(private).algorithm == algorithm
        assert jwt.TokenKey(public.encode()).algorithm == algorithm


def test_a_public_key_is_never_a_secret() -> None:
    """The classic attack: an HMAC whose secret is the text of the public key."""
    part = jwt.encode(claims(), SECRET).rsplit(".", 1)[0]
    mac = hmac.digest(RSA[1].encode(), part.encode(), "sha256")
    forged = f"{part}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    assert code_of(forged, RSA[1]) == "WRONG_ALGORITHM"
    assert code_of(forged, [RSA[1], SECRET]) == "WRONG_SIGNATURE"
    with pytest.raises(InvalidArgumentError, match="HS256 takes a secret"):
        jwt.encode(claims(), RSA[1], algorithm="HS256")
    none = pyjwt.encode(claims(), "", algorithm="none")
    for _, public in PAIRS.values():
        assert code_of(none, public) == "WRONG_ALGORITHM"


def test_keys_are_rotated() -> None:
    old, new = jwt.encode(claims(), OTHER), jwt.encode(claims(), SECRET)
    for token in (old, new):
        assert jwt.decode(token, [SECRET, OTHER])["sub"] == "user-1"
        assert jwt.decode(token, [RSA[1], SECRET, EC[1], OTHER])["sub"] == "user-1"
    assert code_of(old, [SECRET]) == "WRONG_SIGNATURE"
    by_id = {"2025": OTHER, "2026": SECRET}
    assert jwt.decode(jwt.encode(claims(), SECRET, key_id="2026"), by_id)["sub"] == "user-1"
    assert code_of(jwt.encode(claims(), SECRET, key_id="2025"), by_id) == "WRONG_SIGNATURE"
    assert code_of(jwt.encode(claims(), SECRET, key_id="2024"), by_id) == "UNKNOWN_KEY"
    assert code_of(new, by_id) == "UNKNOWN_KEY"
    named = jwt.TokenKey(SECRET, key_id="2026")
    assert pyjwt.get_unverified_header(jwt.encode(claims(), named))["kid"] == "2026"
    assert jwt.decode(jwt.encode(claims(), named), [OTHER, named])["sub"] == "user-1"


def test_algorithms_choose_among_the_keys() -> None:
    token = jwt.encode(claims(), SECRET)
    assert code_of(token, [SECRET, RSA[1]], algorithms=["RS256"]) == "WRONG_ALGORITHM"
    with pytest.raises(InvalidArgumentError, match="at least one key"):
        jwt.decode(token, SECRET, algorithms=["ES256"])
    with pytest.raises(InvalidArgumentError, match="HS512"):
        jwt.decode(token, SECRET, algorithms=["HS512"])  # type: ignore[list-item]
    with pytest.raises(WrongTypeError, match="list of str"):
        jwt.decode(token, SECRET, algorithms="HS256")  # type: ignore[arg-type]


def test_times_are_checked_with_a_leeway() -> None:
    token = jwt.encode({"sub": "a", "exp": NOW, "nbf": NOW - 100}, SECRET, check=False)
    assert jwt.decode(token, SECRET, now=NOW + 4)["exp"] == NOW
    assert code_of(token, SECRET, now=NOW + 5) == "EXPIRED"
    assert code_of(token, SECRET, now=NOW, leeway_s=0) == "EXPIRED"
    assert jwt.decode(token, SECRET, now=NOW - 1, leeway_s=0)["sub"] == "a"
    assert jwt.decode(token, SECRET, now=NOW - 105)["sub"] == "a"
    assert code_of(token, SECRET, now=NOW - 106) == "NOT_YET_VALID"
    assert code_of(jwt.encode({"sub": "a", "exp": 1}, SECRET, check=False), SECRET) == "EXPIRED"


def test_a_datetime_is_a_time_in_utc() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=timezone(timedelta(hours=5)))
    said = {
        "sub": "a",
        "exp": moment,
        "iat": moment.astimezone(timezone.utc).replace(tzinfo=None),
        "nbf": moment,
    }
    token = jwt.encode(said, SECRET, check=False)
    seconds = int(moment.timestamp())
    read = jwt.decode(token, SECRET, now=seconds)
    assert read == {"sub": "a", "exp": seconds, "iat": seconds, "nbf": seconds}
    assert said["exp"] is moment, "the caller's claims stay as they are"


def test_issuer_and_audience() -> None:
    token = jwt.encode(claims(iss="login", aud=["app", "admin"]), SECRET)
    assert jwt.decode(token, SECRET, issuer="login", audience="admin")["iss"] == "login"
    assert code_of(token, SECRET, issuer="other") == "WRONG_ISSUER"
    assert code_of(token, SECRET, audience="other") == "WRONG_AUDIENCE"
    assert code_of(jwt.encode(claims(), SECRET), SECRET, issuer="login") == "WRONG_ISSUER"
    assert code_of(jwt.encode(claims(), SECRET), SECRET, audience="app") == "WRONG_AUDIENCE"


def test_required_claims() -> None:
    assert code_of(jwt.encode({"exp": time.time() + 60}, SECRET, check=False), SECRET) == "MISSING_CLAIM"
    assert (
        code_of(jwt.encode({"sub": "", "exp": time.time() + 60}, SECRET, check=False), SECRET)
        == "MISSING_CLAIM"
    )
    assert code_of(jwt.encode({"sub": "a"}, SECRET, check=False), SECRET) == "MISSING_CLAIM"
    assert jwt.decode(jwt.encode({}, SECRET, check=False), SECRET, required=[]) == {}
    assert (
        code_of(jwt.encode({"jti": None}, SECRET, check=False), SECRET, required=["jti", "tenant"])
        == "MISSING_CLAIM"
    )


def test_what_a_server_would_refuse_is_not_signed() -> None:
    soon = time.time() + 60
    signer = jwt.TokenSigner(SECRET)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"exp": soon}, "claim sub is missing"),
        ({"sub": "", "exp": soon}, "claim sub is missing"),
        ({"sub": "a"}, "claim exp is missing"),
        ({"sub": "a", "exp": time.time() - 3600}, "exp is past"),
        ({"sub": "a", "exp": datetime(2020, 1, 1, tzinfo=timezone.utc)}, "exp is past"),
        ({"sub": 5, "exp": soon}, "sub and iss have to be text"),
        ({"sub": "a", "exp": soon, "filling": "x" * 8192}, "a server accepts 8192 at most"),
    ]
    for unusable, words in refused:
        with pytest.raises(InvalidArgumentError, match=words):
            jwt.encode(unusable, SECRET)
        with pytest.raises(InvalidArgumentError, match=words):
            signer.encode(unusable)
        assert jwt.encode(unusable, SECRET, check=False).count(".") == 2
        assert signer.encode(unusable, check=False).count(".") == 2
    later = {"sub": "a", "exp": soon, "nbf": soon - 30}
    assert code_of(jwt.encode(later, SECRET), SECRET) == "NOT_YET_VALID"


def test_what_is_no_token_is_refused() -> None:
    good = jwt.encode(claims(), SECRET)
    head, body, signature = good.split(".")
    for broken in (
        "a",
        "a.b",
        "a.b.c",
        "....",
        f"{head}.{body}",
        f"{good}.x",
        f" {good}",
        f"{head}..{signature}",
    ):
        assert code_of(broken, SECRET) in {"MALFORMED", "WRONG_SIGNATURE"}
    assert code_of("", SECRET) == "MISSING"
    assert code_of("a" * 8193, SECRET) == "TOO_LONG"
    assert code_of(b"\xff" + good.encode(), SECRET) == "MALFORMED"
    twice = pyjwt.api_jws.PyJWS().encode(b'{"sub":"a","sub":"b","exp":9999999999}', SECRET, "HS256")
    assert code_of(twice, SECRET) == "MALFORMED"


def test_unusable_keys_and_claims() -> None:
    for short in ("", "x" * 31, b"x" * 31):
        with pytest.raises(InvalidArgumentError, match="at least 32 bytes"):
            jwt.encode(claims(), short)
        with pytest.raises(InvalidArgumentError, match="at least 32 bytes"):
            jwt.decode("a.b.c", short)
    with pytest.raises(InvalidArgumentError, match="give the public key"):
        jwt.decode("a.b.c", RSA[0])
    with pytest.raises(InvalidArgumentError, match="private key"):
        jwt.encode(claims(), RSA[1])
    with pytest.raises(InvalidArgumentError, match="no key of RSA"):
        jwt.decode("a.b.c", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    with pytest.raises(InvalidArgumentError, match="for RS256"):
        jwt.encode(claims(), jwt.TokenKey(RSA[0]), algorithm="HS256")
    wrong: Any
    for wrong in (None, 5, {"sub"}, ["sub"]):
        with pytest.raises(WrongTypeError):
            jwt.encode(wrong, SECRET)
    for wrong in (None, 5, [5], {"id": 5}, {5: SECRET}):
        with pytest.raises(WrongTypeError):
            jwt.decode("a.b.c", wrong)
    with pytest.raises(WrongTypeError, match="exp"):
        jwt.encode({"exp": "tomorrow"}, SECRET, check=False)
    with pytest.raises(TidewireError):
        jwt.encode({"sub": object()}, SECRET)


def test_prepared_keys_are_the_same_and_say_nothing_of_the_secret() -> None:
    signer, verifier = jwt.TokenSigner(SECRET), jwt.TokenVerifier([SECRET, RSA[1]])
    assert verifier.decode(signer.encode(claims(n=1)))["n"] == 1
    shown = f"{signer!r} {verifier!r} {jwt.TokenKey(SECRET, key_id='k')!r}"
    assert SECRET not in shown
    assert "HS256" in shown
    assert "2 keys" in shown
