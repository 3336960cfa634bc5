"""The processes of a run: a server, and a client in each language with each format."""

import asyncio
import contextlib
import json
import os
import pathlib
import re
import tempfile

import notation
from backend import Backend

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHON = ROOT / "bindings/python/.venv/bin/python"
COMMANDS = {
    "rust": lambda _: [os.environ["TIDEWIRE_VALUES"]],
    "python": lambda role: [PYTHON, HERE / "agents/agent.py", role],
    "typescript": lambda role: ["node", HERE / "agents/agent.mjs", role],
    "node": lambda role: ["node", HERE / "agents/agent.mjs", role],
}
# What a client does beside its language: its format, and whether it encrypts.
PROFILES = {
    "json": ("json", False),
    "msgpack": ("msgpack", False),
    "encrypted": ("json", True),
    "shared": ("json", False),
}
# A tab without the connection, which another tab of its process has.
ONLY = {"shared": "typescript"}
LINE_BYTES_MAX = 64 * 1024 * 1024
ANSWER_WITHIN_S = 15
NOTHING = object()
API_KEY = "0123456789abcdef0123456789abcdef"
# Of every server, in the names of the program.
SERVER_OPTIONS = {
    "no_auth": True,
    "encryption": "optional",
    "message_bytes_max": 4 * 1024 * 1024,
    "payload_bytes_max": 4 * 1024 * 1024,
    "rate_limit_capacity": 1_000_000,
    "rate_limit_refill_per_s": 1_000_000,
    "topics_open": True,
    # Nine clients publish a megabyte to each other at the same time.
    "outbox_bytes_max": 256 * 1024 * 1024,
    "presence": ["rooms.>"],
}


class Agent:
    """A process that carries out orders."""

    def __init__(self, language, profile=None):
        self.language = language
        self.profile = profile
        self.name = f"{language}/{profile}" if profile else language
        # What arrived, by type.
        self.arrived = {}
        self.news = asyncio.Condition()
        self.answers = {}
        self.process = None
        self.next_number = 0
        # Codes of errors that it was told of by an event.
        self.reports = []
        # Why its connections ended.
        self.disconnections = []

    @property
    def own_topic(self):
        return "values." + re.sub("[^a-z]+", "-", self.name)

    @property
    def format(self):
        return PROFILES[self.profile][0] if self.profile else "json"

    async def spawn(self, role):
        command = COMMANDS[self.language](role)
        self.process = await asyncio.create_subprocess_exec(
            *map(str, command),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
            cwd=HERE,
        )
        self.reading = asyncio.create_task(self.read())

    async def read(self):
        async for line in self.process.stdout:
            told = json.loads(line)
            if "id" in told:
                self.answers.pop(told["id"]).set_result(told)
            elif "arrived" in told:
                async with self.news:
                    self.arrived.setdefault(told["type"], []).append(self.payload(told["payload"]))
                    self.news.notify_all()
            elif "reported" in told:
                async with self.news:
                    self.reports.append(told["reported"])
                    self.news.notify_all()
            else:
                self.disconnections.append(told["closed"])

    def payload(self, told):
        """A description of what the agent says that it received."""
        return notation.describe_wire(told) if self.language == "rust" else told

    async def order(self, do, value=NOTHING, **fields):
        """Has something done; `value` is one of the case file. Returns the line of the agent."""
        if value is not NOTHING:
            fields |= self.given(value)
        number = self.next_number = self.next_number + 1
        answer = self.answers[number] = asyncio.get_running_loop().create_future()
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(json.dumps({"id": number, "do": do, **fields}).encode() + b"\n")
            await self.process.stdin.drain()
        ends = {answer, self.reading}
        done, _ = await asyncio.wait(ends, timeout=ANSWER_WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        if answer in done:
            return await answer
        words = "the process has ended" if self.reading in done else f"no answer in {ANSWER_WITHIN_S} s"
        return {"refused": "AGENT", "words": words}

    def given(self, spec):
        if self.language != "rust":
            return {"value": spec}
        if isinstance(spec, dict) and spec.get("$") == "bytes":
            return {"bytes": spec["count"]}
        if isinstance(spec, dict) and spec.get("$") == "missing":
            return {"value": "{}"}
        return {"value": notation.json_text(spec)}

    async def receive(self, kind, until_report=False):
        """Waits for a message of a type, and returns the descriptions of all that came; none after some time, or once the
        client has reported an error, if that is to be waited for."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S), self.news:
                await self.news.wait_for(lambda: kind in self.arrived or (until_report and self.reports))
        except TimeoutError:
            return []
        return self.arrived.pop(kind, [])

    async def end(self):
        if self.process:
            self.process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
            self.reading.cancel()


class Program:
    """`tidewire serve`: it has no application, and so echoes what is sent to it."""

    def __init__(self, options):
        self.options = options
        self.process = None
        self.folder = tempfile.TemporaryDirectory()

    async def start(self):
        key = pathlib.Path(self.folder.name, "api.key")
        key.write_text(API_KEY)
        key.chmod(0o600)
        flags = [word for name, value in self.options.items() for word in flag(name, value)]
        own = ["--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--api-key-file", str(key), "--app", "echo"]
        self.process = await asyncio.create_subprocess_exec(
            os.environ["TIDEWIRE"],
            "serve",
            *flags,
            *own,
            stderr=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self.lines = asyncio.create_task(drain(self.process.stderr))
        text = b""
        while not (found := re.search(rb"(ws://\S+)[\s\S]*?(http://[0-9.:]+)", text)):
            text += await asyncio.wait_for(self.process.stdout.readline(), ANSWER_WITHIN_S)
        self.more = asyncio.create_task(drain(self.process.stdout))
        self.url, self.http = (part.decode() for part in found.groups())

    async def end(self):
        if self.process:
            self.process.terminate()
            await self.process.wait()
        self.folder.cleanup()


async def drain(stream):
    while await stream.read(65536):
        pass


def flag(name, value):
    option = "--" + name.replace("_", "-")
    if value is True:
        return [option]
    return [word for item in (value if isinstance(value, list) else [value]) for word in (option, str(item))]


def camel_case(name):
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


class Agents:
    """A server, and its clients: each language with each profile."""

    def __init__(self, server, languages, **options):
        self.options = SERVER_OPTIONS | options
        self.backend = Backend() if server == "backend" else None
        if self.backend:
            self.options |= self.backend.options
        self.program = Program(self.options) if server in ("program", "backend") else None
        self.server = None if self.program else Agent(server)
        self.clients = [
            Agent(language, profile)
            for language in languages
            for profile in PROFILES
            if ONLY.get(profile, language) == language
        ]

    async def __aenter__(self):
        try:
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def start(self):
        if self.backend:
            self.backend.start()
        if self.program:
            await self.program.start()
            url = self.program.url
        else:
            await self.server.spawn("server")
            rename = camel_case if self.server.language == "node" else str
            options = {rename(name): value for name, value in self.options.items()} | {"port": 0}
            url = done(await self.server.order("start", options=options))
        self.url = url
        for client in self.clients:
            await client.spawn("client")
            format_, encrypted = PROFILES[client.profile]
            tab = {"shared": True} if client.profile in ONLY else {}
            done(await client.order("open", url=url, format=format_, encrypted=encrypted, **tab))
            done(await client.order("subscribe", topics=["values.all", client.own_topic]))

    async def __aexit__(self, *_):
        for part in [*self.clients, self.server, self.program]:
            if part:
                await part.end()
        if self.backend:
            await asyncio.to_thread(self.backend.end)


def done(answer):
    if "done" not in answer:
        raise SystemExit(f"values: a run cannot begin: {answer}")
    return answer["done"]
