"""A report for readers: Markdown, and HTML with plots. Both are made from the JSON of the report and the conclusions alone."""

from __future__ import annotations

import html
import pathlib
import re
from typing import Any

from reports.table import Table, value, written

CONCLUSIONS = pathlib.Path(__file__).parent / "conclusions"
# `{table/row/column}`: a figure in a conclusion.
REFERENCE = re.compile(r"\{([^{}]+)\}")
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1240px; padding: 0 1rem; color: #1b1f24; }}
table {{ border-collapse: collapse; display: block; max-width: 100%; overflow-x: auto; font-variant-numeric: tabular-nums; font-size: 13px; }}
th, td {{ border: 1px solid #d4d9df; padding: .25rem .5rem; text-align: left; }} th {{ background: #f2f4f7; }}
figure {{ display: inline-block; margin: .5rem 1rem .5rem 0; }} figcaption {{ font-weight: 600; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #14171a; color: #e6e8ea; }} th {{ background: #22272c; }} th, td {{ border-color: #3a4148; }} }}
</style></head><body>
{body}
</body></html>
"""


class UnknownFigure(Exception):
    """A conclusion names a figure that the report does not have."""


def tables(report: dict[str, Any]) -> list[Table]:
    return [Table.from_json(table) for table in report["tables"]]


def conclusions(name: str, reports: dict[str, dict[str, Any]]) -> str:
    """The conclusions of a report, with the figures in the place of their references. `{http:table/row/column}` is a figure of
    another report."""
    path = CONCLUSIONS / f"{name}.txt"
    if not path.exists():
        return ""
    return REFERENCE.sub(lambda match: referred(match[1], name, reports), path.read_text()).strip()


def referred(reference: str, own: str, reports: dict[str, dict[str, Any]]) -> str:
    cell, unit = figure_of(reference, own, reports)
    return written(cell, unit, with_spread=False)


def figure_of(reference: str, own: str, reports: dict[str, dict[str, Any]]) -> tuple[Any, str]:
    """The cell that a reference names, and the unit of its column."""
    part, _, rest = reference.rpartition(":")
    report = reports.get(part or own)
    pieces = rest.split("/")
    if report and len(pieces) >= 3:
        table_id, key, column_id = pieces[0], "/".join(pieces[1:-1]), pieces[-1]
        for table in tables(report):
            units = {column.id: column.unit for column in table.columns}
            if table.id == table_id and table.rows.get(key, {}).get(column_id) is not None:
                return table.rows[key][column_id], units[column_id]
    raise UnknownFigure(f"conclusions/{own}.txt: no report has the figure {{{reference}}}")


def markdown(report: dict[str, Any], text: str) -> str:
    lines = [f"# {report['title']}", ""]
    if text:
        lines += [text, ""]
    lines += [
        "## How it was measured",
        "",
        f"- The same [with plots]({report['name']}.plots.html), and [as data]({report['name']}.json)",
    ]
    lines += [f"- {name}: {fact}" for name, fact in report["facts"].items()]
    lines += [
        "",
        "The mean of three runs like these is within the brackets with a certainty of 95 % (Student's t); of more runs they have the lowest "
        "and the highest. The figure before them is that of the median run, or in a comparison the median.",
        "",
    ]
    for table in tables(report):
        lines += [f"## {table.title}", "", *([table.about, ""] if table.about else []), *of_table(table), ""]
        lines += [f"- {note}" for note in table.notes]
        lines += [""] if table.notes else []
    return "\n".join(lines).rstrip() + "\n"


def of_table(table: Table) -> list[str]:
    columns = table.used_columns()
    lines = [f"| {' | '.join(column.name for column in columns)} |"]
    is_number = lambda column: any(isinstance(cells.get(column.id), dict) for cells in table.rows.values())
    lines.append("|" + "|".join("---:" if is_number(column) else ":---" for column in columns) + "|")
    for cells in table.rows.values():
        shown = [written(cells.get(column.id), column.unit).replace("|", "\\|") for column in columns]
        lines.append(f"| {' | '.join(shown)} |")
    return lines


def page(report: dict[str, Any], text: str) -> str:
    """The Markdown as HTML, each table after its plots."""
    from markdown import markdown as to_html

    body = to_html(markdown(report, text), extensions=["tables"])
    # The other pages are Markdown, which a browser does not show.
    body = re.sub(r'<a href="[^"]+\.md[^"]*">(.*?)</a>', r"\1", body)
    for table in tables(report):
        heading = f"<h2>{html.escape(table.title, quote=False)}</h2>"
        body = body.replace(heading, f"{heading}\n{''.join(plots(table))}", 1)
    return PAGE.format(title=html.escape(report["title"]), body=body)


COLOURS = ["#2864b4", "#d9730d", "#22863a", "#8250df", "#b31d28", "#57606a"]
WIDTH, HEIGHT, LEFT, BOTTOM = 560, 240, 70, 42


def plots(table: Table) -> list[str]:
    """A plot for each unit of the columns that are plotted: a line each over the rows, on a logarithmic scale from a tenfold
    range on."""
    columns = [column for column in table.columns if column.plot]
    groups: dict[str, list[Any]] = {}
    for column in columns:
        groups.setdefault(column.unit, []).append(column)
    return [plot for unit, group in groups.items() if (plot := lines_over_rows(table, unit, group))]


def lines_over_rows(table: Table, unit: str, columns: list[Any]) -> str:
    import math

    names = list(table.rows)
    series = [[value(cells.get(column.id)) for cells in table.rows.values()] for column in columns]
    known = [number for one in series for number in one if number]
    if len(names) < 2 or len(known) < 2:
        return ""
    least, most = min(known), max(known)
    is_wide = most / least >= 10
    low = math.log10(least) if is_wide else 0.0
    high = math.log10(most) if is_wide else most
    place = lambda number: math.log10(number) if is_wide else number
    x = lambda index: LEFT + (WIDTH - LEFT - 20) * index / (len(names) - 1)
    y = lambda number: 10 + (HEIGHT - BOTTOM - 10) * (1 - (place(number) - low) / ((high - low) or 1))
    shapes = []
    for mark in (least, math.sqrt(least * most) if is_wide else most / 2, most):
        at = y(mark)
        shapes.append(
            f'<line x1="{LEFT}" x2="{WIDTH - 20}" y1="{at:.0f}" y2="{at:.0f}" stroke="currentColor" opacity=".15"/>'
        )
        shapes.append(
            f'<text x="{LEFT - 6}" y="{at + 4:.0f}" text-anchor="end">{html.escape(written({"value": mark}, unit))}</text>'
        )
    step = max(1, len(names) // 8)
    for index, name in enumerate(names):
        if index % step == 0 or index == len(names) - 1:
            shapes.append(
                f'<text x="{x(index):.0f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{html.escape(name[:14])}</text>'
            )
    for number, (column, one) in enumerate(zip(columns, series, strict=True)):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(index):.1f},{y(figure):.1f}" for index, figure in enumerate(one) if figure)
        shapes.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        shapes.append(
            f'<text x="{LEFT + number * 80}" y="{HEIGHT - 6}" fill="{colour}">{html.escape(column.name[:12])}</text>'
        )
    caption = html.escape(", ".join(column.name for column in columns))
    return (
        f"<figure><figcaption>{caption}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" font-size="11" fill="currentColor" role="img" '
        f'aria-label="{caption}">{"".join(shapes)}</svg></figure>'
    )
