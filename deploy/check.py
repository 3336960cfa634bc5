"""Checks the files of this folder with the programs that read them.

    python3 deploy/check.py PROGRAM

PROGRAM is a built `tidewire`. The units are checked by `systemd-analyze verify`, and the server is started by
`systemd-socket-activate` for a connection that waits. Of each proxy that is installed, the file is
used with free ports and a certificate made here: a WebSocket client connects through it by TLS and claims another address
for itself; the server has to know the real one if it trusts the proxy, and that of the proxy if not. A proxy that is not
installed is named, and not tested.

Exit code: 0 if everything that could be checked is right, 1 if not, 2 for a wrong command line.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from local import free_port

FOLDER = Path(__file__).resolve().parent
KEY = "0123456789abcdef"
HOST = "live.example.com"
WAIT_S = 30
PROXY = "127.0.0.1"
# Another address of this machine, so that it shows whose address the server believes.
CLIENT = "127.0.0.5"


def wait_for(port: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def make_certificate(folder: Path) -> None:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem"]
    name = ["-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}", "-days", "2"]
    subprocess.run(
        ["openssl", "req", "-x509", *key, "-out", "chain.pem", *name], cwd=folder, check=True, capture_output=True
    )
    both = (folder / "chain.pem").read_text() + (folder / "key.pem").read_text()
    (folder / "chain-and-key.pem").write_text(both)


def upgrade(stream: socket.socket, host: str = "localhost") -> bytes:
    """The answer of the server to a WebSocket client, up to `server_ready`, a refusal or its end."""
    stream.settimeout(WAIT_S)
    stream.sendall(
        f"GET /ws HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n"
        "X-Forwarded-For: 203.0.113.9\r\nForwarded: for=203.0.113.9\r\n\r\n".encode()
    )
    received = b""
    while b"server_ready" not in received:
        part = stream.recv(4096)
        if not part:
            break
        received += part
        if b"\r\n\r\n" in received and not received.startswith(b"HTTP/1.1 101 "):
            break
    return received


def connect(port: int) -> socket.socket:
    return socket.create_connection((PROXY, port), source_address=(CLIENT, 0))


def open_websocket(folder: Path, port: int) -> ssl.SSLSocket:
    """A connection through the proxy that has received `server_ready`."""
    context = ssl.create_default_context(cafile=folder / "chain.pem")
    deadline = time.monotonic() + WAIT_S
    while True:
        stream = context.wrap_socket(connect(port), server_hostname=HOST)
        received = upgrade(stream, HOST)
        if received.startswith(b"HTTP/1.1 101 ") and b"server_ready" in received:
            return stream
        # A proxy that has just started may not know the server yet.
        if b" 503 " not in received[:20] or time.monotonic() > deadline:
            raise AssertionError(f"no session through the proxy: {received!r}")
        time.sleep(0.1)


def addresses(operations: int) -> list[str]:
    request = urllib.request.Request(f"http://127.0.0.1:{operations}/api/v1/connections", headers={"X-API-Key": KEY})
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return [connection["address"] for connection in json.load(answer)["connections"]]


def check_proxy(program: str, start: Callable[[Path, int, int], list[str]]) -> None:
    """`start` writes a configuration for a port and the server's port, and returns the command of the proxy."""
    believed = address_through(program, start, trusted=PROXY)
    assert believed.startswith(f"{CLIENT}:"), f"the server trusts the proxy and believes {believed}"
    try:
        believed = address_through(program, start, trusted="192.0.2.1")
    except AssertionError:
        # The server cannot read a PROXY header of somebody whom it does not trust.
        return
    assert believed.startswith(f"{PROXY}:"), f"the server does not trust the proxy and believes {believed}"


def address_through(program: str, start: Callable[[Path, int, int], list[str]], trusted: str) -> str:
    """The address that the server believes of a client that comes through the proxy."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        make_certificate(folder)
        public, clients, operations = free_port(), free_port(), free_port()
        serve = [program, "serve", "--no-auth", "--listen", f"127.0.0.1:{clients}"]
        serve += ["--ops-listen", f"127.0.0.1:{operations}", "--api-key", KEY]
        serve += ["--trusted-proxy", trusted, "--allow-host", HOST]
        children = [subprocess.Popen(serve, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)]
        try:
            wait_for(operations)
            children.append(subprocess.Popen(start(folder, public, clients)))
            wait_for(public)
            with open_websocket(folder, public):
                [address] = addresses(operations)
                return address
        finally:
            for child in reversed(children):
                child.terminate()
            for child in children:
                child.wait()


def replaced(name: str, folder: Path, words: dict[str, str]) -> Path:
    """A file of this folder with other words in the places that differ on each machine."""
    text = (FOLDER / name).read_text()
    for old, new in words.items():
        assert old in text, f"{name} has no {old}"
        text = text.replace(old, new)
    made = folder / name
    made.write_text(text)
    return made


def nginx(folder: Path, public: int, clients: int) -> list[str]:
    words = {"listen 443": f"listen 127.0.0.1:{public}", "127.0.0.1:5006": f"127.0.0.1:{clients}"}
    site = replaced("nginx.conf", folder, words | {"/etc/ssl/live": str(folder)})
    main = folder / "main.conf"
    paths = " ".join(f"{kind}_temp_path {folder};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    main.write_text(
        f"daemon off; pid {folder}/pid; error_log stderr;\nevents {{}}\n"
        f"http {{ access_log off; {paths} include {site}; }}\n"
    )
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    return [str(program), "-p", str(folder), "-c", str(main)]


def haproxy(folder: Path, public: int, clients: int) -> list[str]:
    words = {"bind :443": f"bind 127.0.0.1:{public}", "127.0.0.1:5006": f"127.0.0.1:{clients}"}
    made = replaced("haproxy.cfg", folder, words | {"/etc/ssl/live": str(folder)})
    program = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin")
    return [str(program), "-f", str(made)]


def caddy(folder: Path, public: int, clients: int) -> list[str]:
    site = f"{{\n\tadmin off\n\tauto_https disable_redirects\n\tlog {{\n\t\tlevel ERROR\n\t}}\n}}\nhttps://{HOST}:{public} {{\n"
    site += f"\ttls {folder}/chain.pem {folder}/key.pem"
    made = replaced("Caddyfile", folder, {"live.example.com {": site, "127.0.0.1:5006": f"127.0.0.1:{clients}"})
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(made)]


def check_unit(program: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        # The verification looks for the program; the user exists on the machine where the unit is installed.
        unit = replaced("tidewire.service", Path(name), {"/usr/local/bin/tidewire": program})
        socket_unit = replaced("tidewire.socket", Path(name), {})
        command = ["systemd-analyze", "verify", str(unit), str(socket_unit)]
        said = subprocess.run(command, capture_output=True, text=True)
        assert said.returncode == 0 and not said.stderr.strip(), said.stderr


def check_activation(program: str) -> None:
    clients, operations = free_port(), free_port()
    command = ["systemd-socket-activate", "--fdname=clients:operations"]
    command += [f"--listen=127.0.0.1:{port}" for port in (clients, operations)]
    command += [program, "serve", "--no-auth", "--shards", "2"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(clients)
        with socket.create_connection(("127.0.0.1", clients), timeout=WAIT_S) as stream:
            received = upgrade(stream)
            assert b"server_ready" in received, f"no session through the given socket: {received!r}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{operations}/ready", timeout=WAIT_S) as answer:
            assert answer.status == 200
    finally:
        child.terminate()
        child.wait()


def main() -> int:
    if len(sys.argv) != 2 or not os.access(sys.argv[1], os.X_OK):
        print(__doc__, file=sys.stderr)
        return 2
    program = str(Path(sys.argv[1]).resolve())
    checks: dict[str, Callable[[], None]] = {
        "systemd-analyze": lambda: check_unit(program),
        "systemd-socket-activate": lambda: check_activation(program),
        "nginx": lambda: check_proxy(program, nginx),
        "haproxy": lambda: check_proxy(program, haproxy),
        "caddy": lambda: check_proxy(program, caddy),
    }
    failed = False
    for name, check in checks.items():
        if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None:
            print(f"{name}: not tested, it is not installed")
            continue
        try:
            check()
            print(f"{name}: works")
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            failed = True
            print(f"{name}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
