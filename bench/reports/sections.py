"""The tables of a comparison, as they come: printed at once, and kept for the report."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterable

from reports.page import of_table
from reports.table import Cell, Column, Table, of_runs


def of(unit: str, values: Iterable[float | None]) -> Cell:
    """The figure of several runs: the median, with the lowest and the highest."""
    cell = of_runs([*values])
    return cell and {**cell, "unit": unit}


class Sections:
    """`table` begins a table, `row` adds to it (the first cell is its name), `end` closes it with sentences."""

    def __init__(self) -> None:
        self.tables: list[Table] = []

    def table(self, title: str, *columns: str) -> None:
        print(f"\n## {title}\n", flush=True)
        names = [Column(identifier(name) or "name", name) for name in columns]
        if len({column.id for column in names}) < len(names):
            raise ValueError(f"{title}: two columns have one name: {columns}")
        self.tables.append(Table(identifier(title), title, "", names))

    def row(self, *cells: Cell, key: str = "") -> None:
        table = self.tables[-1]
        named = dict(zip([column.id for column in table.columns], cells, strict=True))
        table.rows[key or str(cells[0])] = {name: cell for name, cell in named.items() if cell is not None}

    def end(self, *sentences: str) -> None:
        table = self.tables[-1]
        table.notes = [sentence for sentence in sentences if sentence]
        print(*of_table(table), "", *table.notes, sep="\n", flush=True)

    def write(self, path: pathlib.Path) -> None:
        path.write_text(json.dumps([table.to_json() for table in self.tables]))


def identifier(name: str) -> str:
    """`Keep-alive, 100 connections` as `keep-alive-100-connections`."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower().replace("µ", "u")).strip("-")
