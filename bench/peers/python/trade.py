"""The message of these comparisons."""


def trade(note_bytes: int) -> dict:
    """A trade whose length is that of its note and of all the rest."""
    return {
        "symbol": "TIDE-USD",
        "price": 101.25,
        "quantity": 250,
        "side": "buy",
        "venue": "loopback",
        "account": "A-1027",
        "note": "x" * note_bytes,
    }
