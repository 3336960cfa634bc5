"""The tables of the game server, of what `examples/games/tools/bench.ts` prints."""

from __future__ import annotations

from typing import Any

import typescript
from measure import median
from reports.sections import of
from reports.table import Column, Table, figure

TIMES = ["p50", "p95", "p99", "max"]
WHO = ["answered", "opponent", "spectator"]
P99_MAX_MS = 20


def tables(quick: bool) -> list[Table]:
    bench = ["taskset", "-c", 1, "node", "examples/games/run.js", "bench"]
    if quick:
        shorter = ["--games", "100,400", "--rounds", 1, "--duration-s", 2, "--spectators", "100"]
        games, load = (typescript.run(*bench, *shorter, "--only", part) for part in ("games", "load"))
        return [spectators(load["spectators"]), capacity(games["games"])]
    found = typescript.run(*bench)
    return [spectators(found["spectators"]), memory(found["memory"]), capacity(found["games"])]


def spectators(rows: list[dict[str, Any]]) -> Table:
    about = (
        "Spectators connect at 100 a second, each watches one of the games, and asks for the state of a game once a second. Every game "
        "has a move a second: one of two players by `@tidewire/client`, ten of machines, and the first round of a tournament of machines. "
        "The generator is `tidewire load`. Its memory for each connection includes a part that does not grow with the connections."
    )
    columns = [
        Column("scenario", "Games of"), Column("games", "Games", "count"),
        Column("connections", "Connections", "count"), Column("connected", "Connected", "count"),
        *(Column(f"connect-{name}", f"Connect {name}", "us") for name in TIMES),
        Column("sent", "Asked", "count"), Column("answered", "Answered", "count"),
        *(Column(name, f"Answer {name}", "us") for name in TIMES),
        Column("received", "Received", "count"), Column("server", "Server's core", "percent"),
        Column("client", "Generator memory, each", "bytes"), Column("verdict", "Verdict"),
    ]  # fmt: skip
    table = Table("spectators", "Spectators by scenario", about, columns)
    for row in rows:
        result = row["result"]
        connecting, requests = result["connecting"], result["requests"]
        table.rows[f"{row['scenario'].replace(' ', '-')}/{row['connections']}"] = {
            "scenario": row["scenario"], "games": figure(row["games"]),
            "connections": figure(row["connections"]), "connected": figure(connecting["opened"]),
            **{f"connect-{name}": figure(connecting["latency_us"][name]) for name in TIMES},
            "sent": figure(requests["sent"]), "answered": figure(requests["succeeded"]),
            **{name: figure(result["latency_us"][name]) for name in TIMES},
            "received": figure(result["received"]["messages"]), "server": figure(100 * row["serverShare"]),
            "client": figure(result.get("memory", {}).get("client_per_connection_bytes")),
            "verdict": result["verdict"].replace("_", " "),
        }  # fmt: skip
    return table


def memory(rows: list[dict[str, Any]]) -> Table:
    about = (
        "Quiet spectators who watch the lobby. Resident memory of the two processes; the server has collected its garbage first. "
        "Each further one: compared with the row above."
    )
    columns = [
        Column("connections", "Connections", "count"), Column("server", "Server", "bytes"),
        Column("server-each", "Each further one", "bytes"), Column("generator", "Generator", "bytes"),
        Column("generator-each", "Generator, each further one", "bytes"),
    ]  # fmt: skip
    table = Table("memory", "Memory", about, columns)
    before: dict[str, Any] = {}
    for row in rows:
        cells = {"connections": figure(row["connections"])}
        for side, name in (("server", "serverBytes"), ("generator", "clientBytes")):
            now, then = row.get(name), before.get(name)
            cells[side] = figure(now)
            if now is not None and then is not None:
                cells[f"{side}-each"] = figure((now - then) / (row["connections"] - before["connections"]))
        table.rows[str(row["connections"])] = {name: cell for name, cell in cells.items() if cell}
        before = row
    return table


def capacity(steps: list[list[dict[str, Any]]]) -> Table:
    about = (
        "Each game has two players by `@tidewire/client`, of whom one moves each second, and ten spectators by `tidewire load`. Times "
        "count from when a move was due: until the player had its answer, until the opponent had the move, and until a spectator of a "
        "sample of 200 had it. They include the delay of the generator. A process can open 20,000 files here: where the spectators "
        "would need more connections, each watches several games. The rounds of the rows took turns."
    )
    columns = [
        Column("games", "Games", "count"), Column("connections", "Connections", "count"), Column("moves", "Moves", "per_s"),
        Column("delivered", "Delivered", "per_s"), Column("failures", "Failures", "count"),
        *(Column(f"{who}-{name}", f"{who.capitalize()} {name}", "us", name == "p99") for who in WHO for name in TIMES),
        Column("late", "Generator late, p99", "us"), Column("server", "Server's core", "percent"),
        Column("players", "Players' part of a core", "percent"),
    ]  # fmt: skip
    table = Table("games", "Games at one move a second", about, columns)
    most = 0
    for rounds in steps:
        over = lambda unit, pick: of(unit, [pick(row) for row in rounds])
        games = rounds[0]["games"]
        table.rows[str(games)] = {
            "games": figure(games), "connections": figure(rounds[0]["connections"]),
            "moves": over("per_s", lambda row: row["movesPerS"]), "delivered": over("per_s", lambda row: row["deliveredPerS"]),
            "failures": figure(sum(row["failures"] for row in rounds)),
            **{
                f"{who}-{name}": over("us", lambda row, who=who, at=at: 1000 * row[who][at])
                for who in WHO for at, name in enumerate(TIMES)
            },
            "late": over("us", lambda row: 1000 * row["late"][2]), "server": over("percent", lambda row: 100 * row["serverShare"]),
            "players": over("percent", lambda row: 100 * row["playersShare"]),
        }  # fmt: skip
        if median(max(row["opponent"][2], row["spectator"][2]) for row in rounds) < P99_MAX_MS:
            most = max(most, games)
    table.notes = [
        f"One core carries {most} games with a p99 below {P99_MAX_MS} ms for opponents and spectators: the highest of these steps whose "
        "median does."
    ]
    return table
