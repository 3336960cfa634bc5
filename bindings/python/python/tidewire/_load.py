"""Loading any HTTP or WebSocket service, and what came of it."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ._lab import lab_load, lab_save, lab_tables

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._load_types import LoadOptions

__all__ = ["LoadProgress", "LoadResult", "load"]


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The figures of a load while it runs."""

    elapsed_s: float
    """Seconds since the sending began."""
    rate_per_s: float
    """Successful requests a second, over the last second."""
    succeeded: int
    """Successful requests so far."""
    failed: int
    """Failed requests so far."""
    connected: int
    """Connections that are open now."""


ERRORS_SHOWN = 3
"""Errors in a `repr`, the most frequent first."""


class LoadResult:
    """The result of a load. `to_dict()` has everything; the properties are the most common figures."""

    __slots__ = ("_report", "_text", "exit_code")

    exit_code: int
    """The exit code of `tidewire load`: 0 as expected, 1 failed, 3 the generator was the limit, 4 noisy,
    5 an expectation was broken, 130 interrupted."""

    def __init__(self, text: str, exit_code: int) -> None:
        self._text = text
        self._report: dict[str, Any] = json.loads(text)
        self.exit_code = exit_code

    @property
    def _result(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self._report["results"][0])

    @property
    def rate_per_s(self) -> float:
        """Successful requests or messages in a second."""
        return float(self._result.get("rate_per_s") or 0.0)

    @property
    def succeeded(self) -> int:
        """Requests or messages whose response passed every check."""
        return int(self._result.get("requests", {}).get("succeeded", 0))

    @property
    def failed(self) -> int:
        """Requests or messages without a whole response, or with one that did not pass a check."""
        return int(self._result.get("requests", {}).get("failed", 0))

    @property
    def statuses(self) -> dict[int, int]:
        """Whole responses by status."""
        return {int(status): count for status, count in self._result.get("statuses", {}).items()}

    @property
    def errors(self) -> dict[str, int]:
        """The counts of errors by name."""
        return dict(self._result.get("errors", {}))

    @property
    def latency_ms(self) -> dict[str, float]:
        """Latency of all requests that were due in milliseconds, with those that failed at their age: `p50`, `p90`,
        `p95`, `p99`, `p99_9`, `min`, `mean`, `max` and more. Empty without a request."""
        latency = self._result.get("latency_us") or {}
        return {
            name: value / 1000
            for name, value in latency.items()
            if isinstance(value, (int, float)) and name != "count"
        }

    @property
    def verdict(self) -> str:
        """`valid`, `generator_bound`, `noisy` or `failed`."""
        return str(self._result["verdict"])

    @property
    def as_expected(self) -> bool:
        """Whether every expectation was kept."""
        return all(one["kept"] for one in self._result.get("expectations", []))

    @property
    def interrupted(self) -> bool:
        """Whether the load was ended early, such as by Ctrl-C."""
        return bool(self._report.get("partial", False))

    @property
    def notes(self) -> list[str]:
        """Notes for a reader, in sentences."""
        return list(self._result.get("notes", []))

    def to_dict(self) -> dict[str, Any]:
        """The whole report, as `docs/report-format.md` describes it. A copy: changing it changes nothing here."""
        return cast("dict[str, Any]", json.loads(self._text))

    def tables(self) -> str:
        """The tables that `tidewire load` prints."""
        return lab_tables(self._text)[0]

    def save(self, directory: str | PathLike[str]) -> Path:
        """Writes report.json, report.html and report.md to a directory, which is made; returns the page's path."""
        return Path(lab_save(self._text, fspath(directory)))

    def __repr__(self) -> str:
        latency = self.latency_ms
        parts = [f"{self.rate_per_s:,.0f}/s", f"{self.succeeded:,} succeeded", f"{self.failed:,} failed"]
        parts += [f"{name} {latency[name]:.3g} ms" for name in ("p50", "p99") if name in latency]
        broken = [one["text"] for one in self._result.get("expectations", []) if not one["kept"]]
        parts += [f"broken: {', '.join(broken)}"] if broken else []
        errors = sorted(self.errors.items(), key=lambda error: -error[1])
        parts += [f"{count:,} {name}" for name, count in errors[:ERRORS_SHOWN]]
        return f"<LoadResult {self._word}: {', '.join(parts)}>"

    @property
    def _word(self) -> str:
        return "interrupted" if self.interrupted else self.verdict

    def _repr_html_(self) -> str:
        """The view in a notebook."""
        latency = self.latency_ms
        rows = {
            "Verdict": self._word.replace("_", " "),
            "Requests a second": f"{self.rate_per_s:,.0f}",
            "Succeeded": f"{self.succeeded:,}",
            "Failed": f"{self.failed:,}",
            **{name: f"{latency[name]:.3g} ms" for name in ("p50", "p90", "p99", "max") if name in latency},
            **{f"Error {name}": f"{count:,}" for name, count in self.errors.items()},
            **{
                one["text"]: "kept" if one["kept"] else "broken"
                for one in self._result.get("expectations", [])
            },
        }
        cells = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in rows.items()
        )
        return f"<table>{cells}</table>"


def plain(value: object) -> object:
    """A value in a form that JSON has."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable):
        return list(value)
    return fspath(cast("PathLike[str]", value))


def load(
    url: str,
    *,
    on_progress: Callable[[LoadProgress], object] | None = None,
    **options: Unpack[LoadOptions],
) -> LoadResult:
    """Loads an HTTP or WebSocket service and returns what came of it.

    `docs/load-options.md` lists the options with their units and defaults, such as `connections=100`,
    `rate_per_s=1000`, `headers={"a": "b"}`, `expect=["p99<20ms"]` or `stages="10s:1k,30s:5k"`.

    `url` begins with http://, https://, ws:// or wss://. Without `requests`, `duration_s` is 10. `on_progress` is
    called about twenty times a second. Other threads of Python run on meanwhile. Ctrl-C ends the load early with a
    result that is `interrupted`, and raises `KeyboardInterrupt` before the load begins; what `on_progress` raises ends
    it, too, and is raised.

    A service that refuses, lies or is not there is a result and no error. Raises `InvalidArgumentError` if an argument
    is wrong or this machine cannot carry the load out.
    """
    text = json.dumps(options, default=plain)
    progress = None
    if on_progress is not None:
        show = on_progress

        def progress(*figures: Any) -> None:
            show(LoadProgress(*figures))

    report, exit_code = lab_load(url, text, progress)
    return LoadResult(report, exit_code)
