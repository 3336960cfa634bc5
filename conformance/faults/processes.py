"""The real parts of a run: Redis, the servers, and a proxy before Redis for each of them."""

import asyncio
import contextlib
import glob
import itertools
import os
import pathlib
import random
import signal
import socket
import tempfile
import urllib.error
import urllib.request

import redis.asyncio

READY_WITHIN_S = 30
_given = set()


def free_port():
    """A free port below those that the system gives to outgoing connections: one of these could take it meanwhile."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        # Nobody may listen yet at a port that another server of this run was given.
        if port in _given:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port


async def until(condition, what, within_s=READY_WITHIN_S):
    """Waits until `await condition()` is true; ends the run if it does not become true in time."""
    end = asyncio.get_running_loop().time() + within_s
    while not await condition():
        if asyncio.get_running_loop().time() > end:
            raise SystemExit(f"waited {within_s} s for: {what}")
        await asyncio.sleep(0.02)


async def accepts(port):
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


class Program:
    """A process of this run: killed, stopped and continued by its own id only."""

    def __init__(self, log):
        self.log = log
        self.process = None

    async def spawn(self, *command, environment=None):
        with open(self.log, "ab") as out:
            self.process = await asyncio.create_subprocess_exec(
                *map(str, command), stdout=out, stderr=out, env=os.environ | (environment or {})
            )

    def send(self, number):
        if self.process and self.process.returncode is None:
            self.process.send_signal(number)

    async def kill(self, number=signal.SIGKILL):
        self.send(number)
        if self.process:
            await self.process.wait()

    async def pause(self, seconds):
        self.send(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.send(signal.SIGCONT)

    async def pause_while(self, wait, action):
        """Stops the process, waits, runs `action`, and continues it."""
        self.send(signal.SIGSTOP)
        await wait
        await action()
        self.send(signal.SIGCONT)

    def memory_mib(self):
        """Resident memory now, or 0 if the process is gone."""
        try:
            status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return 0
        lines = [line for line in status.splitlines() if line.startswith("VmRSS")]
        return int(lines[0].split()[1]) / 1024 if lines else 0


class Redis(Program):
    """A `redis-server` that keeps its folder when it is killed and started again.

    `durability` is what happens to writes: `none`, `everysec` or `always` (see `appendfsync`).
    """

    def __init__(self, folder, durability, flags=()):
        super().__init__(folder / "redis.log")
        self.flags = list(flags)
        self.durability = durability
        self.port = free_port()
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=folder))

    async def start(self, *more):
        """Starts the server; `more` are flags of this start alone."""
        flags = ["--appendonly", "no"]
        if self.durability != "none":
            flags = ["--appendonly", "yes", "--appendfsync", self.durability]
        await self.spawn(
            "redis-server", "--port", self.port, "--save", "", "--dir", self.folder,
            "--enable-debug-command", "yes", "--repl-diskless-sync-delay", 0, *flags, *self.flags, *more,
        )  # fmt: skip
        await until(self.answers, "redis-server")

    async def answers(self):
        try:
            return await self.client().ping()
        except (redis.exceptions.RedisError, OSError):
            return False

    def client(self, _slot=None):
        """A new client that this project did not write."""
        return redis.asyncio.Redis(port=self.port, socket_timeout=10, single_connection_client=False)


class Proxy:
    """Passes TCP on to `target`, a port, and misbehaves when told to.

    `delay_s` holds every chunk back. `is_deaf` takes bytes and passes none on. `is_closed` refuses connections.
    """

    def __init__(self, target):
        self.target = target
        self.port = free_port()
        self.delay_s = 0.0
        self.is_deaf = False
        self.is_closed = False
        self.writers = set()

    async def start(self):
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", self.port)

    def cut(self):
        """Resets all connections."""
        for writer in list(self.writers):
            writer.transport.abort()

    def heal(self):
        was_deaf, self.delay_s, self.is_deaf, self.is_closed = self.is_deaf, 0.0, False, False
        if was_deaf:
            self.cut()  # What it swallowed is lost, so the connections cannot go on.

    async def accept(self, reader, writer):
        if self.is_closed:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        self.writers |= {writer, far_writer}
        try:
            await asyncio.gather(self.pass_on(reader, far_writer), self.pass_on(far_reader, writer))
        except asyncio.CancelledError:
            pass  # The check is over.
        finally:
            self.writers -= {writer, far_writer}

    async def pass_on(self, reader, writer):
        try:
            while chunk := await reader.read(65536):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                if not self.is_deaf:
                    writer.write(chunk)
                    await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()


def wrong_clock(hours):
    """The environment of a process whose date is wrong by so many hours."""
    libraries = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
    if not libraries:
        raise SystemExit("libfaketime is missing: install Debian's package libfaketime")
    return {"LD_PRELOAD": libraries[0], "FAKETIME": f"{hours:+}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


class Server(Program):
    """One `tidewire serve` with fixed ports, so that clients find it again after a restart. `broker` is the port of a
    proxy before Redis, or a URL. Each start takes the next of the programs."""

    def __init__(self, number, programs, broker, folder, flags, environment=None):
        super().__init__(folder / f"server-{number}.log")
        self.number = number
        # The servers begin with different ones.
        self.programs = itertools.islice(itertools.cycle(programs), number, None)
        self.broker = broker.url if hasattr(broker, "url") else f"redis://127.0.0.1:{broker.port}"
        self.flags = flags
        self.environment = environment
        self.port, self.ops_port = free_port(), free_port()
        self.memory_max_mib = 0

    @property
    def url(self):
        return f"ws://127.0.0.1:{self.port}/ws"

    async def start(self):
        await self.spawn(
            next(self.programs), "serve", "--no-auth", "--topics-open", "--shards", 2, "--app", "sink",
            "--rate-limit-capacity", 0, "--history", "t.>=1000000", "--presence", "p.>", "--log-level", "warn",
            "--listen", f"127.0.0.1:{self.port}", "--ops-listen", f"127.0.0.1:{self.ops_port}",
            "--broker", self.broker, *self.flags, environment=self.environment,
        )  # fmt: skip
        await until(lambda: accepts(self.port), f"server {self.number}")

    async def is_ready(self):
        """Whether `/ready` answers 200, and no partition of the broker is away."""
        body = await self.ask("/ready")
        return body is not None and "partitions_failing" not in body

    async def has_lost_lease(self):
        """Whether its lease has ended although it lives, once or more."""
        metrics = await self.ask("/metrics") or ""
        lines = [line for line in metrics.splitlines() if line.startswith("tidewire_broker_leases_lost_total")]
        return any(float(line.split()[-1]) > 0 for line in lines)

    async def ask(self, path):
        """What its operations listener answers, or `None` without an answer of status 200."""

        def answer():
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.ops_port}{path}", timeout=2) as answer:
                    return answer.read().decode() if answer.status == 200 else None
            except (urllib.error.URLError, OSError):
                return None

        return await asyncio.get_running_loop().run_in_executor(None, answer)


def folder_for_logs():
    return pathlib.Path(tempfile.mkdtemp(prefix="tidewire-faults-"))
