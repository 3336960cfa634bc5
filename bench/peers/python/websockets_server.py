"""Echo and sink server on the websockets library. One process, one thread, as the other servers here."""

import argparse
import asyncio

from websockets.asyncio.server import ServerConnection, serve


async def sink(connection: ServerConnection) -> None:
    async for _message in connection:
        pass


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--mode", choices=["sink", "echo"], required=True)
    options = parser.parse_args()
    handler = echo if options.mode == "echo" else sink
    async with serve(handler, "127.0.0.1", options.port, compression=None, max_size=1 << 20) as server:
        host, port = server.sockets[0].getsockname()
        print(f"listening on {host}:{port}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
