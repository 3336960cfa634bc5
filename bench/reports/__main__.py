"""Measures the parts of docs/reports and writes their pages.

    make reports                       every part; at most two hours
    make reports-quick                 fewer sizes and steps, to target/reports/quick; ten minutes of measuring
    PYTHONPATH=bench python3 -m reports [PART…] [--quick] [--again] [--pages] [--check]

A step that was measured with the same program is not measured again, so that an interrupted run goes on where it was: after a
change of a script or of a package of Python or TypeScript use --again.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import time
from typing import Any

from reports import page, sizing
from reports.parts import Part, Settings, all_parts
from reports.table import Table
from servers import ROOT, TARGET, TIDEWIRE, cpu_name

DOCS = ROOT / "docs/reports"


def measured(name: str, part: Part, settings: Settings, again: bool) -> list[dict[str, Any]]:
    """The steps of a part, those of an earlier run among them."""
    folder = TARGET / "reports" / ("quick" if settings.quick else "full") / name
    folder.mkdir(parents=True, exist_ok=True)
    program = hashlib.sha256(TIDEWIRE.read_bytes()).hexdigest()
    steps = []
    for title, step in part.chosen(settings).items():
        path = folder / f"{title}.json"
        known = json.loads(path.read_text()) if path.exists() and not again else {}
        if known.get("program") != program:
            print(f"{name}: {title} …", file=sys.stderr, flush=True)
            start = time.monotonic()
            tables = [table.to_json() for table in step(settings)]
            took_s = round(time.monotonic() - start, 1)
            known = {"program": program, "date": str(datetime.date.today()), "took_s": took_s, "tables": tables}
            path.write_text(json.dumps(known))
            print(f"{name}: {title}, {took_s:.0f} s", file=sys.stderr, flush=True)
        steps.append(known)
    return steps


def report(name: str, part: Part, settings: Settings, again: bool) -> dict[str, Any]:
    steps = measured(name, part, settings, again)
    tables: dict[str, Table] = {}
    for step in steps:
        for data in step["tables"]:
            table = Table.from_json(data)
            tables.setdefault(table.id, table).rows |= table.rows
    return {
        "name": name,
        "title": part.title,
        "facts": {
            "Date": " to ".join(sorted({steps[0]["date"], steps[-1]["date"]})),
            "Machine": f"{cpu_name()}, {cores()} cores, {memory_gib():.0f} GiB, Linux {platform.release()}",
            "Tidewire": version(),
            "Limits": limits([*tables.values()]),
            "Time of the measurement": f"{sum(step['took_s'] for step in steps) / 60:.0f} minutes",
            "Again": f"`make reports PART={name}`",
        },
        "tables": [table.to_json() for table in tables.values()],
    }


def limits(tables: list[Table]) -> str:
    """What limited the rows, and how many are not valid."""
    rows = [cells for table in tables for cells in table.rows.values() if {"verdict", "limit"} <= {*cells}]
    if not rows:
        return "see the tables"
    count = lambda name, word: sum(cells.get(name) == word for cells in rows)
    by = {word: count("limit", word) for word in ("server", "generator", "both", "neither")}
    said = ", ".join(f"{word} in {number}" for word, number in by.items() if number)
    return (
        f"of {len(rows)} rows: {said}; {count('verdict', 'valid')} rows are valid, {count('verdict', 'failed')} failed"
    )


def cores() -> int:
    return len(os.sched_getaffinity(0))


def memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def version() -> str:
    return subprocess.run([TIDEWIRE, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]


def written_reports() -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(DOCS.glob("*.json"))}


def write_pages(folder: pathlib.Path, reports: dict[str, dict[str, Any]], names: list[str], has_text: bool) -> None:
    for name in names:
        text = page.conclusions(name, reports) if has_text else ""
        (folder / f"{name}.md").write_text(page.markdown(reports[name], text))
        (folder / f"{name}.plots.html").write_text(page.page(reports[name], text))


def stale(reports: dict[str, dict[str, Any]]) -> list[str]:
    """The Markdown pages that differ from what their JSON and conclusions say."""
    said = {name: page.markdown(one, page.conclusions(name, reports)) for name, one in reports.items()}
    is_so = lambda path, text: path.exists() and path.read_text() == text
    return [name for name, text in said.items() if not is_so(DOCS / f"{name}.md", text)]


def main() -> None:
    parts = all_parts()
    parser = argparse.ArgumentParser(prog="reports", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)}; all by default")
    parser.add_argument("--quick", action="store_true", help="to target/reports/quick, with fewer sizes")
    parser.add_argument("--again", action="store_true", help="measure what was measured before as well")
    parser.add_argument("--pages", action="store_true", help="measure nothing: write the pages again from their JSON")
    parser.add_argument("--check", action="store_true", help="fail if a page differs from its JSON and conclusions")
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in parts]
    if unknown:
        parser.error(f"no part is called {', '.join(unknown)}; there are {', '.join(parts)}")
    if options.check:
        reports = written_reports()
        old = [f"docs/reports/{name}.md" for name in stale(reports)]
        if sizing.written(sizing.PAGE.read_text(), reports) != sizing.PAGE.read_text():
            old.append("the sizes in docs/deployment.md")
        if old:
            raise SystemExit(f"written by hand or old: {', '.join(old)}; run `make reports-pages`")
        return
    if options.pages:
        reports = written_reports()
        write_pages(DOCS, reports, [*reports], has_text=True)
        sizing.PAGE.write_text(sizing.written(sizing.PAGE.read_text(), reports))
        return
    settings = Settings(options.quick)
    folder = TARGET / "reports/quick" if options.quick else DOCS
    folder.mkdir(parents=True, exist_ok=True)
    # A finally of a step puts the machine back and ends what it started.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(130))
    failed = []
    for name in options.parts or [*parts]:
        try:
            found = report(name, parts[name], settings, options.again)
            (folder / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
            reports = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}
            write_pages(folder, reports, [name], has_text=not options.quick)
            if not options.quick and name in sizing.PARTS:
                sizing.PAGE.write_text(sizing.written(sizing.PAGE.read_text(), reports))
        except Exception as error:  # The other parts can be measured all the same.
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed.append(name)
    print(f"The pages are in {folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder}.")
    if failed:
        raise SystemExit(f"not measured, or without a page: {', '.join(failed)}")


if __name__ == "__main__":
    main()
