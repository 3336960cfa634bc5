"""Prints what the Python client receives of topics, one JSON object for each event: follow.py URL TOPIC..."""

import json
import sys

from tidewire.sync import connect


def show(**event):
    print(json.dumps(event), flush=True)


with connect(sys.argv[1]) as client:
    for kind in ("gap", "unrecovered"):
        client.on(kind)(lambda _, kind=kind: show(kind=kind))
    client.subscribe(sys.argv[2:])
    show(kind="ready")
    for message in client:
        epoch, offset = message.position
        show(kind="publication", topic=message.topic, epoch=epoch, offset=offset, payload=message.payload)
