"""The chat of docs/ten-minutes.md works as it stands there."""

from __future__ import annotations

import http.cookiejar
import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import tidewire
from ports import free_port

PAGE = (Path(__file__).parents[3] / "docs/ten-minutes.md").read_text()


# The ports of the page may be taken on this machine.
PAGES_PORT, LIVE_PORT = free_port(), free_port()
PAGES = f"http://127.0.0.1:{PAGES_PORT}"
LIVE = f"ws://127.0.0.1:{LIVE_PORT}/ws"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    assert found is not None
    return found[1].replace("8000", str(PAGES_PORT)).replace("5006", str(LIVE_PORT))


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "chat.py").write_text(block("python"))
    (tmp_path / "index.html").write_text(block("html"))
    (tmp_path / "tidewire.min.js").write_text("// the client\n")
    program = [sys.executable, tmp_path / "chat.py"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert PAGES in server.stdout.readline()
        yield server
        server.kill()


def log_in(name: str) -> str:
    """The token in the cookie that the page gets."""
    cookies = http.cookiejar.CookieJar()
    handlers = urllib.request.HTTPCookieProcessor(cookies), urllib.request.ProxyHandler({})
    opener = urllib.request.build_opener(*handlers)
    body = json.dumps({"name": name}).encode()
    assert opener.open(f"{PAGES}/login", data=body).status == 204
    [cookie] = cookies
    assert cookie.name == "access_token"
    assert cookie.value is not None
    assert cookie.has_nonstandard_attr("HttpOnly")
    return cookie.value


def get(path: str) -> str:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    answer = opener.open(PAGES + path)
    return str(answer.read().decode())


def test_two_people_chat(chat: subprocess.Popen[str]) -> None:
    assert 'from "/tidewire.min.js"' in get("/")
    assert get("/tidewire.min.js") == "// the client\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get("/chat.py")

    def join(name: str) -> tidewire.sync.Client:
        client = tidewire.sync.connect(LIVE, token=log_in(name))
        client.subscribe("chat", replay=20, presence={})
        return client

    with join("ada") as ada, join("bob") as bob:
        assert sorted(ada.presence("chat")["chat"].members) == ["ada", "bob"]
        ada.send("hello", type="say")
        for client in (ada, bob):
            assert client.next(timeout=60).payload == {"user": "ada", "text": "hello"}
        with pytest.raises(tidewire.CallError, match="TOPIC_FORBIDDEN"):
            bob.publish("chat", {"user": "ada", "text": "not me"}, type="said")
    # Who comes later finds what was said.
    with join("eve") as eve:
        assert eve.next(timeout=60).payload == {"user": "ada", "text": "hello"}
        deadline = time.monotonic() + 60
        while list(eve.presence("chat")["chat"].members) != ["eve"]:
            assert time.monotonic() < deadline
