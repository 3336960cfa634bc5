"""Tests of the reports, without measuring: PYTHONPATH=bench python3 -m unittest reports.test_reports"""

from __future__ import annotations

import ast
import json
import pathlib
import tempfile
import unittest
from unittest import mock

from reports import __main__ as program
from reports import agree, features, lab, page
from reports.parts import Part, Settings, all_parts
from reports.sections import Sections, of
from reports.table import Column, Table, figure, interval, of_runs, written
from servers import ROOT

RESULT = {
    "test": "throughput", "connections": 1000, "connected": 1000, "failed": 0, "format": "json", "payload_bytes": 175,
    "rate_per_s": 1_234_567.0, "messages": {"offered": 2_000_000, "confirmed": 2_000_000, "lost": 0}, "bottleneck": "client",
    "repeats": {"count": 3, "rate_per_s": {"min": 1_200_000.0, "max": 1_300_000.0}}, "verdict": "generator_bound",
    "cpu": {"client_s": 0.5, "server_s": 1.0},
}  # fmt: skip


def table(table_id: str = "t", key: str = "a", cell: object = None) -> Table:
    columns = [Column("name", "Name"), Column("rate", "Rate", "per_s", plot=True)]
    return Table(table_id, "A table", "About it.", columns, {key: {"name": key, "rate": cell or figure(1500.0)}})


def report(*tables: Table) -> dict[str, object]:
    return {"name": "r", "title": "R", "facts": {"Date": "today"}, "tables": [one.to_json() for one in tables]}


class Features(unittest.TestCase):
    def test_the_tests_that_show_ours_exist(self) -> None:
        self.assertEqual(features.missing_tests(), [])


class Figures(unittest.TestCase):
    def test_units_have_three_digits_and_their_interval(self) -> None:
        self.assertEqual(written(of_runs([2.0, 1000.0, 3.0]), "per_s"), "3/s (0/s to 1.77 k/s)")
        self.assertEqual(written(of_runs([950.0, 990.0, None, 1000.0]), "us"), "990 µs (914 µs to 1.05 ms)")
        self.assertEqual(written(of_runs([7.0, 7.0, 7.0]), "count"), "7")
        # The mean is 1002.333, the deviation 1.528: 4.303 / sqrt(3) of that to each side.
        least, most = interval(of_runs([1001.0, 1004.0, 1002.0])) or (0, 0)
        self.assertEqual((round(least, 3), round(most, 3)), (998.538, 1006.128))
        # Of another number of runs it is their range.
        self.assertEqual(interval(of_runs([1.0, 2.0, 4.0, 9.0])), (1.0, 9.0))
        self.assertIsNone(interval(figure(1.0)))
        self.assertEqual(written(figure(0.0), "us"), "0 ns")
        self.assertEqual(written(of_runs([5.0, 5.0]), "count"), "5")
        self.assertEqual(written(of("ratio", [0.5, 0.75]), ""), "0.62 (0.50 to 0.75)")
        self.assertEqual(written(None, "us"), "")
        self.assertEqual((written(figure(99.996), "percent"), written(figure(100.0), "percent")), ("99.9 %", "100 %"))

    def test_a_result_of_the_lab_is_a_row_with_both_sides(self) -> None:
        (one,) = lab.tables([RESULT])
        cells = one.rows["1000"]
        self.assertEqual(written(cells["rate"], "per_s"), "1.23 M/s (1.12 to 1.37 M/s)")
        self.assertEqual(
            (cells["offered"], cells["confirmed"], cells["lost"]), tuple(map(figure, (2_000_000, 2_000_000, 0)))
        )
        self.assertEqual(cells["server_us"], figure(0.5))
        self.assertEqual((cells["limit"], cells["verdict"]), ("generator", "generator bound"))

    def test_a_ratio_to_json_is_that_of_the_figures_beside_each_other(self) -> None:
        rates = {"json": 200.0, "msgpack": 150.0}
        results = [
            {**RESULT, "test": "format-comparison", "format": name, "rate_per_s": rate, "ratio_to_json": 9.0}
            for name, rate in rates.items()
        ]
        (one,) = lab.tables(results)
        self.assertEqual([cells["to_json"]["value"] for cells in one.rows.values()], [1.0, 0.75])

    def test_memory_is_that_of_a_fresh_server(self) -> None:
        hold = {
            "connections": 1000,
            "memory": {"server_rss_bytes": 10e6, "per_connection_bytes": 2000.0, "server_rss_peak_bytes": 10e6},
        }
        load = {"memory": {"server_rss_bytes": 12e6, "per_connection_bytes": 4000.0, "server_rss_closed_bytes": 9e6}}
        cells = lab.memory(hold, load)
        self.assertEqual((cells["empty"], cells["back"], cells["peak"]), (figure(8e6), figure(75.0), figure(10e6)))

    def test_the_size_matrix_has_a_row_for_each_number_of_connections(self) -> None:
        results = [
            {**RESULT, "test": "size-matrix", "connections": n, "payload_bytes": b}
            for n in (10, 20)
            for b in (64, 2048)
        ]
        matrix, details = lab.tables(results)
        self.assertEqual([column.name for column in matrix.columns], ["Connections", "64 B", "2 KiB"])
        self.assertEqual([*matrix.rows], ["10", "20"])
        self.assertEqual([*details.rows], ["10/json/64", "10/json/2048", "20/json/64", "20/json/2048"])


class Pages(unittest.TestCase):
    def test_a_reference_becomes_its_figure_and_an_unknown_one_is_an_error(self) -> None:
        reports = {"r": report(table()), "other": report(table(key="x/y"))}
        self.assertEqual(page.referred("t/a/rate", "r", reports), "1.50 k/s")
        self.assertEqual(page.referred("other:t/x/y/rate", "r", reports), "1.50 k/s")
        for unknown in ("t/b/rate", "t/a/cpu", "u/a/rate", "none:t/a/rate", "words"):
            with self.assertRaises(page.UnknownFigure, msg=unknown):
                page.referred(unknown, "r", reports)

    def test_every_conclusion_refers_to_figures_that_are_there(self) -> None:
        reports = program.written_reports()
        for name in reports:
            page.conclusions(name, reports)
        unread = {path.stem for path in page.CONCLUSIONS.glob("*.txt")} - {*reports}
        self.assertEqual(unread, set())

    def test_columns_without_a_figure_are_left_out_and_cells_stay_in_their_cell(self) -> None:
        one = table(cell="a | b")
        one.columns.append(Column("none", "None", "us"))
        self.assertEqual(page.of_table(one)[0], "| Name | Rate |")
        self.assertEqual(page.of_table(one)[2], "| a | a \\| b |")

    def test_two_columns_of_one_name_are_an_error(self) -> None:
        with mock.patch("builtins.print"), self.assertRaises(ValueError):
            Sections().table("T", "tool", "to wrk", "to wrk")

    def test_a_comparison_is_printed_and_kept(self) -> None:
        sections = Sections()
        with mock.patch("builtins.print"):
            sections.table("Keep-alive, nginx", "tool", "CPU, µs")
            sections.row("wrk", of("us", [1.0, 3.0]))
            sections.end("Target: reached.", "")
        (one,) = sections.tables
        self.assertEqual((one.id, one.notes, [*one.rows]), ("keep-alive-nginx", ["Target: reached."], ["wrk"]))
        self.assertEqual(page.referred("keep-alive-nginx/wrk/cpu-us", "r", {"r": report(one)}), "2 µs")


class Runs(unittest.TestCase):
    def test_each_script_is_one_for_the_oldest_python_that_runs_here(self) -> None:
        # Parts start them as programs of their own: nothing else imports them.
        for path in sorted((ROOT / "bench").glob("*.py")):
            ast.parse(path.read_text(), str(path), feature_version=(3, 11))
            compile(path.read_text(), str(path), "exec")

    def test_a_step_is_measured_once_for_a_program_and_goes_on_after_an_interruption(self) -> None:
        calls: list[str] = []

        def step(name: str, breaks: bool = False) -> object:
            def run(_: Settings) -> list[Table]:
                calls.append(name)
                if breaks:
                    raise KeyboardInterrupt
                return [table(key=name)]

            return run

        with tempfile.TemporaryDirectory() as folder:
            binary = pathlib.Path(folder, "tidewire")
            binary.write_text("1")
            places = mock.patch.multiple(program, TARGET=pathlib.Path(folder), TIDEWIRE=binary, version=lambda: "0")
            with places, mock.patch("sys.stderr"):
                broken = Part("P", {"one": step("one"), "two": step("two", breaks=True)})
                with self.assertRaises(KeyboardInterrupt):
                    program.report("p", broken, Settings(False), again=False)
                whole = Part("P", {"one": step("one"), "two": step("two")})
                found = program.report("p", whole, Settings(False), again=False)
                self.assertEqual(calls, ["one", "two", "two"])
                self.assertEqual([row["key"] for row in found["tables"][0]["rows"]], ["one", "two"])
                binary.write_text("2")
                program.report("p", whole, Settings(False), again=False)
                self.assertEqual(calls[3:], ["one", "two"])
                json.dumps(found)

    def test_two_measurements_agree_where_their_intervals_overlap(self) -> None:
        rows = lambda **of: {"tables": [Table("t", "T", "", [], of).to_json()]}
        three = lambda least, most: {"rate": figure((least + most) / 2, least, most, 3), "text": "a", "one": figure(1)}
        one = rows(a=three(1, 2), b=three(1, 2), c=three(1, 2), d={"one": figure(1)})
        other = rows(a=three(2, 3), b=three(5.1, 5.2), x=three(1, 2), d={"one": figure(9)})
        self.assertEqual([*agree.compared(one, other)], [("t", 2, {"b": ["rate"]})])

    def test_every_part_that_is_written_is_known(self) -> None:
        self.assertEqual({*program.written_reports()} - {*all_parts()}, set())


if __name__ == "__main__":
    unittest.main()
