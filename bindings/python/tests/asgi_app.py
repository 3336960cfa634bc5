"""The application that the ASGI tests run under real servers; its options come from the environment."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Annotated, Any

import tidewire
import tidewire.asgi
import tidewire.jwt
from fastapi import Body, Depends, FastAPI, Response
from starlette.applications import Starlette
from starlette.routing import Mount, WebSocketRoute

SECRET = os.environ["SECRET"]
OPTIONS = json.loads(os.environ.get("OPTIONS", "{}"))

server = tidewire.Server(port=0, shards=1, jwt_secret=SECRET, topics_open=True, **OPTIONS)
endpoint = tidewire.asgi.WebSocketEndpoint(server)
app = FastAPI(lifespan=tidewire.asgi.lifespan(server, drain_timeout_ms=1_000))
app.router.routes.append(WebSocketRoute("/ws", endpoint))
app.mount("/below", Starlette(routes=[Mount("/", app=endpoint)]))

Live = Annotated[tidewire.Server, Depends(tidewire.asgi.get_server)]
ended: list[tuple[str | None, int | None]] = []
released = asyncio.Event()


@server.on("echo")
async def echo(message: tidewire.Message) -> None:
    message.connection.send(message.payload, type="echo")


@server.on("close")
async def close(message: tidewire.Message) -> None:
    message.connection.close(*message.payload)


@server.on("wait")
async def wait(message: tidewire.Message) -> None:
    """Until somebody releases it."""
    await released.wait()
    message.connection.send(message.payload["n"], type="waited")


@server.request("double")
async def double(message: tidewire.Message) -> Any:
    return message.payload * 2


@server.on("disconnect")
def gone(message: tidewire.Message) -> None:
    ended.append((message.reason, message.close_code))


@app.post("/login")
def login(user: Annotated[str, Body(embed=True)], response: Response) -> dict[str, str]:
    token = tidewire.jwt.encode({"sub": user, "exp": int(time.time()) + 60}, SECRET)
    response.set_cookie("access_token", token, httponly=True, samesite="strict")
    return {"user": user}


@app.post("/publish")
def publish(live: Live, payload: Annotated[Any, Body(embed=True)]) -> dict[str, int]:
    live.publish("news", payload, type="news")
    return {"connections": live.connections}


@app.get("/state")
def state(live: Live) -> dict[str, Any]:
    return {"url": live.url, "ended": ended, **live.statistics()}


@app.post("/release")
async def release() -> None:
    released.set()


@app.post("/stop")
def stop(live: Live) -> None:
    live.stop()
