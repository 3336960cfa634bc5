"""A Starlette application with the engine beside it, on a port of its own: the fast way.

    pip install ./bindings/python starlette uvicorn
    uvicorn starlette_app:app

The page learns from `/live` where to connect. Both ports are of one host, so that the cookie of the login goes to both.
"""

from __future__ import annotations

import os
import secrets
import time

import tidewire
import tidewire.asgi
import tidewire.jwt
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

SECRET = os.environ.get("TIDEWIRE_JWT_SECRET") or secrets.token_hex(32)
SESSION_S = 3600

server = tidewire.Server(
    port=0, jwt_secret=SECRET, client_subscribe_allow=["orders"], origin=["http://127.0.0.1:8000"]
)


@server.on("chat")
async def chat(message: tidewire.Message) -> None:
    """A message of one page is sent to all pages."""
    server.publish("orders", {"user": message.user, "text": message.payload}, type="chat")


async def login(request: Request) -> JSONResponse:
    """A real application checks a password here."""
    user = (await request.json())["user"]
    token = tidewire.jwt.encode({"sub": user, "exp": int(time.time()) + SESSION_S}, SECRET)
    response = JSONResponse({"user": user})
    response.set_cookie("access_token", token, max_age=SESSION_S, httponly=True, samesite="strict")
    return response


async def live(request: Request) -> JSONResponse:
    """Where the page's WebSocket connects."""
    return JSONResponse({"url": tidewire.asgi.get_server(request).url})


async def order(request: Request) -> JSONResponse:
    live = tidewire.asgi.get_server(request)
    live.publish("orders", await request.json(), type="order_created")
    return JSONResponse({"connections": live.connections})


app = Starlette(
    lifespan=tidewire.asgi.lifespan(server),
    routes=[
        Route("/login", login, methods=["POST"]),
        Route("/live", live),
        Route("/orders", order, methods=["POST"]),
    ],
)
