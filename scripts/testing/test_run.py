"""What a run does with suites that fail, that wait for others, and whose programs are missing."""

from __future__ import annotations

import contextlib
import io
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from testing import suites
from testing.programs import Program, read_list
from testing.run import Run
from testing.suites import SUITES, Part, Suite

MISSING = Program("no-such-program", ["a-package"], None, None)


class Runs(unittest.TestCase):
    def setUp(self) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.folder = Path(stack.enter_context(TemporaryDirectory()))
        stack.enter_context(mock.patch.object(suites, "LOGS", self.folder))

    def run_of(self, *parts: Suite, is_ci: bool = False) -> tuple[int, str]:
        """The exit code of a run in which a program is missing, and what it printed."""
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            run = Run(list(parts), [MISSING], 2, is_ci=is_ci)
            run.go()
            return run.conclude(), said.getvalue()

    def test_a_suite_that_fails_fails_the_run_and_those_that_wait_for_it_do_not_run(self) -> None:
        mark = self.folder / "mark"
        status, said = self.run_of(
            Suite("bad", "echo why; exit 3", after=()),
            Suite("next", f"touch {mark}", after=("bad",)),
            Suite("other", "echo fine", after=()),
        )
        self.assertEqual(status, 1)
        self.assertFalse(mark.exists())
        self.assertEqual(said.count("=== bad: FAILED (3)"), 2)
        self.assertIn("why", said)
        self.assertIn("  FAILED bad\n    why\n", said.split("=== summary")[1])
        self.assertIn("suites: 1 passed, 2 failed, 0 skipped", said)

    def test_the_summary_repeats_the_failed_tests_of_a_suite(self) -> None:
        suite = Suite("tests", "exit 1", after=())
        case = '<testcase classname="a" name="fails"><failure message="1 is not 2&#10;at line 3"/></testcase>'
        write = f"cat > {suite.junit} <<'END'\n<testsuite>{case}<testcase name='passes'/></testsuite>\nEND\nexit 1"
        status, said = self.run_of(Suite("tests", write, after=()))
        self.assertEqual(status, 1)
        self.assertIn("  FAILED tests\n    a fails: 1 is not 2\n", said.split("=== summary")[1])

    def test_the_reason_of_a_panic_is_behind_its_place(self) -> None:
        suite = Suite("panics", "exit 1", after=())
        text = "&#10;thread 'a' panicked at a.rs:1:1:&#10;1 is not 2&#10;  left: 1&#10;note: more"
        case = f'<testcase name="a"><failure message="thread &apos;a&apos; panicked at a.rs:1:1">{text}</failure></testcase>'
        write = f"cat > {suite.junit} <<'END'\n<testsuite>{case}</testsuite>\nEND\nexit 1"
        _, said = self.run_of(Suite("panics", write, after=()))
        self.assertIn("a: thread 'a' panicked at a.rs:1:1 1 is not 2 left: 1\n", said.split("=== summary")[1])

    def test_a_test_that_passed_in_its_second_try_is_listed(self) -> None:
        suite = Suite("wavers", "", after=())
        case = '<testcase name="a"><flakyFailure message="12 is not 11"/></testcase>'
        status, said = self.run_of(Suite("wavers", f"echo '<testsuite>{case}</testsuite>' > {suite.junit}", after=()))
        self.assertEqual(status, 0)
        self.assertIn("    FLAKY a: 12 is not 11\n", said.split("=== summary")[1])

        status, said = self.run_of(Suite("says", "echo 'FLAKY a page: it was late'", after=()))
        self.assertEqual(status, 0)
        self.assertIn("    FLAKY a page: it was late\n", said.split("=== summary")[1])

    def test_a_suite_that_fails_once_runs_again_when_no_other_does_and_is_listed(self) -> None:
        mark, seen = self.folder / "mark", self.folder / "seen"
        once = f"test ! -e {seen} && test -e {mark} || {{ touch {mark}; echo too late; exit 1; }}"
        long = f"touch {seen}; sleep 0.5; rm {seen}"
        tries = [Suite("wavers", once, after=()), Suite("long", long, after=()), Suite("next", "true", after=("wavers",))]
        status, said = self.run_of(*tries)
        self.assertEqual(status, 0, said)
        self.assertIn("    FLAKY too late\n", said.split("=== summary")[1])
        self.assertIn("suites: 3 passed, 0 failed, 0 skipped", said)
        mark.unlink()
        status, said = self.run_of(Suite("wavers", once, after=(), tries=1))
        self.assertEqual(status, 1)
        self.assertNotIn("FLAKY", said)

    def test_a_missing_program_skips_what_needs_it_and_names_the_command(self) -> None:
        skipped = Suite("all of it", "exit 1", after=(), needs=("no-such-program",))
        part = Part("no-such-program", "some of it", " --without-it")
        partly = Suite("words", "echo with{without}", after=(), parts=(part,))
        status, said = self.run_of(skipped, partly)
        self.assertEqual(status, 0)
        self.assertIn("SKIPPED all of it: no-such-program is missing; ", said)
        self.assertIn("SKIPPED words: some of it: no-such-program is missing; ", said)
        self.assertIn("with --without-it", said)
        self.assertIn("suites: 1 passed, 0 failed, 2 skipped", said)
        self.assertEqual(self.run_of(skipped, partly, is_ci=True)[0], 1)

    def test_what_no_installation_helps_is_counted_and_excused_in_ci(self) -> None:
        unable = Suite("unable", "echo '  SKIPPED a test: it needs two cores'", after=())
        status, said = self.run_of(unable, is_ci=True)
        self.assertEqual(status, 0)
        self.assertIn("SKIPPED a test: it needs two cores (unable)", said)
        self.assertIn("suites: 1 passed, 0 failed, 1 skipped", said)
        nowhere = Program("no-such-program", [], None, None)
        with mock.patch(f"{__name__}.MISSING", nowhere):
            status, said = self.run_of(Suite("all of it", "exit 1", after=(), needs=("no-such-program",)), is_ci=True)
        self.assertEqual(status, 0, said)
        self.assertIn("suites: 0 passed, 0 failed, 1 skipped", said)

    def test_a_suite_that_is_alone_meets_no_other(self) -> None:
        seen = self.folder / "seen"
        one = f"touch {seen}.busy; sleep 0.3; rm {seen}.busy"
        alone = f"test ! -e {seen}.busy"
        status, said = self.run_of(Suite("alone", alone, after=(), is_alone=True), Suite("other", one, after=()))
        self.assertEqual(status, 0, said)

    def test_a_nice_suite_runs_beside_one_that_is_alone(self) -> None:
        seen = self.folder / "seen"
        alone = f"for _ in $(seq 50); do test ! -e {seen} || exit 0; sleep 0.1; done; exit 1"
        nice = Suite("nice", f"touch {seen}", after=(), is_nice=True)
        status, said = self.run_of(Suite("alone", alone, after=(), is_alone=True), nice)
        self.assertEqual(status, 0, said)

    def test_a_suite_that_is_alone_does_not_wait_for_the_last_of_those_behind_it(self) -> None:
        order = self.folder / "order"
        say = "echo {} >> " + str(order)
        status, said = self.run_of(
            Suite("first", f"sleep 0.2; {say.format('first')}", after=()),
            Suite("alone", say.format("alone"), after=(), is_alone=True),
            *(Suite(f"behind {i}", say.format("behind"), after=()) for i in range(3)),
        )
        self.assertEqual(status, 0, said)
        self.assertEqual(order.read_text().split(), ["first", "alone", "behind", "behind", "behind"])

    def test_a_suite_that_does_not_end_is_ended(self) -> None:
        status, said = self.run_of(Suite("endless", "sleep 60", after=(), limit_s=0))
        self.assertEqual(status, 1)
        self.assertIn("endless: did not end within 0 s", said)

    def test_a_missing_program_is_named_as_each_system_calls_it(self) -> None:
        listed = {program.name: program for program in read_list()}
        self.assertIn("AUTOBAHN says where it is", listed["AUTOBAHN"].advice)
        with mock.patch("sys.platform", "linux"):
            self.assertEqual(listed["redis-server"].advice, "apt-get install redis-server")
        with mock.patch("sys.platform", "darwin"):
            self.assertEqual(listed["redis-server"].advice, "brew install redis")
            self.assertEqual(listed["systemd-analyze"].advice, "it is not available on macOS")

    def test_the_table_names_only_what_is_there(self) -> None:
        names = [suite.name for suite in SUITES]
        self.assertEqual(len(names), len(set(names)))
        listed = {program.name for program in read_list()}
        for suite in SUITES:
            self.assertLessEqual(set(suite.after), set(names))
            self.assertLessEqual({*suite.needs, *(part.program for part in suite.parts)}, listed)


if __name__ == "__main__":
    unittest.main()
