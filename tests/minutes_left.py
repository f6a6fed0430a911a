"""How long a run of tests will take, by what each took before, and what is left of it.

A run of more than a minute says so at its start. Dots are left out then: a terminal has
a bar, and a log file a line a minute.
"""

import sys
import time

import pytest
from tqdm import tqdm

import lanes

SECONDS_BETWEEN_LINES = 60


class MinutesLeft:
    """What is expected of a run, and what of it is done.

    Args:
        processes: how many run tests at a time.
        write_line: writes a line where the run is reported.
        is_terminal: whether somebody looks.
    """

    def __init__(self, processes, write_line, is_terminal):
        self._processes, self._write_line = processes, write_line
        self._is_terminal, self._bar = is_terminal, None
        self.seconds, self._done, self._counts = {}, 0.0, {}
        self.is_long = False

    def expect(self, nodeids):
        """Begin: these tests are to run."""
        if self.seconds:
            return  # of another process, which has the same
        self.seconds = lanes.seconds_by_test(nodeids)
        total = sum(self.seconds.values())
        self._start = self._written = time.monotonic()
        self.is_long = total / self._processes > SECONDS_BETWEEN_LINES
        if not self.is_long:
            return
        minutes = total / self._processes / 60
        self._write_line(
            f"{len(nodeids):,} tests, about {minutes:.0f} minutes in {self._processes} "
            f"process{'es' * (self._processes > 1)}, as they took before"
        )
        if self._is_terminal:
            form = "{percentage:3.0f}% |{bar}| {postfix}"
            self._bar = tqdm(total=total, bar_format=form, leave=False, file=sys.stderr)

    def note(self, nodeid, outcome):
        """Note that a test has ended, and say so once a minute."""
        seconds = self.seconds.pop(nodeid, 0.0)
        self._done += seconds
        self._counts[outcome] = self._counts.get(outcome, 0) + 1
        if outcome in ("failed", "error"):
            self._write_line(f"{outcome}: {nodeid}")
        if self._bar is not None:
            self._bar.set_postfix_str(self.line(), refresh=False)
            self._bar.update(seconds)
        elif time.monotonic() - self._written > SECONDS_BETWEEN_LINES:
            self._written = time.monotonic()
            self._write_line(self.line())

    def line(self):
        """``4 min, 3 left: 812 passed, 2 failed``, by the pace of this run."""
        elapsed = time.monotonic() - self._start
        left = sum(self.seconds.values())
        pace = elapsed / self._done if self._done > 1 else 1 / self._processes
        counts = ", ".join(f"{n:,} {kind}" for kind, n in self._counts.items())
        return f"{elapsed / 60:.0f} min, {pace * left / 60:.0f} left: {counts}"

    def close(self):
        if self._bar is not None:
            self._bar.close()


class Report:
    """Tells pytest's run to :class:`MinutesLeft`, in the process that reports."""

    def __init__(self, config):
        self._config, self._left = config, None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionstart(self, session):
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        count = self._config.getoption("numprocesses", None) or 1
        is_terminal = sys.stderr.isatty()
        self._left = MinutesLeft(count, reporter.write_line, is_terminal)

    def pytest_collection_finish(self, session):
        if session.items and not self._config.option.collectonly:
            self._left.expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        self._left.expect(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report):
        if not (self._left and self._left.is_long):
            return None
        return (self._outcome(report) or "", "", "")

    @staticmethod
    def _outcome(report):
        """How a test has ended; None where it goes on, or where nothing is to say."""
        if hasattr(report, "wasxfail"):
            return "xfailed" if report.skipped else "xpassed"
        if report.when == "call" or report.skipped:
            return report.outcome
        return "error" if report.failed else None

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report):
        if self._left.is_long and (outcome := self._outcome(report)):
            self._left.note(report.nodeid, outcome)

    def pytest_sessionfinish(self):
        self._left.close()


def register(config):
    """Report on a run, unless this process runs tests for another."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Report(config))
