"""Where the topics of a cluster with several partitions are, by docs/scale-out.md and nothing of this project's code."""

import binascii

SLOTS = 16384


def crc16(text):
    return binascii.crc_hqx(text.encode(), 0)


def tags(count):
    """The text between braces in the keys of each partition."""

    def part(tag):
        return crc16(str(tag)) % SLOTS * count // SLOTS

    others = [p for p in range(count) if p != part(0)]
    return [0, *(next(tag for tag in range(1, 65535) if part(tag) == p) for p in others)]


def tag_of(topic, count):
    return tags(count)[crc16(topic) % count]


def stream_of(topic, count):
    """The key of a topic's stream."""
    return f"tw:{{{tag_of(topic, count)}}}:t:{topic}"


def slot_of(topic, count):
    """The slot of that key."""
    return crc16(str(tag_of(topic, count))) % SLOTS


def slots(count):
    """The slots of all partitions."""
    return [crc16(str(tag)) % SLOTS for tag in tags(count)]
