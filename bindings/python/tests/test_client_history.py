"""History for a client that was not there: replays of subscriptions, and pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tidewire
from client_support import run

Serve = Callable[..., tidewire.Server]


def with_history(serve: Serve, count: int) -> tidewire.Server:
    server = serve(history={"kept.>": 1_000})
    server.publish_many("kept.a", range(1, count + 1), type="tick")
    return server


def test_a_newcomer_gets_the_newest_publications(serve: Serve) -> None:
    server = with_history(serve, 10)

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            subscription = await client.subscribe("kept.a", replay=3)
            stands = subscription.positions["kept.a"]
            assert (stands.position[1], stands.recovered, stands.count) == (10, False, 3)
            server.publish("kept.a", 11, type="tick")
            assert [(await anext(client)).payload for _ in range(4)] == [8, 9, 10, 11]

    run(main())


def test_a_newcomer_without_asyncio(serve: Serve) -> None:
    server = with_history(serve, 5)
    with tidewire.sync.connect(server.url) as client:
        assert client.subscribe("kept.a", replay=2).positions["kept.a"].count == 2
        messages = iter(client)
        assert [next(messages).payload for _ in range(2)] == [4, 5]
        page = client.history("kept.a", limit=2, newest_first=True)
        assert [message.payload for message in page.publications] == [5, 4]


def test_a_history_is_read_page_by_page(serve: Serve) -> None:
    server = with_history(serve, 250)

    async def main() -> None:
        for format in ("json", "msgpack"):
            async with tidewire.connect(server.url, format=format) as client:
                for newest_first in (False, True):
                    seen: list[int] = []
                    page = await client.history("kept.a", newest_first=newest_first)
                    while True:
                        assert page.complete
                        assert (page.position[1], page.oldest) == (250, 1)
                        seen += [message.payload for message in page.publications]
                        if not page.more:
                            break
                        page = await client.history("kept.a", since=page.last, newest_first=newest_first)
                    assert seen == sorted(range(1, 251), reverse=newest_first)
                first = page.publications[0]
                assert (first.kind, first.type, first.topic) == ("message", "tick", "kept.a")
                assert first.position is not None
                empty = await client.history("kept.a", since=(page.position[0], 250))
                assert (len(empty.publications), empty.more, empty.last) == (0, False, None)
                unknown = await client.history("kept.a", since=("00000000", 5))
                assert not unknown.complete

    run(main())


def test_what_may_not_be_read(serve: Serve) -> None:
    server = serve(topics_open=False, client_subscribe_allow=["kept.a", "plain"], history={"kept.>": 10})

    async def main() -> None:
        async with tidewire.connect(server.url) as client:
            for topic, code in (("kept.b", "TOPIC_FORBIDDEN"), ("plain", "NOT_FOUND")):
                with pytest.raises(tidewire.CallError) as refused:
                    await client.history(topic)
                assert refused.value.code == code
            assert len((await client.history("kept.a")).publications) == 0
            for wrong in ({"limit": 0}, {"limit": 1001}, {"since": ("x", 1)}):
                with pytest.raises(tidewire.InvalidArgumentError):
                    await client.history("kept.a", **wrong)  # type: ignore[arg-type]
            with pytest.raises(tidewire.InvalidArgumentError):
                await client.subscribe("kept.a", replay=-1)

    run(main())
