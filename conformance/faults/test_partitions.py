"""Tests of the places of topics, which the engine has to find as well."""

import partitions


def test_each_partition_has_a_part_of_the_slots():
    assert partitions.tags(1) == [0]
    assert partitions.tags(4) == [0, 3, 2, 1]
    assert partitions.tags(8) == [0, 3, 43, 2, 42, 1, 41, 40]
    for count in range(1, 65):
        parts = {slot * count // partitions.SLOTS for slot in partitions.slots(count)}
        assert len(parts) == count


def test_topics_have_a_key_and_a_slot():
    assert partitions.stream_of("a", 1) == "tw:{0}:t:a"
    assert [partitions.stream_of(topic, 4) for topic in ("h.a", "h.d", "h.c", "h.b")] == [
        "tw:{0}:t:h.a",
        "tw:{3}:t:h.d",
        "tw:{2}:t:h.c",
        "tw:{1}:t:h.b",
    ]
    assert partitions.slot_of("h.a", 4) == 13907
