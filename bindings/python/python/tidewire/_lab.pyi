"""The types of loads and their reports, and of histograms."""

from collections.abc import Callable
from os import PathLike

def latency_buckets(latencies_ns: bytes) -> list[tuple[int, int]]:
    """The buckets of latencies in nanoseconds, which stand in an array of 64-bit numbers of this machine: a value of
    each, and how many are in it."""

def lab_load(
    url: str,
    options: str,
    progress: Callable[[float, float, int, int, int], None] | None = None,
) -> tuple[str, int]:
    """Loads a service with options in JSON: the report in JSON, and the exit code."""

def lab_tables(report: str) -> tuple[str, int]:
    """The tables of a report, and the exit code."""

def lab_save(report: str, directory: str) -> PathLike[str]:
    """Writes a report to a directory in all forms: the page's path."""
