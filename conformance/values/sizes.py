"""Searches the largest message that each client sends. It has to be close to the server's limit, counted in bytes, and the
client has to refuse one character more without losing its connection."""

import asyncio

from ways import BEFORE, Faults

MESSAGE_BYTES_MAX = 65_536
# What an envelope, a request, the layers and the names of this test may take of a message.
AROUND_BYTES_MAX = 1_000


class Sizes:
    """Searches the limit of each client for characters of one, two and four bytes."""

    def __init__(self, agents):
        self.agents = agents
        self.faults = Faults()
        self.checked = 0

    async def everything(self):
        await asyncio.gather(*(self.of_client(client) for client in self.agents.clients))

    async def of_client(self, client):
        for character in ("a", "é", "😀"):
            # `send_later` of Python only promises that it has stored the message.
            for way in ("publish", "send") if client.language == "python" else ("publish", "send", "enqueue"):
                await self.search(client, way, character)

    async def search(self, client, way, character):
        what = f"sizes: {way} {client.name} of {character!r}"
        each = len(character.encode())
        fits, too_many = 1, MESSAGE_BYTES_MAX // each + 1
        while fits + 1 < too_many:
            times = (fits + too_many) // 2
            refused = await self.refusal(client, way, character, times)
            fits, too_many = (fits, times) if refused else (times, too_many)
        self.checked += 1
        if not MESSAGE_BYTES_MAX - AROUND_BYTES_MAX <= fits * each <= MESSAGE_BYTES_MAX:
            self.faults.append(f"{what}: {fits} characters fit, {fits * each} bytes of {MESSAGE_BYTES_MAX}")
        code = await self.refusal(client, way, character, too_many)
        if code not in BEFORE[client.language] | {"MESSAGE_TOO_LARGE"}:
            self.faults.append(f"{what}: one more is refused with {code}")
        if await self.refusal(client, way, "a", 1) or client.disconnections:
            self.faults.append(f"{what}: the connection did not survive: {client.disconnections}")

    async def refusal(self, client, way, character, times):
        """The code with which a text is refused, and `None` once it has arrived."""
        kind = f"size {client.name}"
        place = {} if way == "send" else {"topic": client.own_topic}
        spec = {"$": "repeat", "text": character, "times": times}
        client.reports.clear()
        answer = await client.order(way, spec, type=kind, **place)
        if "done" not in answer:
            return answer["refused"]
        if await client.receive(kind, until_report=way == "send"):
            return None
        if way == "send" and client.reports:
            # `send` returns before the message is written, and an event says that it was not.
            return client.reports.pop()
        self.faults.append(f"{way} {client.name}: {times} of {character!r} were taken and did not arrive")
        return None
