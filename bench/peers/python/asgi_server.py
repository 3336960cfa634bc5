"""Echo under uvicorn: by `tidewire.asgi.WebSocketEndpoint`, or by a plain ASGI application, for compare.py."""

import argparse
import socket

import tidewire
import tidewire.asgi
import uvicorn

UNLIMITED = 4_000_000_000


def endpoint() -> tidewire.asgi.WebSocketEndpoint:
    limits = {"rate_limit_capacity": UNLIMITED, "rate_limit_refill_per_s": UNLIMITED}
    server = tidewire.Server(port=0, shards=1, protocol="raw", **limits)

    @server.on("*")
    async def answer(message: tidewire.Message) -> None:
        message.connection.send_raw(message)

    return tidewire.asgi.WebSocketEndpoint(server)


async def plain(scope, receive, send) -> None:
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--app", choices=["tidewire", "plain"], required=True)
    options = parser.parse_args()
    app = endpoint() if options.app == "tidewire" else plain
    listener = socket.create_server(("127.0.0.1", options.port), backlog=4096)
    print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
    lifespan = "on" if options.app == "tidewire" else "off"
    config = uvicorn.Config(
        app, loop="uvloop", ws="websockets-sansio", ws_per_message_deflate=False, lifespan=lifespan, log_level="warning"
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
