"""Tokens that expire while a client on asyncio is connected."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
import tidewire
from client_support import FAST, run
from conftest import received

Serve = Callable[..., tidewire.Server]


def token(secret: str, seconds: float, **claims: Any) -> str:
    return tidewire.jwt.encode({"sub": "user-1", "exp": int(time.time() + seconds), **claims}, secret)


async def subscribe_until_refused(client: tidewire.Client) -> None:
    while True:
        await client.subscribe("lost")
        await client.unsubscribe("lost")
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_function_keeps_the_session(serve: Serve, secret: str, is_async: bool) -> None:
    # However slow this machine is, the session does not end in the grace.
    server = serve(jwt_secret=secret, token_grace_s=3600)
    asked = 0

    def provide() -> str:
        nonlocal asked
        asked += 1
        # The first is about to expire. The other one has other rights, which shows that the session has it.
        return (
            token(secret, 2) if asked == 1 else token(secret, 7200, topics={"subscribe": {"allow": ["kept"]}})
        )

    async def provide_later() -> str:
        return provide()

    async def main() -> None:
        async with tidewire.connect(server.url, token=provide_later if is_async else provide) as client:
            with pytest.raises(tidewire.SubscriptionError, match="lost"):
                await subscribe_until_refused(client)
            assert (await client.subscribe("kept")).topics == ["kept"]
            await client.send(type="last")

    run(main())
    assert asked == 2
    # What was sent at last came on the first connection.
    first, second = received(server, 2, "connect", "disconnect", "message")[:2]
    assert (first.kind, second.kind) == ("connect", "message")


def test_a_client_without_a_token_in_time_comes_back(serve: Serve, secret: str) -> None:
    server = serve(jwt_secret=secret, jwt_leeway_s=3, token_grace_s=0)
    asked = 0
    is_lost = False

    def provide() -> str:
        nonlocal asked
        asked += 1
        if asked > 1 and not is_lost:
            raise RuntimeError("the vault is closed")
        return token(secret, 1 if asked == 1 else 7200)

    async def main() -> None:
        nonlocal is_lost
        async with tidewire.connect(server.url, token=provide, **FAST) as client:
            kinds = []
            async for batch in client.batches():
                for message in batch:
                    kinds.append(message.kind)
                    if message.kind == "error":
                        assert message.payload["code"] == "TOKEN_EXPIRED"
                    if message.kind == "disconnected" and not is_lost:
                        assert message.payload["code"] == 4401
                        is_lost = True
                if is_lost and kinds[-1] == "connected":
                    break
            assert kinds.index("error") < kinds.index("disconnected")

    run(main())


def test_a_client_with_one_token_ends_with_it(serve: Serve, secret: str) -> None:
    server = serve(jwt_secret=secret, jwt_leeway_s=3, token_grace_s=0)

    async def main() -> None:
        async with tidewire.connect(server.url, token=token(secret, 1), **FAST) as client:
            with pytest.raises(tidewire.ConnectionClosedError, match="4401"):
                async for _ in client:
                    pass

    run(main())
