"""Token bucket, sequencer, priority queue and filter."""

from __future__ import annotations

import heapq
import json
import random
import threading
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
import tidewire
from tidewire import BusyError, Gap, InvalidArgumentError, InvalidMessageError, TidewireError, WrongTypeError


def test_a_burst_is_taken_and_then_the_refill() -> None:
    bucket = tidewire.TokenBucket(10, 2)
    assert [bool(bucket.take(now=0)) for _ in range(12)] == [True] * 10 + [False] * 2
    refused = bucket.take(now=0.4)
    assert not refused.allowed
    assert refused.retry_after == pytest.approx(0.1)
    assert bucket.take(now=0.5)
    assert bucket.take(2, now=1.499).retry_after == pytest.approx(0.001)
    taken = bucket.take(2, now=1.5)
    assert (taken.allowed, taken.remaining, taken.retry_after) == (True, 0, None)
    assert bucket.take(10, now=1000)


def test_all_or_none_and_the_warning() -> None:
    bucket = tidewire.TokenBucket(100, 10)
    assert bucket.take(99, now=0).low
    assert not bucket.take(2, now=0)
    last = bucket.take(1, now=0)
    assert (last.allowed, last.low, last.remaining) == (True, False, 0)


def test_a_slow_refill_has_fractions() -> None:
    bucket = tidewire.TokenBucket(3, 0.5)
    assert bucket.take(3, now=0)
    assert bucket.take(now=0).retry_after == pytest.approx(2)
    assert bucket.take(now=2)
    assert bucket.take(now=3).remaining == pytest.approx(0.5)
    assert (bucket.capacity, bucket.refill_per_s) == (3, 0.5)
    assert "3" in repr(bucket)


def test_it_agrees_with_the_formula() -> None:
    generator = random.Random(7)
    bucket, level, now_ms = tidewire.TokenBucket(50, 20), 50_000, 0
    for _ in range(2000):
        elapsed, n = generator.randrange(200), generator.randrange(1, 9)
        now_ms += elapsed
        level = min(50_000, level + elapsed * 20)
        taken = bucket.take(n, now=now_ms / 1000 + 1e-6)
        assert taken.allowed == (level >= n * 1000)
        level -= n * 1000 if taken else 0


def test_the_buckets_own_clock_is_used_without_a_time() -> None:
    bucket = tidewire.TokenBucket(1, 1_000_000)
    assert bucket.take()
    while not bucket.take():
        pass


def test_buckets_that_cannot_be() -> None:
    wrong: Any
    for wrong in ((0, 1), (1, 0), (-1, 1), (1, -1), (2**32, 1), (1, 1e12), (1, 0.0001), (5_000_000, 0.5)):
        with pytest.raises(InvalidArgumentError):
            tidewire.TokenBucket(*wrong)
    bucket = tidewire.TokenBucket(5, 1)
    for wrong in (0, 6, -1, 2**70):
        with pytest.raises(InvalidArgumentError):
            bucket.take(wrong)
    for wrong in (-1.0, float("inf"), float("nan")):
        with pytest.raises(InvalidArgumentError):
            bucket.take(now=wrong)
    with pytest.raises(WrongTypeError):
        bucket.take("1")  # type: ignore[arg-type]


EPOCH = "6f0d2c1a"


def test_messages_come_once_and_in_order() -> None:
    generator = random.Random(3)
    for _ in range(50):
        sequencer: tidewire.Sequencer[int] = tidewire.Sequencer()
        sequencer.add("t", (EPOCH, 1), 1, now=0)
        rest = list(range(2, 60)) + generator.choices(range(1, 60), k=30)
        generator.shuffle(rest)
        seen: list[int | Gap] = [1]
        for offset in rest:
            seen += sequencer.add("t", (EPOCH, offset), offset, now=0)[1]
        assert seen == list(range(1, 60))
        assert (sequencer.held, sequencer.topics, sequencer.position("t")) == (0, 1, (EPOCH, 59))


def test_a_gap_is_told_when_the_time_is_over() -> None:
    sequencer: tidewire.Sequencer[str] = tidewire.Sequencer(window_ms=500)
    assert sequencer.add("t", (EPOCH, 1), "a", now=1.0) == ("delivered", ["a"])
    assert sequencer.add("t", (EPOCH, 1), "a", now=1.0) == ("duplicate", [])
    assert sequencer.add("t", (EPOCH, 4), "d", now=1.0) == ("held", [])
    assert sequencer.deadline == 1.5
    assert sequencer.expire(now=1.4) == []
    gap, message = sequencer.expire(now=1.5)
    assert isinstance(gap, Gap)
    assert (gap.topic, gap.epoch, gap.first, gap.last, len(gap)) == ("t", EPOCH, 2, 3, 2)
    assert message == "d"
    assert sequencer.held == 0
    assert sequencer.expire(now=9.0) == []
    assert sequencer.add("t", (EPOCH, 3), "c", now=2.0) == ("duplicate", [])
    assert sequencer.add("t", ("00000002", 1), "z", now=2.0) == ("new_epoch", ["z"])
    assert sequencer.position("t") == ("00000002", 1)
    assert "1 topics" in repr(sequencer)


def test_what_is_known_from_elsewhere() -> None:
    sequencer: tidewire.Sequencer[str] = tidewire.Sequencer()
    assert sequencer.advance("t", (EPOCH, 5)) == []
    assert sequencer.add("t", (EPOCH, 8), "h") == ("held", [])
    assert sequencer.skip("t", EPOCH, 6, 7) == ["h"]
    assert sequencer.add("t", (EPOCH, 10), "j") == ("held", [])
    forgotten = sequencer.forget("t")
    assert [len(item) for item in forgotten] == [1, 1]
    assert forgotten[1] == "j"
    assert sequencer.position("t") is None


def test_an_envelopes_position_fits() -> None:
    message = tidewire.encode_envelope("tick", 1, topic="t", position=(EPOCH, 2**64 - 1))
    envelope = tidewire.parse_envelope(message)
    sequencer: tidewire.Sequencer[tidewire.Envelope] = tidewire.Sequencer()
    assert envelope.topic is not None
    assert envelope.position is not None
    assert sequencer.add(envelope.topic, envelope.position, envelope) == ("delivered", [envelope])
    assert sequencer.add("t", (int(EPOCH, 16), 0), envelope) == ("duplicate", [])


def test_the_sequencer_is_bounded() -> None:
    sequencer: tidewire.Sequencer[int] = tidewire.Sequencer(topics_max=10, held_messages_max=5)
    for topic in range(100):
        sequencer.add(str(topic), (EPOCH, 1), topic)
    assert sequencer.topics == 10
    told: list[int | Gap] = []
    for offset in range(3, 100, 2):
        told += sequencer.add("99", (EPOCH, offset), offset)[1]
    assert sequencer.held <= 5
    assert told


def test_positions_that_are_none() -> None:
    sequencer: tidewire.Sequencer[int] = tidewire.Sequencer()
    wrong: Any
    for wrong in (
        None,
        5,
        (EPOCH,),
        (EPOCH, -1),
        ("xyz", 1),
        (2**32, 1),
        (None, 1),
        (EPOCH, 1, 2),
        (EPOCH, "1"),
    ):
        with pytest.raises(TidewireError):
            sequencer.add("t", wrong, 1)
    with pytest.raises(WrongTypeError):
        sequencer.add(5, (EPOCH, 1), 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError):
        tidewire.Sequencer(topics_max=0)


def test_the_queue_is_a_heap_of_priority_and_age() -> None:
    generator = random.Random(5)
    queue: tidewire.PriorityQueue[int] = tidewire.PriorityQueue()
    model: list[tuple[int, int]] = []
    for number in range(5000):
        if generator.random() < 0.6:
            priority: Any = generator.choice([1, 3, 5, 8, 10])
            queue.push(number, priority)
            heapq.heappush(model, (-priority, number))
        else:
            expected = heapq.heappop(model) if model else None
            assert queue.pop() == (expected and (-expected[0], expected[1]))
        assert len(queue) == len(model)
    assert queue.peek() == (-model[0][0], model[0][1])
    rest = queue.pop_many(10_000)
    assert rest == [(-priority, number) for priority, number in sorted(model)]
    assert (queue.pop(), queue.peek(), queue.pop_many(5), bool(queue)) == (None, None, [], False)


def test_the_queue_is_bounded_in_items_and_bytes() -> None:
    queue: tidewire.PriorityQueue[Any] = tidewire.PriorityQueue(items_max=2, bytes_max=100)
    queue.push(b"x" * 60)
    assert queue.bytes == 60
    with pytest.raises(BusyError) as full:
        queue.push("y" * 41, 10)
    assert (full.value.code, full.value.fault) == ("QUEUE_FULL", "nobody")
    queue.push({"any": "thing"}, size=40)
    with pytest.raises(BusyError):
        queue.push(None)
    assert queue.push_displacing("urgent", 10) == [(5, {"any": "thing"})]
    with pytest.raises(BusyError):
        queue.push_displacing("late", 5)
    assert queue.pop_many(2) == [(10, "urgent"), (5, b"x" * 60)]
    assert "0 items" in repr(queue)


def test_priorities_that_there_are_not() -> None:
    queue: tidewire.PriorityQueue[int] = tidewire.PriorityQueue()
    wrong: Any
    for wrong in (0, 2, 11, -1, 2**70, "high", None):
        with pytest.raises(TidewireError):
            queue.push(1, wrong)
    assert len(queue) == 0


def test_generic_classes_are_generic_at_run_time() -> None:
    assert tidewire.PriorityQueue[int]().pop() is None
    assert tidewire.Sequencer[str]().topics == 0


def test_threads_lose_nothing() -> None:
    queue: tidewire.PriorityQueue[int] = tidewire.PriorityQueue(items_max=100_000)

    def fill(first: int) -> None:
        for number in range(first, first + 5000):
            queue.push(number)

    threads = [threading.Thread(target=fill, args=(5000 * index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(number for _, number in queue.pop_many(100_000)) == list(range(20_000))


@dataclass
class Order:
    symbol: str
    price: Decimal


def test_a_filter_takes_values_and_their_text() -> None:
    wanted = tidewire.Filter({"side": "buy", "order.price": {"$gte": 100}, "tags": {"$contains": "x"}})
    good = {"side": "buy", "order": {"price": 100}, "tags": ["x"]}
    for payload in (good, json.dumps(good), json.dumps(good).encode(), bytearray(json.dumps(good), "utf-8")):
        assert wanted.matches(payload)
    changed: dict[str, Any]
    for changed in ({"side": "sell"}, {"order": {"price": 99.5}}, {"tags": []}, {"order": None}):
        assert not wanted.matches({**good, **changed})
    assert tidewire.Filter({"symbol": {"$in": ["EURUSD"]}}).matches(Order("EURUSD", Decimal(1)))
    payloads = [{"n": n} for n in range(10)]
    assert tidewire.Filter('{"n": {"$lt": 3}}').select(payloads) == payloads[:3]
    assert tidewire.Filter({}).select(iter(payloads)) == payloads


def test_equal_filters_are_equal() -> None:
    first, second = tidewire.Filter({"a": 1, "b": 2}), tidewire.Filter('{"b":2,"a":1}')
    assert (first == second, hash(first) == hash(second), first.document) == (True, True, '{"a":1,"b":2}')
    assert first != tidewire.Filter({"a": 1})
    assert first != "x"
    assert repr(first) == 'Filter({"a":1,"b":2})'


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "object"),
        ({"a": {"$gt": None}}, r"a\.\$gt"),
        ({"$or": []}, r"\$or"),
        ({"a": {"$nope": 1}}, "no such operator"),
        ({"a": {"$regex": "("}}, "regular expression"),
        ("{", "not JSON"),
    ],
)
def test_documents_that_are_no_filters(document: Any, words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        tidewire.Filter(document)


def test_payloads_that_are_none() -> None:
    wanted = tidewire.Filter({"a": 1})
    assert wanted.matches(b"\xff\xfe") in {True, False}
    assert not wanted.matches(b"")
    with pytest.raises(WrongTypeError):
        wanted.matches({"a": object()})
    with pytest.raises(TidewireError):
        wanted.select(5)  # type: ignore[arg-type]


def test_message_errors_are_values_too() -> None:
    with pytest.raises(ValueError, match="not an object"):
        tidewire.parse_envelope("[]")
    assert issubclass(InvalidMessageError, TidewireError)
