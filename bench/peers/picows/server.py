"""Echo and sink server on picows. One process, one thread, as the other servers here.

SIGTERM is not handled: its default action, to end the process at once, is what a benchmark wants.
"""

import argparse
import asyncio
import codecs

from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop


class Sink(WSListener):
    """Reads and checks every message; picows itself answers pings, but leaves UTF-8 to its user."""

    _decoder = None

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        kind = frame.msg_type
        try:
            if kind == WSMsgType.TEXT and frame.fin:
                frame.get_payload_as_utf8_text()
            elif kind == WSMsgType.TEXT or kind == WSMsgType.CONTINUATION:
                self._check_fragment(frame)
            elif kind == WSMsgType.CLOSE:
                transport.send_close(frame.get_close_code())
                transport.disconnect()
                return
            elif kind != WSMsgType.BINARY:
                return
        except UnicodeDecodeError:
            transport.send_close(WSCloseCode.INVALID_TEXT)
            transport.disconnect()
            return
        self.on_data(transport, frame)

    def on_data(self, transport: WSTransport, frame: WSFrame) -> None:
        """Swallows a data frame."""

    def _check_fragment(self, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.TEXT:
            self._decoder = codecs.getincrementaldecoder("utf-8")()
        if self._decoder is not None:
            self._decoder.decode(frame.get_payload_as_bytes(), frame.fin)
            if frame.fin:
                self._decoder = None


class Echo(Sink):
    """Sends each data frame back as it came, fragments as fragments."""

    def on_data(self, transport: WSTransport, frame: WSFrame) -> None:
        transport.send(frame.msg_type, frame.get_payload_as_memoryview(), frame.fin)


async def main(port: int, listener: type[WSListener]) -> None:
    """Serves until the process is ended."""
    server = await ws_create_server(lambda _request: listener(), "127.0.0.1", port, backlog=4096)
    print(f"listening on 127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True, help="TCP port on 127.0.0.1, 0 for any")
    parser.add_argument("--mode", choices=("echo", "sink"), required=True)
    arguments = parser.parse_args()
    loop = new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(main(arguments.port, Echo if arguments.mode == "echo" else Sink))
