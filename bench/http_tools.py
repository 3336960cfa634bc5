"""HTTP load testers and the servers that they load: how each is started, and where it says what it did.

A tool runs on the second core and a server on the first, or both on both. The processor time of a tool is what the system counted for
its process (with its start), that of a server what its processes used meanwhile.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from servers import cpu_s

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
PEERS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "bench/peers/target")) / "release"
TIDEWIRE = TARGET / "release" / "tidewire"
NODE_TOOLS = ROOT / "bench/peers/http/node_modules/.bin"
# By `make reports PART=http`, unless the machine has one of its own.
OHA = shutil.which("oha") or ROOT / "bench/peers/target/tools/bin/oha"
SERVER_CORE, CLIENT_CORE, BOTH_CORES = "0", "1", "0,1"


@dataclasses.dataclass
class Load:
    """A load that a tool is asked for."""

    url: str
    seconds: int
    connections: int = 100
    keep_alive: bool = True
    pipelining: int = 1
    # Over HTTP/2: requests in flight on each connection. None for HTTP/1.1.
    streams: int | None = None
    # Threads of the tool. Two share both cores with the server.
    threads: int = 1

    @property
    def cores(self):
        return CLIENT_CORE if self.threads == 1 else BOTH_CORES

    @property
    def authority(self):
        return self.url.split("/")[2]

    @property
    def is_secure(self):
        return self.url.startswith("https:")


@dataclasses.dataclass
class Run:
    """The result of a load."""

    requests: int
    elapsed_s: float
    tool_cpu_s: float
    server_cpu_s: float
    report: dict | None = None

    @property
    def rate(self):
        return self.requests / self.elapsed_s

    @property
    def tool_us(self):
        return self.tool_cpu_s / self.requests * 1e6

    @property
    def server_us(self):
        return self.server_cpu_s / self.requests * 1e6

    @property
    def server_share(self):
        return self.server_cpu_s / self.elapsed_s


class CannotDo(Exception):
    """The tool has no way to do such a load."""


def tidewire(load, *further):
    command = [TIDEWIRE, "load", load.url, "--connections", load.connections, "--duration-s", load.seconds]
    command += ["--threads", load.threads, "--json", "--quiet", *further]
    command += ["--insecure"] if load.is_secure else []
    command += [] if load.keep_alive else ["--no-keepalive"]
    command += ["--http2", "--streams", load.streams] if load.streams else []
    return command + (["--in-flight", load.pipelining] if load.pipelining > 1 else [])


def tidewire_counts(output, _load):
    result = json.loads(output)["results"][0]
    failed = result["requests"]["failed"]
    if failed:
        raise SystemExit(f"tidewire: {failed} requests failed: {result.get('errors')}")
    return result["requests"]["succeeded"], result["duration_s"], result


def bare_loop(load):
    if load.is_secure or not load.keep_alive or load.pipelining > 1 or load.threads > 1:
        raise CannotDo
    return [PEERS / "peer-bareloop", load.authority, load.connections, load.seconds]


def bare_loop_counts(output, _load):
    figures = json.loads(output)
    return figures["responses"], figures["elapsed_s"], None


def wrk(load):
    command = ["wrk", f"-t{load.threads}", f"-c{load.connections}", f"-d{load.seconds}s"]
    if load.pipelining > 1:
        # The way that wrk's own examples have it.
        script = pathlib.Path(tempfile.gettempdir(), "tidewire-wrk-pipeline.lua")
        script.write_text(
            "init = function(args) local r = {}; "
            f"for i = 1, {load.pipelining} do r[i] = wrk.format() end; whole = table.concat(r) end\n"
            "request = function() return whole end\n"
        )
        command += ["-s", script]
    return command + ([] if load.keep_alive else ["-H", "Connection: close"]) + [load.url]


def wrk_counts(output, _load):
    requests, seconds = re.search(r"(\d+) requests in ([\d.]+)s", output).groups()
    return int(requests), float(seconds), None


def ab(load):
    if load.pipelining > 1:
        raise CannotDo
    command = ["ab", "-q", "-t", load.seconds, "-n", 100_000_000, "-c", load.connections]
    return command + (["-k"] if load.keep_alive else []) + [load.url]


def ab_counts(output, _load):
    requests = re.search(r"Complete requests:\s+(\d+)", output)[1]
    seconds = re.search(r"Time taken for tests:\s+([\d.]+)", output)[1]
    return int(requests), float(seconds), None


def h2load(load):
    if not load.keep_alive:
        raise CannotDo
    command = ["h2load", f"-t{load.threads}", f"-c{load.connections}", f"-D{load.seconds}"]
    command += [f"-m{load.streams}"] if load.streams else ["--h1", f"-m{load.pipelining}"]
    return [*command, load.url]


def h2load_counts(output, load):
    requests = re.search(r"requests: .*, (\d+) succeeded", output)[1]
    return int(requests), float(load.seconds), None


def oha(load):
    if load.pipelining > 1:
        raise CannotDo
    command = [OHA, "-z", f"{load.seconds}s", "-c", load.connections, "--no-tui", "--output-format", "json"]
    command += [] if load.keep_alive else ["--disable-keepalive"]
    command += ["--http2", "-p", load.streams] if load.streams else []
    return command + (["--insecure"] if load.is_secure else []) + [load.url]


def oha_counts(output, _load):
    figures = json.loads(output)
    requests = sum(figures["statusCodeDistribution"].values())
    return requests, figures["summary"]["total"], None


def autocannon(load):
    command = [NODE_TOOLS / "autocannon", "--json", "-c", load.connections, "-d", load.seconds]
    command += ["-p", load.pipelining, *(["-w", load.threads] if load.threads > 1 else [])]
    return command + ([] if load.keep_alive else ["-H", "Connection=close"]) + [load.url]


def autocannon_counts(output, _load):
    figures = json.loads(output)
    return figures["2xx"], figures["duration"], None


def loadtest(load, *further):
    if load.pipelining > 1:
        raise CannotDo
    command = [NODE_TOOLS / "loadtest", "--quiet", "--cores", load.threads, "-t", load.seconds, "-c", load.connections]
    command += ["-k"] if load.keep_alive else []
    return command + (["--insecure"] if load.is_secure else []) + [*further, load.url]


def loadtest_tcp(load):
    if load.is_secure or not load.keep_alive:
        raise CannotDo
    return loadtest(load, "--tcp")


def loadtest_counts(output, _load):
    requests = re.search(r"Completed requests:\s+(\d+)", output)[1]
    errors = re.search(r"Total errors:\s+(\d+)", output)[1]
    seconds = re.search(r"Total time:\s+([\d.]+)", output)[1]
    return int(requests) - int(errors), float(seconds), None


# Those that speak HTTP/2.
HTTP2_TOOLS = ("tidewire load", "h2load", "oha")

# The command of each tool, how its output is read, and the program that has to be there.
TOOLS = {
    "tidewire load": (tidewire, tidewire_counts, TIDEWIRE),
    "bare loop": (bare_loop, bare_loop_counts, PEERS / "peer-bareloop"),
    "wrk": (wrk, wrk_counts, "wrk"),
    "ab": (ab, ab_counts, "ab"),
    "h2load": (h2load, h2load_counts, "h2load"),
    "oha": (oha, oha_counts, OHA),
    "autocannon": (autocannon, autocannon_counts, NODE_TOOLS / "autocannon"),
    "loadtest --tcp": (loadtest_tcp, loadtest_counts, NODE_TOOLS / "loadtest"),
    "loadtest": (loadtest, loadtest_counts, NODE_TOOLS / "loadtest"),
}


def missing():
    """The tools that are not installed here."""
    return [name for name, (_, _, program) in TOOLS.items() if shutil.which(program) is None]


def measure(tool, load, server, *further):
    """Runs a tool once; a run that fails ends everything."""
    command, counts, _ = TOOLS[tool]
    words = ["taskset", "-c", load.cores, *command(load, *further)]
    before = server.cpu_s()
    output, errors, cpu_s, status = run([*map(str, words)])
    after = server.cpu_s()
    # Exit codes 3 and 4 of ours are verdicts about figures that are there.
    if status not in (0, 3, 4) or not output.strip():
        raise SystemExit(f"{tool} ended with {status}: {' '.join(map(str, words))}\n{errors or output}")
    requests, elapsed_s, report = counts(output, load)
    if requests == 0:
        raise SystemExit(f"{tool} had no response: {' '.join(map(str, words))}\n{errors or output}")
    return Run(requests, elapsed_s, cpu_s, after - before, report)


def run(words):
    """The output of a program, its processor time with that of the children it waited for, and its exit code."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        errors.seek(0)
        return output, errors.read(), usage.ru_utime + usage.ru_stime, process.returncode


class Server(contextlib.AbstractContextManager):
    """A server on the first core, or on others, stopped at the end of its `with`."""

    def __init__(self, command, url, cores=SERVER_CORE):
        words = ["taskset", "-c", cores, *map(str, command)]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.url = url
        self.await_port()

    def await_port(self):
        host, port = self.url.split("/")[2].split(":")
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), timeout=1):
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.__exit__()
        raise SystemExit(f"a server did not start: {self.process.args}: {self.process.stderr.read()}")

    def processes(self):
        """It and its children."""
        own = self.process.pid
        children = pathlib.Path(f"/proc/{own}/task/{own}/children").read_text()
        return [own, *map(int, children.split())]

    def cpu_s(self):
        return sum(map(cpu_s, self.processes()))

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout=20)
        finally:
            self.process.kill()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_server(*flags, is_secure=False):
    port = free_port()
    scheme = "https" if is_secure else "http"
    command = [TIDEWIRE, "test-server", "--port", port, "--shards", 1, *flags]
    return Server(command, f"{scheme}://127.0.0.1:{port}/")


def nginx(folder, certificate=None, is_http2=False, workers=1):
    """`return 200`, with a certificate and its key on TLS, or over HTTP/2 without TLS. Two workers have both cores. Files go into
    `folder`."""
    port = free_port()
    listen, tls = f"listen 127.0.0.1:{port}" + (" http2" if is_http2 else ""), ""
    if certificate:
        listen += " ssl"
        tls = f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};"
    configuration = pathlib.Path(folder, f"nginx-{port}.conf")
    configuration.write_text(
        f"""daemon off; worker_processes {workers}; pid {folder}/nginx-{port}.pid; error_log {folder}/error.log;
        events {{ worker_connections 4096; }}
        http {{
            access_log off; default_type text/plain; keepalive_requests 1000000000;
            client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
            uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
            server {{ {listen}; {tls} location / {{ return 200 "OK"; }} }}
        }}"""
    )
    scheme = "https" if certificate else "http"
    cores = SERVER_CORE if workers == 1 else BOTH_CORES
    return Server(["nginx", "-c", configuration, "-p", folder], f"{scheme}://127.0.0.1:{port}/", cores)
