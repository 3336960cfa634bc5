"""Each option of a server with a value that is not its default, from `options/server.json`.

`crates/tidewire-testkit/src/options.rs` makes the same examples for the tests in Rust.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

TABLES = Path(__file__).parents[3] / "options"
TABLE = json.loads((TABLES / "server.json").read_text())
OPTIONS: dict[str, dict[str, Any]] = {
    option["name"]: option for group in TABLE["groups"] for option in group["options"]
}

KEYS = {
    "no_auth",
    "jwt_secret",
    "jwt_secret_file",
    "jwt_public_key",
    "jwt_jwks_file",
    "jwt_jwks_url",
}
OF_TOKENS = {
    "token_grace_s",
    "token_warning_s",
    "keep_expired_sessions",
    "cookie_name",
    "token_query_parameter",
    "token_subprotocol_prefix",
}
PUBLIC_KEY = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEczs0MHjtsk9OPcN2J8jB211HGMqb
uVw9gwgSili0IDjlEvP2Hawvh0qo6TR+bd68/lSqRfmZxl5vd5Gviu0GvQ==
-----END PUBLIC KEY-----
"""
KEY_SET = """{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"2025-01",
"x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}
"""
CONTENTS = {
    "jwt_jwks_file": KEY_SET,
    "signature_public_key": PUBLIC_KEY,
    "api_keys_file": "backend read,publish 0123456789abcdef\n",
}


class Example(NamedTuple):
    """A value of an option, and the options that have to stand beside it."""

    value: Any
    beside: dict[str, Any]


def example(name: str, folder: Path) -> Example:
    """The example of one option; files are written to `folder`, and their values are paths."""
    option = OPTIONS[name]
    needs = option.get("needs", [])
    beside = {need: _value(need, folder) for need in needs}
    if not KEYS & {name, *needs}:
        if name.startswith("jwt") or name in OF_TOKENS:
            beside["jwt_secret"] = OPTIONS["jwt_secret"]["example"]
        else:
            beside["no_auth"] = True
    if name.startswith("jwt_jwks"):
        # The keys of a login service without an audience are warned of.
        beside["jwt_audience"] = OPTIONS["jwt_audience"]["example"]
    return Example(_value(name, folder), beside)


def client_options() -> list[dict[str, Any]]:
    """The options of the clients."""
    table = json.loads((TABLES / "client.json").read_text())
    return [option for group in table["groups"] for option in group["options"]]


def _value(name: str, folder: Path) -> Any:
    option = OPTIONS[name]
    if option["kind"] != "file":
        return option["example"]
    path = folder / option["example"]
    path.write_text(CONTENTS.get(name, "0123456789abcdef" * 2 + "\n"))
    return path
