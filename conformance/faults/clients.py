"""Clients that record everything: what they sent, what they were answered, what they received."""

import asyncio
import contextlib
import dataclasses
import json
import time

import websockets

ROOM = "p.room"  # a topic with presence
WORK = "q.work"  # a topic of a queue group
Position = tuple[str, int]  # epoch (8 hex digits), offset


@dataclasses.dataclass
class Publication:
    """One attempt to publish; `token` is in its payload and names it."""

    token: str
    topic: str
    stream: str  # the connection that sent it: publications of one connection are ordered
    number: int  # its place among those of the connection
    outcome: str = "unknown"  # "unknown", "acknowledged" or the code of the refusal
    position: Position | None = None


@dataclasses.dataclass
class Received:
    """The view of a subscriber of one topic, in the order of arrival.

    Entries are `("publication", epoch, offset, token)`, `("gap", reason, epoch, from, to)`, and
    `("subscribed", epoch, offset, recovered, count, wanted)`, where `wanted` is the position it asked for.
    """

    subscriber: str
    topic: str
    entries: list = dataclasses.field(default_factory=list)

    def position(self) -> Position | None:
        """The last position that a client would remember."""
        for entry in reversed(self.entries):
            if entry[0] == "publication" or (entry[0] == "subscribed" and not entry[3]):
                return entry[1], entry[2]
        return None


class Room:
    """What one subscriber sees of the presence of a topic, connection by connection."""

    def __init__(self, subscriber):
        self.subscriber = subscriber
        self.events = []  # of each connection: (kind, user) in their order
        self.members = None
        self.begin()

    def begin(self):
        self.user = None  # without authentication the id of the connection
        self.is_in = self.is_asked = False
        self.events.append([])

    def take(self, message):
        """Whether a message belongs to the room."""
        kind, payload = message["t"], message.get("p")
        if kind == "server_ready":
            self.user = payload["details"]["connection_id"]
        elif kind in ("presence_join", "presence_leave"):
            self.events[-1].append((kind, payload["user_id"]))
        elif message.get("cid") == "room":
            self.is_in, self.is_asked = ROOM in payload.get("success_topics", []), False
        elif message.get("cid") == "who":
            self.members = set(payload.get("topics", {}).get(ROOM, {}).get("members", {}))
        elif message.get("tp") != ROOM:
            gap = kind == "publication_gap" and payload["topic"] == ROOM
            return gap or kind == "presence_update"
        return True


class Client:
    """Connects again to a server of its choice whenever its connection ends."""

    def __init__(self, name, servers, draw):
        self.name = name
        self.servers = servers
        self.draw = draw
        self.connections = 0
        self.socket = None
        self.is_wanted = True

    def hop(self):
        """Breaks the connection: the next one may go to another server."""
        if self.socket:
            self.socket.transport.abort()

    async def run(self):
        while self.is_wanted:
            server = self.draw.choice(self.servers)
            with contextlib.suppress(OSError, asyncio.TimeoutError, websockets.WebSocketException):
                async with websockets.connect(
                    server.url,
                    open_timeout=3,
                    ping_interval=None,
                    max_size=None,
                    compression=None,
                    close_timeout=1,
                ) as self.socket:
                    self.connections += 1
                    await self.talk()
            self.socket = None
            await asyncio.sleep(0.05)

    async def send(self, kind, payload, cid=None):
        message = {"t": kind, "p": payload} | ({"cid": cid} if cid else {})
        await self.socket.send(json.dumps(message))


class Publisher(Client):
    """Publishes to its topics in turn, with a few publications in flight."""

    def __init__(self, name, servers, draw, topics, pause_s, window=8):
        super().__init__(name, servers, draw)
        self.topics = topics
        self.pause_s = pause_s
        self.window = window
        self.publications: list[Publication] = []
        self.is_publishing = True

    async def talk(self):
        self.open: dict[str, Publication] = {}
        self.room = asyncio.Semaphore(self.window)
        sending = asyncio.create_task(self.publish())
        try:
            async for text in self.socket:
                self.take(json.loads(text))
        finally:
            sending.cancel()

    async def publish(self):
        number = 0
        with contextlib.suppress(websockets.WebSocketException):
            while True:
                await asyncio.sleep(self.pause_s)
                await self.room.acquire()
                if not self.is_publishing:
                    return
                number += 1
                token = f"{self.name}.{len(self.publications)}"
                topic = self.draw.choice(self.topics)
                publication = Publication(token, topic, f"{self.name}.{self.connections}", number)
                self.publications.append(publication)
                self.open[token] = publication
                await self.send(
                    "publish_request", {"topic": topic, "type": "x", "payload": {"n": token}}, token
                )

    def take(self, message):
        publication = self.open.pop(message.get("cid"), None)
        if publication is None:
            return
        self.room.release()
        payload = message["p"]
        if message["t"] == "publish_response":
            publication.outcome = "acknowledged"
            if "epoch" in payload:
                publication.position = (payload["epoch"], payload["offset"])
        else:
            publication.outcome = "unknown" if payload["code"] == "PUBLISH_UNKNOWN" else payload["code"]


class Subscriber(Client):
    """Subscribes to its topics and recovers whenever it connects again."""

    def __init__(self, name, servers, draw, topics):
        super().__init__(name, servers, draw)
        self.received = {topic: Received(name, topic) for topic in topics}
        self.subscribed: set[str] = set()
        self.room = Room(name)

    async def talk(self):
        self.subscribed = set()
        self.room.begin()
        wanted = {topic: log.position() for topic, log in self.received.items()}
        await self.subscribe(wanted)
        async for text in self.socket:
            message = json.loads(text)
            if self.room.take(message):
                if not self.room.is_in and not self.room.is_asked:
                    await self.enter_room()
            elif message["t"] == "subscription_update":
                self.take_answer(message["p"], wanted)
                if missing := set(self.received) - self.subscribed:
                    await asyncio.sleep(0.1)
                    wanted = {topic: self.received[topic].position() for topic in missing}
                    await self.subscribe(wanted)
            elif message["t"] == "publication_gap":
                gap = message["p"]
                place = (gap.get("epoch"), gap.get("from"), gap.get("to"))
                self.received[gap["topic"]].entries.append(("gap", gap["reason"], *place))
            elif "tp" in message:
                place = ("publication", message["e"], message["o"], message["p"]["n"])
                self.received[message["tp"]].entries.append(place)

    async def enter_room(self):
        self.room.is_asked = True
        await asyncio.sleep(0.1)
        await self.send("subscription_update", {"action": "subscribe", "topics": [ROOM]}, "room")

    async def ask_who(self):
        """Asks who is in the room; the answer is in `room.members` later."""
        self.room.members = None
        if self.socket:
            with contextlib.suppress(websockets.WebSocketException):
                await self.send("presence_request", {"topics": [ROOM]}, "who")

    async def subscribe(self, wanted):
        recovery = {topic: {"epoch": at[0], "offset": at[1]} for topic, at in wanted.items() if at}
        request = {"action": "subscribe", "topics": list(wanted), "recover": True, "recovery": recovery}
        await self.send("subscription_update", request)

    def take_answer(self, answer, wanted):
        for topic in answer["success_topics"]:
            self.subscribed.add(topic)
            at = answer["recovery"][topic]
            entry = ("subscribed", at["epoch"], at["offset"], at["recovered"], at["count"], wanted[topic])
            self.received[topic].entries.append(entry)


class Member(Client):
    """A member of a queue group: acknowledges each publication a moment after it has come."""

    def __init__(self, name, servers, draw):
        super().__init__(name, servers, draw)
        self.is_in = False
        self.seen = []  # (time, token, whether it may have been seen before)
        self.done = set()
        self.gaps = 0

    async def talk(self):
        self.is_in = False
        await self.join()
        async for text in self.socket:
            message = json.loads(text)
            if message["t"] == "subscription_update":
                self.is_in = WORK in message["p"]["success_topics"]
                if not self.is_in:
                    await asyncio.sleep(0.1)
                    await self.join()
            elif message["t"] == "publication_gap":
                self.gaps += 1
            elif message.get("tp") == WORK:
                token = message["p"]["n"]
                self.seen.append((time.monotonic(), token, message.get("rd", False)))
                await asyncio.sleep(self.draw.uniform(0, 0.01))
                await self.send("publication_ack", {"deliveries": [message["d"]]})
                self.done.add(token)

    async def join(self):
        request = {"action": "subscribe", "topics": [WORK], "queue_group": "g", "acknowledge": True, "window": 8}
        await self.send("subscription_update", request)
