"""The types of what the load lab judges and writes."""

from collections.abc import Sequence
from os import PathLike
from typing import Literal, final

@final
class LatencyRecorder:
    """Latencies, in nanoseconds."""

    def __new__(cls) -> LatencyRecorder: ...
    def record(self, latencies_ns: bytes) -> None:
        """Records latencies as they stand in an array of 64-bit numbers of this machine."""

    def summary(self, origin: Literal["sent", "intended", "first_received"]) -> str | None:
        """The distribution as a report has it, in JSON; `None` if nothing was recorded."""

def lab_machine() -> str:
    """The machine, in JSON."""

def lab_preflight(connections: int, address: str | None) -> str:
    """What limits so many connections to an address, in JSON. Raises the limit of open files."""

def lab_connections_room() -> int:
    """The connections that the limit of open files allows. Raises it."""

def lab_listener_pids(address: str, port: int) -> list[int]:
    """The processes that listen on an address of this machine."""

def lab_usage(pids: Sequence[int]) -> tuple[float, int] | None:
    """Processor time in seconds and resident memory in bytes, of some processes together."""

def lab_counters(address: str, port: int) -> tuple[int, int, int | None]:
    """A server's own counters: delivered, refused, deliveries."""

def lab_bottleneck(
    client_s: float, server_s: float | None, together_s: float, duration_s: float, cores: int
) -> Literal["server", "client", "both", "none"]:
    """Who was the limit."""

def lab_verdict(
    sends: bool,
    offered: int,
    confirmed: int,
    delivered: int | None,
    refused: int | None,
    attempted: int,
    failed: int,
    pings: int,
    pongs_lost: int,
    limit: str,
    saturating: bool,
    windows: Sequence[int],
) -> tuple[Literal["valid", "generator_bound", "noisy", "failed"], list[str]]:
    """The verdict over an account, and why."""

def lab_save(report: str, directory: str) -> tuple[PathLike[str], str, int]:
    """Writes a report to a directory in all forms: the page's path, the tables, and the exit code."""
