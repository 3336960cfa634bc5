"""The server of the three pages, in Python.

    pip install ./bindings/python
    python server.py http://127.0.0.1:8080

It keeps the history and the presence of the chat, publishes 5,000 prices a second, and keeps the entries of the form.
The argument is the origin of the pages, `--port` where it listens (5006).
"""

from __future__ import annotations

import argparse
import itertools
import math
import threading
import time

import tidewire

SYMBOLS = [f"SYM{index:03}" for index in range(500)]
UPDATES_PER_S = 5_000
TICK_S = 0.01


def publish_prices(server: tidewire.Server, stopped: threading.Event) -> None:
    """Publishes an update of each symbol in turn, with the symbol as the key for slow pages."""
    numbers = itertools.count()
    sent = 0
    start = time.monotonic()
    while not stopped.wait(TICK_S):
        due = int((time.monotonic() - start) * UPDATES_PER_S)
        for n in itertools.islice(numbers, due - sent):
            symbol = SYMBOLS[n % len(SYMBOLS)]
            price = {"symbol": symbol, "price": 100 + 10 * math.sin(n / 700), "n": n}
            server.publish("prices", price, type="price", key=symbol)
        sent = due


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("origin", nargs="?", default="http://127.0.0.1:8080")
    parser.add_argument("--port", type=int, default=5006)
    options = parser.parse_args()
    server = tidewire.Server(
        port=options.port,
        no_auth=True,
        origin=[options.origin],
        client_subscribe_allow=["chat.*", "prices", "entries"],
        client_publish_allow=["chat.*", "entries"],
        history={"chat.*": 100, "entries": 100},
        presence=["chat.*"],
    )
    stopped = threading.Event()
    publisher = threading.Thread(target=publish_prices, args=(server, stopped))
    with server:
        print(f"listening on {server.url}", flush=True)
        publisher.start()
        try:
            # Nothing comes to the application: the engine serves the topics by itself.
            for _ in server.batches():
                pass
        except KeyboardInterrupt:
            pass
        finally:
            stopped.set()
            publisher.join()


if __name__ == "__main__":
    main()
