"""The ways of a value from one program to another, and what must arrive at the end of each."""

import asyncio
import json
import urllib.error
import urllib.request

import notation
import websockets.asyncio.client
from agents_in import API_KEY
from backend import RAW

TOPIC = "values.all"
LARGE_BYTES = 100_000
# What a client calls a fault of its caller, by language.
BEFORE = {
    "rust": {"INVALID_ARGUMENT"},
    "python": {"INVALID_ARGUMENT", "WRONG_TYPE"},
    "node": {"INVALID_ARGUMENT", "WRONG_TYPE"},
    "typescript": {"INVALID_ARGUMENT"},
}


class Faults(list):
    """Says each fault when it is found."""

    def append(self, fault):
        print(fault, flush=True)
        super().append(fault)


class Run:
    """All cases with one server. `faults` has a line for each that did not end as it must."""

    def __init__(self, agents, table, only):
        self.agents = agents
        self.table = table
        self.only = only
        self.faults = Faults()
        self.checked = 0

    async def everything(self):
        for case in self.chosen("cases"):
            await self.arrives(case)
        for case in self.chosen("refused"):
            await self.is_refused(case)
        for case in self.table["names"]:
            if self.only is None:
                await self.name_is_refused(case)
        for agent in self.agents.clients:
            for why in agent.disconnections:
                self.faults.append(f"{agent.name} lost its connection: {why}")
            for kind in agent.arrived:
                self.faults.append(f"{agent.name} received {kind!r}, which nobody expected")

    def chosen(self, part):
        return [case for case in self.table[part] if self.only in (None, case["name"])]

    # What arrives

    async def arrives(self, case):
        # Large values come one after another: nobody should wait behind eighteen of them.
        is_large = isinstance(case["value"], dict) and case["value"].get("count", 0) > LARGE_BYTES
        clients = self.agents.clients
        for group in [[client] for client in clients] if is_large else [clients]:
            for way in ("publish", "enqueue"):
                await asyncio.gather(*(self.publishes(case, sender, way) for sender in group))
            await asyncio.gather(*(self.asks(case, sender) for sender in group))
            await asyncio.gather(*(self.sends(case, sender) for sender in group))
        if isinstance(notation.build(case["value"]), dict):
            await asyncio.gather(*(self.joins(case, sender) for sender in clients))
        if self.agents.server:
            await self.server_publishes(case)
        else:
            await self.api_publishes(case)

    async def publishes(self, case, sender, way):
        kind = f"{case['name']}: {way} {sender.name}"
        answer = await sender.order(way, case["value"], topic=TOPIC, type=kind)
        if self.is_done(kind, answer):
            await self.at_all(case, kind, sender.language, sender.format)

    async def at_all(self, case, kind, sender, format_):
        await asyncio.gather(*(self.at(client, case, kind, sender, format_) for client in self.agents.clients))

    async def at(self, receiver, case, kind, sender, format_):
        arrived = await receiver.receive(kind)
        self.compare_values(
            f"{kind}, at {receiver.name}", arrived, case, {sender, receiver.language}, format_, receiver
        )

    async def sends(self, case, sender):
        kind = f"{case['name']}: send {sender.name}"
        if self.is_done(kind, await sender.order("send", case["value"], type=kind)):
            # Without an application the program sends it back as it is.
            await self.at(self.agents.server or sender, case, kind, sender.language, sender.format)

    async def asks(self, case, sender):
        kind = f"{case['name']}: request {sender.name}"
        answer = await sender.order("request", case["value"], type=kind)
        if not self.agents.server and not self.agents.backend:
            # Nobody answers requests there.
            return self.compare(kind, answer.get("refused"), "NOT_FOUND")
        if self.is_done(kind, answer):
            told = sender.payload(answer["done"])
            # The backend is asked in JSON, and answers with the same text.
            languages = {sender.language, self.agents.server.language if self.agents.server else "backend"}
            self.compare_values(kind, [told], case, languages, sender.format, sender)

    async def joins(self, case, sender):
        room = f"rooms.{len(self.faults)}.{self.checked}.{sender.own_topic}"
        kind = f"{case['name']}: presence {sender.name}"
        joined = await sender.order("join", case["value"], topic=room)
        if sender.language == "python" and notation.is_wide(notation.describe(notation.build(case["value"]))):
            # Its client is that of Rust, which has 64 bits here.
            return self.compare(kind, joined.get("refused"), "INVALID_ARGUMENT")
        if not self.is_done(kind, joined):
            return
        for reader in self.agents.clients:
            members = await reader.order("members", topic=room)
            if self.is_done(f"{kind}, at {reader.name}", members):
                told = [reader.payload(member) for member in members["done"]]
                # The client of Rust, which is in that of Python, has values here and not their text: numbers have 64 bits.
                languages = {sender.language, reader.language}
                format_ = "msgpack"
                self.compare_values(f"{kind}, at {reader.name}", told, case, languages, format_, reader)

    async def server_publishes(self, case):
        server = self.agents.server
        for way, place in (("publish", {"topic": TOPIC}), ("broadcast", {})):
            kind = f"{case['name']}: {way} of the server"
            if self.is_done(kind, await server.order(way, case["value"], type=kind, **place)):
                await self.at_all(case, kind, server.language, "json")

    async def api_publishes(self, case):
        kind = f"{case['name']}: HTTP API"
        status, text = await asyncio.to_thread(self.post, kind, case["value"])
        if status == 200:
            await self.at_all(case, kind, "http", "json")
        else:
            self.faults.append(f"{kind}: {status} {text}")

    def post(self, kind, spec):
        fields = {"topic": TOPIC, "type": kind}
        text = json.dumps(fields)[:-1]
        if isinstance(spec, dict) and spec.get("$") == "bytes":
            text += f',"binary":true,"payload":{json.dumps(notation.base64_of(spec))}}}'
        else:
            # The API requires a payload.
            missing = isinstance(spec, dict) and spec.get("$") == "missing"
            text += f',"payload":{"{}" if missing else notation.json_text(spec)}}}'
        request = urllib.request.Request(
            f"{self.agents.program.http}/api/v1/publish",
            data=text.encode("utf-8", "surrogatepass"),
            headers={"X-API-Key": API_KEY},
        )
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def is_done(self, kind, answer):
        if "done" not in answer:
            self.faults.append(f"{kind}: refused with {answer['refused']}: {answer['words'][:200]}")
        return "done" in answer

    def compare_values(self, what, arrived, case, languages, sent_as, receiver):
        """Exactly one value arrived, and it is the one of the case: to the last digit, unless a place on its way has fewer."""
        described = notation.describe(notation.build(case.get("arrives", case["value"])))
        if languages & {"typescript", "node"}:
            lossy = notation.rounded
        elif "msgpack" in (sent_as, receiver.format):
            lossy = lambda value: notation.rounded(value, notation.fits_64_bits)
        else:
            lossy = lambda value: value
        self.compare(what, [lossy(value) for value in arrived], [lossy(described)])

    def compare(self, what, found, expected):
        self.checked += 1
        if found != expected:
            self.faults.append(f"{what}: {str(found)[:160]} instead of {str(expected)[:160]}")

    # What is refused

    async def is_refused(self, case):
        for sender in self.agents.clients:
            spec = self.spec_for(case, sender.language)
            if spec is not None:
                for way in ("publish", "enqueue", "send", "request"):
                    await self.refuses(f"{case['name']}: {way} {sender.name}", sender, way, spec)
        server = self.agents.server
        if server and (spec := self.spec_for(case, server.language)) is not None:
            for way, place in (("publish", {"topic": TOPIC}), ("broadcast", {})):
                kind = f"{case['name']}: {way} of the server"
                self.before(kind, server, await server.order(way, spec, type=kind, **place))
        if code := case.get("server"):
            await self.server_refuses(case["name"], notation.json_text(case["value"]), code)
            if self.agents.program:
                status, text = await asyncio.to_thread(self.post, case["name"], case["value"])
                self.compare(f"{case['name']}: HTTP API: {text}", status, 400)
            if self.agents.backend:
                await self.answer_is_refused(case)

    async def answer_is_refused(self, case):
        """The backend answers with the value, in place of a publication and to a request."""
        text = notation.json_text(case["value"]).encode("ascii", "backslashreplace").decode()
        for sender in self.agents.clients:
            for way, code in (("publish", "BACKEND_UNAVAILABLE"), ("request", "HANDLER_ERROR")):
                kind = f"{RAW}{case['name']}: {way} {sender.name}"
                place = {"topic": TOPIC} if way == "publish" else {}
                answer = await sender.order(way, text, type=kind, **place)
                self.compare(f"{kind}, answered by the backend", answer.get("refused"), code)

    def spec_for(self, case, language):
        """The value in a language, and `None` if the case is not for it."""
        if "value" in case:
            return case["value"]
        language = "typescript" if language == "node" else language
        return {"$": language, "text": case[language]} if language in case else None

    async def refuses(self, kind, sender, way, spec, code=None, **names):
        place = {"topic": TOPIC} if way in ("publish", "enqueue") else {}
        self.before(kind, sender, await sender.order(way, spec, **{"type": kind} | place | names), code)

    def before(self, kind, sender, answer, code=None):
        """The client has to refuse the call as a fault of its caller, or the server has to refuse it with this code."""
        self.checked += 1
        if answer.get("refused") not in BEFORE[sender.language] | {code}:
            self.faults.append(f"{kind}: {str(answer)[:200]} instead of a refusal")

    async def server_refuses(self, name, payload, code):
        """Another client sends this payload. The server refuses it with this code and the `cid`, and the session continues."""
        texts = {
            "send": f'{{"t":"x","cid":"7","p":{payload}}}',
            "send with its cid last": f'{{"t":"x","p":{payload},"cid":"7"}}',
            "publish": f'{{"t":"publish_request","cid":"7","p":{{"topic":"{TOPIC}","type":"x","payload":{payload}}}}}',
            "request": f'{{"t":"call_request","p":{{"type":"x","payload":{payload}}},"cid":"7"}}',
        }
        if self.agents.program:
            # Its application sends back what it has not read.
            texts = {way: text for way, text in texts.items() if not way.startswith("send")}
        async with websockets.asyncio.client.connect(self.agents.url, max_size=None) as socket:
            for way, text in texts.items():
                await socket.send(text)
                refusal = await self.next_of(socket, "error")
                found = refusal and (refusal["p"]["code"], refusal.get("cid"))
                self.compare(f"{name}: {way} of another client", found, (code, "7"))

    async def next_of(self, socket, kind):
        try:
            async with asyncio.timeout(5):
                while True:
                    message = json.loads(await socket.recv())
                    if message["t"] == kind:
                        return message
        except (TimeoutError, websockets.exceptions.ConnectionClosed):
            return None

    async def name_is_refused(self, case):
        names = {key: case[key] for key in ("topic", "type") if key in case}
        what = json.dumps(names)
        for sender in self.agents.clients:
            built = {key: spec if isinstance(spec, str) else notation.build(spec) for key, spec in names.items()}
            if sender.language == "rust" and "units" in what:
                continue  # A text of Rust cannot have half a pair.
            # `send_later` of Python only promises that it has stored the message.
            ways = {"publish", "enqueue", "send"} - ({"send"} if "topic" in names else set())
            ways -= {"enqueue"} if sender.language == "python" and "topic" in names else set()
            # Only publications and calls limit the type.
            ways -= {"send"} if len(built.get("type", "")) > 128 else set()
            for way in sorted(ways):
                await self.refuses(f"{what}: {way} {sender.name}", sender, way, 1, case["server"], **built)
