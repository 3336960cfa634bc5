"""A client and a server in Python that do what JSON lines on standard input say; `../check.py` explains the lines.

agent.py client|server
"""

import asyncio
import json
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import notation
import tidewire


def show(**line):
    print(json.dumps(line), flush=True)


def given(value):
    """The arguments of a call: none for a value that is missing."""
    built = notation.build(value)
    return () if built is notation.MISSING else (built,)


class ClientAgent:
    async def open(self, url, format, encrypted):
        self.folder = tempfile.TemporaryDirectory()
        self.client = await tidewire.connect(
            url,
            format=format,
            encryption="on" if encrypted else "off",
            offline_queue=pathlib.Path(self.folder.name, "queue"),
        )
        self.client.on("error")(lambda event: show(reported=event.payload["code"]))
        self.client.on("disconnected")(lambda event: show(closed=str(event)))
        self.receiving = asyncio.create_task(self.receive())

    async def receive(self):
        async for message in self.client:
            arrived = "publication" if message.topic else "message"
            show(arrived=arrived, type=message.type, payload=notation.describe(message.payload))

    async def subscribe(self, topics):
        await self.client.subscribe(topics)

    async def publish(self, topic, type, value):
        await self.client.publish(topic, *given(value), type=type)

    async def enqueue(self, topic, type, value):
        payload = {} if value == {"$": "missing"} else {"payload": notation.build(value)}
        await self.client.send_later(topic=topic, type=type, **payload)

    async def send(self, type, value):
        await self.client.send(*given(value), type=type)

    async def request(self, type, value):
        return notation.describe(await self.client.request(*given(value), type=type))

    async def join(self, topic, value):
        await self.client.subscribe(topic, presence=notation.build(value))

    async def members(self, topic):
        room = (await self.client.presence(topic))[topic]
        return [notation.describe(member.data) for member in room.members.values()]

    async def close(self):
        await self.client.close()


class ServerAgent:
    async def start(self, options):
        self.server = tidewire.Server(**options)
        self.server.on("*")(self.message)
        self.server.request("*")(self.request)
        self.server.start()
        self.serving = asyncio.create_task(self.server.serve())
        return self.server.url

    def message(self, message):
        show(arrived="message", type=message.type, payload=notation.describe(message.payload))

    def request(self, message):
        return message.payload

    async def publish(self, topic, type, value):
        self.server.publish(topic, *(given(value) or ({},)), type=type)

    async def broadcast(self, type, value):
        self.server.broadcast(*(given(value) or ({},)), type=type)

    async def close(self):
        self.server.stop()
        await self.serving


async def do(agent, order):
    number, what = order.pop("id"), order.pop("do")
    try:
        show(id=number, done=await getattr(agent, what)(**order))
    except Exception as error:  # noqa: BLE001
        show(id=number, refused=getattr(error, "code", type(error).__name__), words=str(error))


async def main():
    agent = ServerAgent() if sys.argv[1] == "server" else ClientAgent()
    running = set()
    while line := await asyncio.to_thread(sys.stdin.readline):
        task = asyncio.create_task(do(agent, json.loads(line)))
        running.add(task)
        task.add_done_callback(running.discard)


asyncio.run(main())
