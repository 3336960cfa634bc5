"""The tables of a report: figures with their spread, and how they are written for readers."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

# A cell is text, nothing, or a figure: `value`, with several runs `min`, `max` and `runs`, and a `unit` if its column has none.
Cell = Any


@dataclass
class Column:
    """`unit` is one of UNITS, or empty for text. A `plot` is a line over the rows."""

    id: str
    name: str
    unit: str = ""
    plot: bool = False


@dataclass
class Table:
    """Rows with a key each. References of the text name table, row and column by their ids."""

    id: str
    title: str
    about: str
    columns: list[Column]
    rows: dict[str, dict[str, Cell]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        columns = [vars(column) for column in self.columns]
        rows = [{"key": key, "cells": cells} for key, cells in self.rows.items()]
        return {**vars(self), "columns": columns, "rows": rows}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Table:
        columns = [Column(**column) for column in data["columns"]]
        rows = {row["key"]: row["cells"] for row in data["rows"]}
        return cls(**{**data, "columns": columns, "rows": rows})

    def used_columns(self) -> list[Column]:
        """Those for which at least one row has something."""
        has = lambda column: any(cells.get(column.id) not in (None, "") for cells in self.rows.values())
        return [column for column in self.columns if has(column)]


def figure(value: float | None, least: float | None = None, most: float | None = None, runs: int = 1) -> Cell:
    if value is None:
        return None
    if runs < 2 or least is None or most is None:
        return {"value": value}
    return {"value": value, "min": least, "max": most, "runs": runs}


def of_runs(values: list[float | None]) -> Cell:
    """The median of the runs that have the figure, and their spread."""
    known = [value for value in values if value is not None]
    return figure(statistics.median(known), min(known), max(known), len(known)) if known else None


def interval(cell: Cell) -> tuple[float, float] | None:
    """Where the mean of runs like these is, with a certainty of 95 %: three runs show the range of all runs too small.

    Student's t of the three runs, whose values are the smallest, the median and the largest; of another number of runs their range.
    It begins at 0 at the lowest, unless a run is below.
    """
    if not isinstance(cell, dict) or "min" not in cell:
        return None
    runs = [cell["min"], cell["value"], cell["max"]]
    if cell["runs"] != 3:
        return runs[0], runs[2]
    mean, deviation = statistics.mean(runs), statistics.stdev(runs)
    half = T_95_OF_3 / 3**0.5 * deviation
    return max(mean - half, min(0, runs[0])), mean + half


T_95_OF_3 = 4.303
"""The quantile of Student's t distribution for 95 % in the middle, with two degrees of freedom."""


def value(cell: Cell) -> float | None:
    return cell["value"] if isinstance(cell, dict) else None


def scaled(number: float, base: float, units: list[str]) -> str:
    place = 0
    while abs(number) >= base * 0.9995 and place + 1 < len(units):
        number /= base
        place += 1
    return digits(number) + units[place]


def digits(number: float) -> str:
    """Three significant digits; whole numbers as they are."""
    if number == int(number) or abs(number) >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"


UNITS = {
    "per_s": lambda number: scaled(number, 1000, ["/s", " k/s", " M/s", " G/s"]),
    "ns": lambda number: scaled(number, 1000, [" ns", " µs", " ms", " s"]),
    "us": lambda number: UNITS["ns"](number * 1000),
    "bytes": lambda number: scaled(number, 1024, [" B", " KiB", " MiB", " GiB"]),
    "bytes_per_s": lambda number: scaled(number, 1000, [" B/s", " kB/s", " MB/s", " GB/s"]),
    "count": lambda number: f"{number:,.0f}",
    # Rounding must not turn a loss into 100 %.
    "percent": lambda number: f"{digits(min(number, 99.9) if number < 100 else number)} %",
    "ratio": lambda number: f"{number:.2f}",
    "": str,
}


def written(cell: Cell, unit: str, with_spread: bool = True) -> str:
    """A cell for readers: the median, and the `interval` of the runs, as `12.3 k/s (11.9 to 13.0 k/s)`."""
    if cell is None:
        return ""
    if not isinstance(cell, dict):
        return str(cell)
    show = UNITS[cell.get("unit", unit)]
    text = show(cell["value"])
    if with_spread and (known := interval(cell)) and cell["min"] != cell["max"]:
        least, most = map(show, known)
        # Once, if both have the same unit.
        unit_of = most.lstrip("-0123456789.,")
        if least.lstrip("-0123456789.,") == unit_of:
            least = least.removesuffix(unit_of)
        text += f" ({least} to {most})"
    return text
