"""A real server behind proxies of `protocol/scenarios/proxies.json`: what was promised holds, whatever they do."""

from __future__ import annotations

import asyncio
import datetime
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tidewire
from async_support import LOOPS, run_on
from conftest import DEADLINE_S
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from proxied import SERVER_OPTIONS, work_behind
from scenarios import FOLDER
from scenarios.proxy import Proxy, as_json, plan

Serve = Callable[..., tidewire.Server]
FILE: dict[str, Any] = json.loads((FOLDER / "proxies.json").read_text())


def certificate(folder: Path) -> dict[str, Path]:
    """A certificate for `localhost`, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = {"tls_certificate": folder / "cert.pem", "tls_key": folder / "key.pem"}
    files["tls_certificate"].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    files["tls_key"].write_bytes(private)
    return files


@pytest.mark.parametrize("vector", FILE["plans"], ids=lambda vector: str(vector["seed"]))
def test_plans_are_the_same_for_every_implementation(vector: dict[str, Any]) -> None:
    made = plan(vector["seed"], vector["connection"], vector["kinds"])
    assert as_json(made) == vector["plan"]


@pytest.mark.parametrize("spec", FILE["proxies"], ids=lambda spec: spec["name"].replace(" ", "-"))
def test_what_was_promised_holds(serve: Serve, tmp_path: Path, spec: dict[str, Any]) -> None:
    is_secure = spec["transport"] == "wss"
    files = certificate(tmp_path) if is_secure else {}
    options: dict[str, Any] = {"tls_ca_file": files["tls_certificate"]} if is_secure else {}
    keeps_promises = spec["holds"] == "promises"
    if not keeps_promises:
        # Whoever asks in corrupted words gets no answer.
        options["request_timeout_ms"] = 2_000

    def run(loop: str, seed: int, server: tidewire.Server) -> None:
        plans = [plan(seed, number, spec["kinds"]) for number in range(spec["connections"])]
        proxy = Proxy(server.port, plans)
        url = f"{spec['transport']}://localhost:{proxy.port}/ws"
        work = work_behind(proxy, server, url, keeps_promises=keeps_promises, **options)
        try:
            run_on(loop, asyncio.wait_for(work, 8 * DEADLINE_S))
        finally:
            proxy.end()

    with ThreadPoolExecutor() as threads:
        running = [
            threads.submit(run, sorted(LOOPS)[number % 2], seed, serve(**SERVER_OPTIONS, **files))
            for number, seed in enumerate(spec["seeds"])
        ]
    for one in running:
        one.result()
