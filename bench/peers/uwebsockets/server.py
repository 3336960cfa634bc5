"""Broadcast server on uWebSockets, as socketify brings it along. One process, one thread, as the others here.

It uses the C interface below socketify's own classes: frames, topics, sending and the event loop are all
uWebSockets' own, and Python costs something once per message of the publisher, not once per delivery.

SIGTERM is not handled: its default action, to end the process at once, is what a benchmark wants.
"""

import argparse
import signal

from socketify.native import ffi, lib

PLAIN = 0  # not TLS
TOPIC = b"everyone"

received = []
loop = lib.socketify_create_loop()
lib.uws_get_loop_with_native(lib.socketify_get_native_loop(loop))
app = lib.uws_create_app(PLAIN, ffi.new("struct us_socket_context_options_t *")[0])


@ffi.callback("void(uws_websocket_t*, void*)")
def on_open(socket, _):
    lib.uws_ws_subscribe(PLAIN, socket, TOPIC, len(TOPIC))


@ffi.callback("void(uws_websocket_t*, const char*, size_t, uws_opcode_t, void*)")
def on_message(_socket, message, length, opcode, _):
    received.append((ffi.unpack(message, length), length, opcode))


@ffi.callback("void(void*)")
def on_received(_):
    # After all sockets were read: uWebSockets sends up to 32 publications at once to a subscriber, but while
    # a socket is being read, and is corked therefore, it sends those past the first 32 one by one.
    for message, length, opcode in received:
        lib.uws_publish(PLAIN, app, TOPIC, len(TOPIC), message, length, opcode, False)
    received.clear()


@ffi.callback("void(struct us_listen_socket_t*, uws_app_listen_config_t, void*)")
def on_listen(listener, _config, _):
    if listener != ffi.NULL:
        print(f"listening on 127.0.0.1:{lib.us_socket_local_port(PLAIN, listener)}", flush=True)


def main(port: int) -> None:
    """Serves until the process is ended; returns at once if the port is taken."""
    behavior = ffi.new("uws_socket_behavior_t *")
    behavior.maxPayloadLength = 1024 * 1024
    behavior.idleTimeout = 120
    behavior.sendPingsAutomatically = True
    # Past it, uWebSockets drops what a slow subscriber should get.
    behavior.maxBackpressure = 16 * 1024 * 1024
    behavior.open = on_open
    behavior.message = on_message
    lib.uws_ws(PLAIN, app, b"/*", behavior[0], ffi.NULL)
    host = ffi.new("char[]", b"127.0.0.1")  # held by this name as long as it is used
    config = ffi.new("uws_app_listen_config_t *", {"port": port, "host": host})
    lib.uws_app_listen_with_config(PLAIN, app, config[0], on_listen, ffi.NULL)
    lib.socketify_create_check(loop, on_received, ffi.NULL)
    lib.socketify_loop_run(loop, lib.SOCKETIFY_RUN_DEFAULT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True, help="TCP port on 127.0.0.1, 0 for any")
    parser.add_argument("--mode", choices=("broadcast",), required=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(parser.parse_args().port)
    raise SystemExit("the port cannot be taken")
