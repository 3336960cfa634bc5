"""The checker itself: records that are right are accepted, and each kind of wrong record is found."""

import types

import invariants
import pytest
from clients import Member, Publication, Received, Room

A, B = "0000000a", "0000000b"
LOG = {"t": [(A, 1, "p.0"), (A, 2, "p.1"), (A, 3, "p.2")]}


def seen(*entries, wanted=None):
    return [Received("s", "t", [("subscribed", A, 0, False, 0, wanted), *entries])]


def publication(epoch, offset, token):
    return ("publication", epoch, offset, token)


ALL = [publication(*entry) for entry in LOG["t"]]


def published(token="p.0", outcome="acknowledged", position=(A, 1), number=1):
    return Publication(token, "t", "p.1", number, outcome, position)


def test_right_records_are_accepted():
    publications = [published(f"p.{n}", position=(A, n + 1), number=n) for n in range(3)]
    assert invariants.one_content(seen(*ALL), publications, LOG) == []
    assert invariants.no_gap_without_report(seen(*ALL)) == []
    assert invariants.acknowledged_is_kept(publications, LOG, True) == []
    assert invariants.refused_is_nowhere(publications, seen(*ALL), LOG) == []
    assert invariants.once(seen(*ALL), LOG, True) == []
    assert invariants.in_the_publishers_order(publications, LOG) == []
    assert invariants.at_the_head(seen(*ALL), LOG) == []


@pytest.mark.parametrize(
    ("received", "publications", "log"),
    [
        (seen(publication(A, 1, "other")), [], LOG),
        ([], [published("other")], LOG),
        (seen(publication(A, 1, "p.0"), publication(A, 1, "other")), [], {}),
    ],
)
def test_a_position_with_two_contents_is_found(received, publications, log):
    assert len(invariants.one_content(received, publications, log)) == 1


@pytest.mark.parametrize(
    "entries",
    [
        [ALL[0], ALL[2]],  # one is missing
        [ALL[0], ALL[0]],  # one comes twice
        [ALL[1]],  # the first is missing
        [ALL[0], publication(B, 1, "x")],  # another epoch without a gap
        [("gap", "dropped", A, 1, 1), ALL[2]],  # the gap tells less than what is missing
        [ALL[0], ("subscribed", A, 3, True, 1, (A, 1))],  # recovered, but one is missing
        [ALL[0], ("subscribed", B, 1, True, 0, (A, 1))],  # recovered into another epoch
    ],
)
def test_what_is_missing_without_a_report_is_found(entries):
    assert len(invariants.no_gap_without_report(seen(*entries))) == 1


@pytest.mark.parametrize(
    "entries",
    [
        [ALL[0], ("gap", "dropped", A, 2, 2), ALL[2]],
        [ALL[0], ("gap", "broker", None, None, None), publication(B, 7, "x")],
        [ALL[0], ("subscribed", A, 3, True, 2, (A, 1)), ALL[1], ALL[2]],
        [ALL[0], ("subscribed", B, 5, False, 0, (A, 1)), publication(B, 6, "x")],
    ],
)
def test_what_is_told_is_no_fault(entries):
    assert invariants.no_gap_without_report(seen(*entries)) == []


def test_a_lost_acknowledged_publication_is_found():
    lost = [published("p.9", position=(A, 4))]
    assert len(invariants.acknowledged_is_kept(lost, LOG, False)) == 1
    newer = {"t": [*LOG["t"], (B, 1, "p.10")]}
    assert invariants.acknowledged_is_kept(lost, newer, False) == []
    assert len(invariants.acknowledged_is_kept(lost, newer, True)) == 1


def test_a_refused_publication_that_is_there_is_found():
    refused = [published(outcome="BROKER_UNAVAILABLE", position=None)]
    assert len(invariants.refused_is_nowhere(refused, [], LOG)) == 1
    assert len(invariants.refused_is_nowhere(refused, seen(ALL[0]), {})) == 1


def test_a_publication_that_is_twice_is_found():
    twice = {"t": [(A, 1, "p.0"), (A, 2, "p.0")]}
    assert len(invariants.once([], twice, False)) == 1
    two_epochs = {"t": [(A, 1, "p.0"), (B, 1, "p.0")]}
    assert invariants.once([], two_epochs, False) == []
    assert len(invariants.once([], two_epochs, True)) == 1


def test_another_order_than_the_publishers_is_found():
    publications = [published("p.0", number=2), published("p.1", number=1)]
    assert len(invariants.in_the_publishers_order(publications, LOG)) == 1


def test_a_subscriber_that_stays_behind_is_found():
    assert len(invariants.at_the_head(seen(ALL[0]), LOG)) == 1
    assert len(invariants.at_the_head(seen(), LOG)) == 1


def room(*events, user="u1", is_in=True, members=None):
    one = Room("s")
    one.user, one.is_in, one.members = user, is_in, members
    one.events = [list(events)]
    return one


def test_presence_that_is_right_is_accepted():
    join, leave = ("presence_join", "u2"), ("presence_leave", "u2")
    assert invariants.presence_alternates([room(leave, join, leave)]) == []
    rooms = [room(members={"u1", "u2"}), room(user="u2", members={"u1", "u2"})]
    assert invariants.presence_is_right(rooms) == []


def test_wrong_presence_is_found():
    join = ("presence_join", "u2")
    assert len(invariants.presence_alternates([room(join, join)])) == 1
    assert len(invariants.presence_is_right([room(members={"u1", "gone"})])) == 1
    assert len(invariants.presence_is_right([room(members=None)])) == 1
    rooms = [room(members={"u1", "u2"}), room(user="u2", is_in=False, members={"u1", "u2"})]
    assert len(invariants.presence_is_right(rooms)) == 2


def member(*seen, done=(), gaps=0):
    one = Member("m", [], None)
    one.seen, one.done, one.gaps = list(seen), set(done), gaps
    return one


def test_work_that_is_lost_or_comes_again_as_new_is_found():
    work = [published("w.0", position=None), published("w.1", position=None), published("w.2", "BUSY", None)]
    assert invariants.work_is_done(work, [member(done=["w.0"]), member(done=["w.1"])], True) == []
    assert len(invariants.work_is_done(work, [member(done=["w.0"])], False)) == 1
    assert invariants.work_is_done(work, [member(done=["w.0"], gaps=1)], False) == []
    assert len(invariants.work_is_done(work, [member(done=["w.0"], gaps=1)], True)) == 1
    first, again = (1.0, "w.0", False), (2.0, "w.0", True)
    assert invariants.work_is_told_to_repeat([member(first), member(again)]) == []
    assert len(invariants.work_is_told_to_repeat([member(first), member((2.0, "w.0", False))])) == 1


def test_memory_beyond_the_bound_is_found():
    server = types.SimpleNamespace(number=1, memory_max_mib=201)
    assert invariants.memory_is_bounded([server], 201) == []
    assert len(invariants.memory_is_bounded([server], 200)) == 1
