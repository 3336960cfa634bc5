"""A client that knows nothing of Tidewire: the `websockets` package."""

from __future__ import annotations

import itertools
import json
from typing import Any

from websockets.sync.client import ClientConnection, connect


class PlainClient:
    """Says and hears JSON, and has waited for the server's greeting."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._connection = connect(url, additional_headers=headers, proxy=None, max_size=None)
        self.socket: ClientConnection = self._connection.__enter__()
        self.ready = self.until("server_ready")
        self._numbers = itertools.count(1)

    def __enter__(self) -> PlainClient:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.__exit__(None, None, None)

    def say(self, type: str, payload: Any, **fields: Any) -> None:
        self.socket.send(json.dumps({"t": type, "p": payload, **fields}))

    def hear(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.socket.recv(timeout=30))
        return message

    def until(self, type: str) -> dict[str, Any]:
        """The next message of this type; others are passed over."""
        while True:
            message = self.hear()
            if message["t"] == type:
                return message

    def subscribe(self, *topics: str, **fields: Any) -> dict[str, Any]:
        self.say("subscription_update", {"action": "subscribe", "topics": topics, **fields})
        answer: dict[str, Any] = self.until("subscription_update")["p"]
        return answer

    def request(self, type: str, payload: Any) -> dict[str, Any]:
        number = str(next(self._numbers))
        self.say("call_request", {"type": type, "payload": payload}, cid=number)
        answer = self.until("call_response")
        assert answer["cid"] == number
        result: dict[str, Any] = answer["p"]
        return result
