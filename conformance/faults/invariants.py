"""Invariants of the records of a run. Each function gives a list of sentences: one for each fault it found."""

from clients import Member, Publication, Received, Room

Log = dict[
    str, list[tuple[str, int, str]]
]  # topic to (epoch, offset, token), in the order of the stream in Redis


def one_content(received: list[Received], publications: list[Publication], log: Log):
    """No position of a topic ever has two contents: at any subscriber, in any answer, in Redis."""
    faults, contents = [], {}
    seen = [
        (r.subscriber, r.topic, e[1], e[2], e[3])
        for r in received
        for e in r.entries
        if e[0] == "publication"
    ]
    seen += [("answer", p.topic, *p.position, p.token) for p in publications if p.position]
    seen += [("Redis", topic, *entry) for topic, entries in log.items() for entry in entries]
    for who, topic, epoch, offset, token in seen:
        first = contents.setdefault((topic, epoch, offset), (who, token))
        if first[1] != token:
            faults.append(f"{topic} {epoch}/{offset} is {first[1]} for {first[0]} and {token} for {who}")
    return faults


def no_gap_without_report(received: list[Received]):
    """A subscriber receives a contiguous part of the topic's order, but for what gaps told it."""
    return [fault for one in received for fault in _walk(one)]


def _walk(one: Received):
    position, told_to, is_told = None, 0, False
    for entry in one.entries:
        where = f"{one.subscriber} on {one.topic}: {entry} after {position}"
        if entry[0] == "subscribed":
            _, epoch, offset, recovered, count, wanted = entry
            if recovered and (wanted is None or wanted[0] != epoch or wanted[1] + count != offset):
                yield f"{where}: recovered, but the positions do not fit"
            position = wanted if recovered else (epoch, offset)
            told_to, is_told = 0, False
        elif entry[0] == "gap":
            _, reason, epoch, _, to = entry
            if epoch is not None and position and epoch == position[0]:
                told_to = max(told_to, to)
            is_told = is_told or reason == "broker"
        else:
            _, epoch, offset, _ = entry
            if position is None:
                yield f"{where}: a publication before the answer"
            elif epoch == position[0]:
                if offset <= position[1]:
                    yield f"{where}: twice, or out of order"
                elif offset != position[1] + 1 and offset > told_to + 1:
                    yield f"{where}: publications are missing"
            elif epoch < position[0]:
                yield f"{where}: an older epoch"
            elif not is_told:
                yield f"{where}: another epoch without a gap"
            position, is_told = (epoch, offset), False


def acknowledged_is_kept(publications: list[Publication], log: Log, never_loses: bool):
    """Acknowledged publications are in the log, or the topic has begun another epoch, unless Redis never loses."""
    faults = []
    kept = {(topic, *entry) for topic, entries in log.items() for entry in entries}
    for p in publications:
        if p.outcome != "acknowledged" or (p.topic, *p.position, p.token) in kept:
            continue
        newest = max((epoch for epoch, _, _ in log.get(p.topic, [])), default="")
        if never_loses or newest <= p.position[0]:
            faults.append(f"{p.token} was acknowledged at {p.position} of {p.topic} and is not there")
    return faults


def refused_is_nowhere(publications: list[Publication], received: list[Received], log: Log):
    """Refused publications reached nobody."""
    refused = {p.token: p.outcome for p in publications if p.outcome not in ("acknowledged", "unknown")}
    seen = {e[3] for r in received for e in r.entries if e[0] == "publication"}
    seen |= {token for entries in log.values() for _, _, token in entries}
    return [
        f"{token} was refused with {code} and is there" for token, code in refused.items() if token in seen
    ]


def once(received: list[Received], log: Log, never_loses: bool):
    """A publication is at most once in an epoch, and in the whole log if Redis never loses its memory."""
    faults, places = [], {}
    seen = {(r.topic, e[1], e[2], e[3]) for r in received for e in r.entries if e[0] == "publication"}
    seen |= {(topic, *entry) for topic, entries in log.items() for entry in entries}
    for topic, epoch, offset, token in sorted(seen):
        scope = (topic, token) if never_loses else (topic, epoch, token)
        first = places.setdefault(scope, (epoch, offset))
        if first != (epoch, offset):
            faults.append(f"{token} is twice in {topic}: at {first} and {(epoch, offset)}")
    return faults


def in_the_publishers_order(publications: list[Publication], log: Log):
    """Publications of one connection to one topic lie in the log in the order in which they were sent."""
    by_token = {p.token: p for p in publications}
    faults, last = [], {}
    for topic, entries in log.items():
        for epoch, _, token in entries:
            p = by_token.get(token)
            if p is None:
                continue
            before = last.get((topic, epoch, p.stream))
            if before is not None and before.number > p.number:
                faults.append(f"{topic}: {p.token} comes after {before.token}, which was sent later")
            last[topic, epoch, p.stream] = p
    return faults


def at_the_head(received: list[Received], log: Log):
    """At rest every subscriber has arrived at the newest publication of each of its topics."""
    faults = []
    for one in received:
        head = log.get(one.topic, [])[-1:]
        seen = [e[1:3] for e in one.entries if e[0] == "publication"][-1:]
        if head and seen != [head[0][:2]]:
            faults.append(f"{one.subscriber} on {one.topic} ends at {seen}, the topic at {head[0][:2]}")
    return faults


def presence_alternates(rooms: list[Room]):
    """One connection sees joins and leaves of a user in turn."""
    faults = []
    for room in rooms:
        for events in room.events:
            last = {}
            for kind, user in events:
                if last.get(user) == kind:
                    faults.append(f"{room.subscriber}: {kind} of {user} twice")
                last[user] = kind
    return faults


def presence_is_right(rooms: list[Room]):
    """At rest every subscriber of the room is told exactly those who are in it."""
    present = {room.user for room in rooms if room.is_in}
    return [
        f"{room.subscriber} is told {room.members} of the room, {present} are in it"
        for room in rooms
        if room.members != present
    ]


def work_is_done(publications: list[Publication], members: list[Member], never_loses: bool):
    """Work that was acknowledged to its publisher was done by a member, unless Redis has lost it and that was told."""
    if not never_loses and any(member.gaps for member in members):
        return []
    done = set().union(*(member.done for member in members))
    return [
        f"{p.token} was acknowledged and no member has done it"
        for p in publications
        if p.outcome == "acknowledged" and p.token not in done
    ]


def work_is_told_to_repeat(members: list[Member]):
    """What comes to a member a second time says so."""
    faults, known = [], set()
    for _, token, is_repeated in sorted(entry for member in members for entry in member.seen):
        if token in known and not is_repeated:
            faults.append(f"{token} comes again as if it were new")
        known.add(token)
    return faults


def memory_is_bounded(servers, mib_max: float):
    """No server takes more memory than this."""
    return [
        f"server {server.number} had {server.memory_max_mib:.0f} MiB, {mib_max} at most"
        for server in servers
        if server.memory_max_mib > mib_max
    ]
