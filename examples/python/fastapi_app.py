"""A FastAPI application with live messages on its own port.

    pip install ./bindings/python fastapi uvicorn
    uvicorn fastapi_app:app

Open http://127.0.0.1:8000/ in two windows. Who logs in gets a cookie that the page's WebSocket brings along; what one
orders, all see.
"""

from __future__ import annotations

import os
import secrets
import time
from typing import Annotated

import tidewire
import tidewire.asgi
import tidewire.jwt
from fastapi import Depends, FastAPI, Response
from fastapi.responses import HTMLResponse
from pydantic import BaseModel
from starlette.routing import WebSocketRoute

SECRET = os.environ.get("TIDEWIRE_JWT_SECRET") or secrets.token_hex(32)
SESSION_S = 3600

server = tidewire.Server(port=0, jwt_secret=SECRET, client_subscribe_allow=["orders"])
app = FastAPI(lifespan=tidewire.asgi.lifespan(server))
app.router.routes.append(WebSocketRoute("/ws", tidewire.asgi.WebSocketEndpoint(server)))

Live = Annotated[tidewire.Server, Depends(tidewire.asgi.get_server)]


class Login(BaseModel):
    user: str


class Order(BaseModel):
    article: str


@server.on("chat")
async def chat(message: tidewire.Message) -> None:
    """A message of one page is sent to all pages."""
    server.publish("orders", {"user": message.user, "text": message.payload}, type="chat")


@server.request("time")
def tell_time(message: tidewire.Message) -> float:
    return time.time()


@app.post("/login")
def login(login: Login, response: Response) -> dict[str, str]:
    """A real application checks a password here."""
    token = tidewire.jwt.encode({"sub": login.user, "exp": int(time.time()) + SESSION_S}, SECRET)
    response.set_cookie("access_token", token, max_age=SESSION_S, httponly=True, samesite="strict")
    return {"user": login.user}


@app.post("/orders")
def order(order: Order, live: Live) -> dict[str, int]:
    live.publish("orders", order, type="order_created")
    return {"connections": live.connections}


@app.get("/")
def page() -> HTMLResponse:
    return HTMLResponse(PAGE)


PAGE = """<!doctype html>
<title>Orders</title>
<input id=user placeholder="your name"> <button onclick="login()">Log in</button>
<input id=article placeholder="article"> <button onclick="order()">Order</button>
<pre id=log></pre>
<script>
  const headers = {"content-type": "application/json"};
  const post = (path, body) => fetch(path, {method: "POST", headers, body: JSON.stringify(body)});
  async function login() {
    await post("/login", {user: user.value});
    const socket = new WebSocket(location.origin.replace(/^http/, "ws") + "/ws");
    const say = (t, p) => socket.send(JSON.stringify({t, p}));
    socket.onopen = () => say("subscription_update", {action: "subscribe", topics: ["orders"]});
    socket.onmessage = ({data}) => {
      const {t, p} = JSON.parse(data);
      if (t === "ping") say("PONG", {client_timestamp: p.timestamp, server_timestamp: Date.now(), latency: 0});
      log.textContent += t + " " + JSON.stringify(p) + "\\n";
    };
  }
  const order = () => post("/orders", {article: article.value});
</script>
"""
