"""The servers that compare.py measures: Tidewire and its peers, each pinned to the first core."""

import contextlib
import json
import os
import pathlib
import platform
import secrets
import shutil
import subprocess
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
TIDEWIRE = TARGET / "release" / "tidewire"
PEERS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "bench/peers/target")) / "release"
SECRET = secrets.token_hex(32)
SERVER_CORE = "0"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PEER = "fastwebsockets"  # the one that the targets are about
WS = ["node", ROOT / "bench/peers/ws/server.js"]


def environment(command):
    """The key of the tokens is there unless the server has none."""
    own = {} if "--no-auth" in command else {"TIDEWIRE_JWT_SECRET": SECRET}
    return {**os.environ, **own}


class Server(contextlib.AbstractContextManager):
    """A server on the first core, stopped at the end of its `with`."""

    def __init__(self, name, command, bench_flags):
        self.name = name
        self.bench_flags = bench_flags
        self.stats_url = None
        self.process = subprocess.Popen(
            ["taskset", "-c", SERVER_CORE, *map(str, command)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(command),
        )
        address = self.line("listening on ")
        self.url = address if "://" in address else f"ws://{address}/"
        if "--ops-listen" in command:
            self.stats_url = self.line("operations on ")
            self.bench_flags = [*bench_flags, "--stats-url", self.stats_url]

    def line(self, start):
        line = self.process.stdout.readline().strip()
        if not line.startswith(start):
            self.__exit__()
            raise SystemExit(f"{self.name} did not start: {line!r}")
        return line.removeprefix(start)

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        finally:
            self.process.kill()
            self.process.stdout.close()

    def resident_bytes(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise SystemExit(f"{self.name} has ended")

    def connections(self):
        with urllib.request.urlopen(f"{self.stats_url}/stats", timeout=5) as answer:
            return json.load(answer)["total"]["connections_open"]


# The limits are on, with room for what one core can send.
LIMITS = ["--rate-limit-capacity", "4000000000", "--rate-limit-refill-per-s", "4000000000"]
# All connections come from one address. With 16 KiB of each they would reach its part of the memory for unfinished messages.
LIMITS += ["--unfinished-bytes-per-owner-max", "536870912"]
SERVE = [TIDEWIRE, "serve", "--listen", "127.0.0.1:0", "--shards", "1", *LIMITS]


def tidewire(app, *further):
    command = [*SERVE, "--ops-listen", "127.0.0.1:0", "--app", app, *further]
    return Server("tidewire", command, ["--profile", "v1", "--jwt-secret", SECRET])


def tidewire_open(app, *further):
    """Without authentication, for clients that speak plain WebSocket."""
    return Server("tidewire", [*SERVE, "--no-auth", "--app", app, *further], ["--profile", "raw"])


def peers(mode):
    """The peers that are installed, each with the raw profile: they speak no protocol of ours."""
    commands = {"tokio-tungstenite": [PEERS / "peer-tungstenite"], "ws (Node)": WS}
    if mode == "broadcast":
        commands = {"uWebSockets": python("uwebsockets"), **commands}
    else:
        commands = {PEER: [PEERS / "peer-fastwebsockets"], **commands, "picows (Python)": python("picows")}
    return installed(commands, "--mode", mode)


def certificate(folder):
    """A certificate for 127.0.0.1 and its key, as files."""
    chain, key = (str(pathlib.Path(folder, name)) for name in ("cert.pem", "key.pem"))
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        + ["-nodes", "-keyout", key, "-out", chain, "-days", "30"]
        + ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True,
        capture_output=True,
    )
    return chain, key


def certificate_flags(folder):
    """The same, as options of the server."""
    chain, key = certificate(folder)
    return ["--tls-certificate", chain, "--tls-key", key]


def python(folder):
    folder = ROOT / "bench/peers" / folder
    return [folder / ".venv/bin/python", folder / "server.py"]


def compressing_peers(level):
    """The peers whose library has permessage-deflate, as echo servers."""
    commands = {"yawc": [PEERS / "peer-yawc"], "ws (Node)": WS}
    return installed(commands, "--mode", "echo", "--deflate-level", level)


def installed(commands, *flags):
    peers = ROOT / "bench/peers"
    is_installed = {
        "ws (Node)": (peers / "ws/node_modules/ws").is_dir(),
        "picows (Python)": any(peers.glob("picows/.venv/lib/python*/site-packages/picows")),
        "uWebSockets": any(peers.glob("uwebsockets/.venv/lib/python*/site-packages/socketify")),
    }
    for name, command in commands.items():
        if shutil.which(command[0]) and is_installed.get(name, True):
            yield name, [*command, "--port", "0", *flags]
        elif name in is_installed:
            print(f"{name} is not installed and is left out.\n")
        else:
            raise SystemExit(f"{command[0]} is not there: build it with bench/run")


def cpu_s(process_id):
    """The CPU time of a process so far."""
    # The name, in brackets, may hold anything.
    fields = pathlib.Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
