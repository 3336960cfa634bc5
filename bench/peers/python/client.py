"""A client in Python that sends, receives, asks or connects as fast as it can, on either library.

Prints one JSON object with what it reached. The server is Tidewire's, and what is said is protocol version 1.
"""

import argparse
import asyncio
import json
import time

import tidewire
import websockets.asyncio.client
from trade import trade

TRADE = trade(note_bytes=45)
ENVELOPE = {"t": "trade", "p": TRADE}  # 175 bytes as a message
CHUNK = 100
TOLD_EACH = 1_000  # messages, after which the server may send more


class Websockets:
    """The code of an application on the websockets library: json.dumps and json.loads, one await a message."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.is_plain = token is not None  # a server that does not greet, and checks no token either
        self.connecting = websockets.asyncio.client.connect(url, compression=None, max_size=None, proxy=None, close_timeout=0.5)

    async def __aenter__(self) -> "Websockets":
        self.socket = await self.connecting.__aenter__()
        if not self.is_plain:
            await self.until("server_ready")
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.connecting.__aexit__(*exception)

    async def until(self, kind: str) -> dict:
        while (message := json.loads(await self.socket.recv()))["t"] != kind:
            pass
        return message

    async def send_some(self) -> None:
        for _ in range(CHUNK):
            await self.socket.send(json.dumps(ENVELOPE, separators=(",", ":")))

    async def confirm(self) -> None:
        await (await self.socket.ping())

    async def subscribe(self) -> None:
        request = {"action": "subscribe", "topics": ["fan-out"]}
        await self.socket.send(json.dumps({"t": "subscription_update", "p": request}))
        await self.until("subscription_update")

    async def tell(self, count: int) -> None:
        await self.socket.send(json.dumps({"t": "read", "p": count}))

    async def receive_some(self) -> int:
        json.loads(await self.socket.recv())["p"]
        return 1

    async def ask(self) -> None:
        await self.socket.send(json.dumps(ENVELOPE, separators=(",", ":")))
        await self.until("trade")


class Tidewire:
    def __init__(self, url: str, token: str | None = None) -> None:
        self.connecting = tidewire.connect(url, token=token)
        self.batches = None

    async def __aenter__(self) -> "Tidewire":
        self.client = await self.connecting.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.connecting.__aexit__(*exception)

    async def send_some(self) -> None:
        for _ in range(CHUNK):
            await self.client.send(TRADE, type="trade")

    async def confirm(self) -> None:
        await self.client.ping()

    async def subscribe(self) -> None:
        await self.client.subscribe("fan-out")

    async def tell(self, count: int) -> None:
        await self.client.send(count, type="read")

    async def receive_some(self) -> int:
        self.batches = self.batches or self.client.batches()
        batch = await anext(self.batches)
        for message in batch:
            message.payload
        return len(batch)

    async def ask(self) -> None:
        await self.client.send(TRADE, type="trade")
        async for message in self.client:
            if message.type == "trade":
                message.payload
                return


async def send(client, seconds: float) -> dict:
    """Counts the messages that the server has read by the end, and the time that it took."""
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        await client.send_some()
        count += CHUNK
    await client.confirm()
    return {"messages_per_s": count / (time.perf_counter() - started)}


async def receive(client, seconds: float) -> dict:
    await client.subscribe()
    await client.tell(0)
    count, told, started = 0, 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        count += await client.receive_some()
        if count >= told + TOLD_EACH:
            told = count
            await client.tell(told)
    return {"messages_per_s": count / (time.perf_counter() - started)}


async def ask(client, seconds: float) -> dict:
    times, started = [], time.perf_counter()
    while time.perf_counter() - started < seconds:
        before = time.perf_counter()
        await client.ask()
        times.append(time.perf_counter() - before)
    return percentiles(times)


async def connect(library, url: str, token: str, seconds: float) -> dict:
    times, started = [], time.perf_counter()
    while time.perf_counter() - started < seconds:
        before = time.perf_counter()
        async with library(url, token):
            times.append(time.perf_counter() - before)
    return percentiles(times)


def percentiles(times: list[float]) -> dict:
    times.sort()
    at = {name: times[int(len(times) * part)] * 1e6 for name, part in (("p50", 0.5), ("p99", 0.99))}
    return {"count": len(times), **at}


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--library", choices=LIBRARIES, required=True)
    parser.add_argument("--mode", choices=["send", "receive", "ask", "connect"], required=True)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--secret", help="of the token with which to connect")
    options = parser.parse_args()
    library = LIBRARIES[options.library]
    if options.mode == "connect":
        token = tidewire.jwt.encode({"sub": "user-1", "exp": time.time() + 3600}, options.secret)
        result = await connect(library, options.url, token, options.seconds)
    else:
        async with library(options.url) as client:
            result = await MODES[options.mode](client, options.seconds)
    print(json.dumps(result))


LIBRARIES = {"tidewire": Tidewire, "websockets": Websockets}
MODES = {"send": send, "receive": receive, "ask": ask}

if __name__ == "__main__":
    asyncio.run(main())
