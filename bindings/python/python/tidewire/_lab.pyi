"""The types of what the load lab judges and writes."""

from collections.abc import Callable, Sequence
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
    """The limits for this number of connections to an address, in JSON. Raises the limit of open files."""

def lab_connections_room() -> int:
    """The connections that the limit of open files allows. Raises it."""

def lab_listener_pids(address: str, port: int) -> list[int]:
    """The processes that listen on an address of this machine."""

def lab_load(
    url: str,
    options: str,
    progress: Callable[[float, float, int, int, int], None] | None = None,
) -> tuple[str, int]:
    """Loads a service with options in JSON: the report in JSON, and the exit code."""

def lab_usage(pids: Sequence[int]) -> tuple[float, int] | None:
    """Processor time in seconds and resident memory in bytes, of some processes together."""

def lab_counters(address: str, port: int) -> tuple[int, dict[str, int], int | None]:
    """A server's own counters: delivered, refused by reason, deliveries."""

def lab_judge(
    evidence: str,
) -> tuple[
    Literal["valid", "generator_bound", "noisy", "failed"],
    list[str],
    list[str],
    Literal["server", "client", "both", "none"],
    float,
    float | None,
    float | None,
]:
    """The verdict over evidence in JSON: verdict, doubts, notes, bottleneck, the shares of the processor that the
    generator and the server used, and the messages a second that were offered at a given rate."""

def lab_tree(pids: Sequence[int]) -> list[int]:
    """Processes and all that they have started."""

def lab_check_pid(pid: int, address: str, port: int) -> None:
    """Checks that a process is the server at an address of this machine."""

def lab_cores(pid: int) -> list[int]:
    """The cores that a process may run on."""

def lab_redacted(url: str) -> str:
    """A URL without what may be secret."""

def lab_try_out(directory: str) -> None:
    """Tries whether a report can be written to a directory, which is made."""

def lab_tables(report: str) -> tuple[str, int]:
    """The tables of a report, and the exit code."""

def lab_save(report: str, directory: str) -> PathLike[str]:
    """Writes a report to a directory in all forms: the page's path."""
