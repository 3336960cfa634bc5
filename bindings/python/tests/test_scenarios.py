"""The client held against the scenarios that every client runs, on each kind of event loop."""

from __future__ import annotations

import asyncio
import gc
import os
from typing import Any

import pytest
from async_support import LOOPS, run_on
from scenarios import load
from scenarios.application import Application
from scenarios.server import ScenarioServer, Seen

SCENARIOS = [*load("life.json"), *load("told.json"), *load("wrong-servers.json")]


@pytest.mark.parametrize("loop", sorted(LOOPS))
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario["name"].replace(" ", "-"))
def test_scenario(scenario: dict[str, Any], loop: str) -> None:
    seen = Seen()
    servers = [ScenarioServer(scripts, seen) for scripts in scenario["servers"]]
    urls = [server.url for server in servers] or ["ws://127.0.0.1:9/ws"]

    async def main() -> None:
        application = Application(urls, scenario.get("options", {}), seen)
        for step in scenario["client"]:
            await application.step(step)
        await application.end()

    try:
        run_on(loop, main())
    finally:
        for server in servers:
            server.end()


@pytest.mark.parametrize("loop", sorted(LOOPS))
def test_nothing_of_the_clients_is_left(loop: str) -> None:
    def descriptors() -> int:
        # The traceback of a failure holds the client that failed.
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    async def lives(count: int) -> None:
        for _ in range(count):
            for scenario in SCENARIOS[:6]:
                seen = Seen()
                servers = [ScenarioServer(scripts, seen) for scripts in scenario["servers"]]
                urls = [server.url for server in servers] or ["ws://127.0.0.1:9/ws"]
                application = Application(urls, scenario.get("options", {}), seen)
                for step in scenario["client"]:
                    await application.step(step)
                await application.end()
                await asyncio.to_thread(lambda ended=servers: [server.end() for server in ended])

    async def main() -> int:
        await lives(1)
        before = descriptors()
        await lives(5)
        return descriptors() - before

    assert run_on(loop, main()) <= 0
