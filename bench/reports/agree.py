"""Whether two measurements of the same reports agree: the intervals that they print overlap.

    PYTHONPATH=bench python3 -m reports.agree FOLDER OTHER_FOLDER

Each folder has the JSON of reports, such as target/reports/quick after `make reports-quick`; the second measurement needs
`bench/reports/run --quick --again`, and the first its folder copied before. A line for each table: its rows, those whose every
figure agrees, and the figures that do not. The exit code is 1 if fewer than 90 % of all rows agree.
"""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Iterator
from typing import Any

from .table import interval

PART = 0.9


def apart(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """The columns of a row whose intervals do not overlap."""
    columns = []
    for name, cell in one.items():
        here, there = interval(cell), interval(other.get(name))
        if here and there and (here[1] < there[0] or there[1] < here[0]):
            columns.append(name)
    return columns


def has_interval(cells: dict[str, Any]) -> bool:
    return any(interval(cell) for cell in cells.values())


def compared(one: dict[str, Any], other: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, list[str]]]]:
    """Each table of two reports: its id, the rows of both that have an interval, and those that do not agree."""
    others = {table["id"]: {row["key"]: row["cells"] for row in table["rows"]} for table in other["tables"]}
    for table in one["tables"]:
        rows = others.get(table["id"], {})
        pairs = {row["key"]: (row["cells"], rows[row["key"]]) for row in table["rows"] if row["key"] in rows}
        pairs = {key: pair for key, pair in pairs.items() if all(map(has_interval, pair))}
        differing = {key: apart(*pair) for key, pair in pairs.items()}
        yield table["id"], len(pairs), {key: columns for key, columns in differing.items() if columns}


def main() -> None:
    parser = argparse.ArgumentParser(prog="reports.agree", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("other", type=pathlib.Path)
    options = parser.parse_args()
    rows = apart_rows = 0
    for path in sorted(options.folder.glob("*.json")):
        if not (options.other / path.name).exists():
            continue
        pair = [json.loads((folder / path.name).read_text()) for folder in (options.folder, options.other)]
        for table, count, differing in compared(*pair):
            if not count:
                continue
            rows, apart_rows = rows + count, apart_rows + len(differing)
            print(f"{path.stem} {table}: {count - len(differing)} of {count} rows agree")
            for key, columns in differing.items():
                print(f"    {key}: {', '.join(columns)}")
    part = (rows - apart_rows) / rows if rows else 0
    print(f"{rows - apart_rows} of {rows} rows agree: {part:.0%}")
    raise SystemExit(part < PART)


if __name__ == "__main__":
    main()
