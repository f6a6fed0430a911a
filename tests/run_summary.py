"""One summary of both languages at the end of a run, from all of its processes.

It says what was compared, what passed, what was skipped and why, and on which machine,
so that a failure that somebody reports can be understood.
"""

from collections import Counter
from dataclasses import astuple

import pytest

import lanes
import minutes_left
import watching
from julia_at_hand import REQUIRED, WHY, julia_version
from julia_lane import Outcome
from paddle_chainrules.commands.machine import machine

COUNTS = pytest.StashKey[dict]()
JULIA = pytest.StashKey[list]()
HERE = "run_summary"


@pytest.fixture
def count_case(request):
    """Count a case of a kind, for the end of the run."""
    counts = request.config.stash.setdefault(COUNTS, {})

    def count(kind):
        counts[kind] = counts.get(kind, 0) + 1

    return count


@pytest.fixture
def record_julia(request):
    """Keep the outcome of a file of Julia's tests for the end of the run."""
    return request.config.stash.setdefault(JULIA, []).append


def pytest_configure(config):
    if REQUIRED and WHY:
        raise pytest.UsageError(f"JULIA=required, but Julia is not ready: {WHY}")
    config.pluginmanager.register(RunSummary(config))
    minutes_left.register(config)


class RunSummary:
    """Gathers what each process of tests has counted."""

    def __init__(self, config):
        self.config = config
        self.counts, self.julia, self.left_out = {}, [], []
        self.seconds, self.calls, self.slow = {}, {}, set()

    def add(self, counts, julia):
        for kind, number in counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + number
        self.julia += [Outcome(*fields) for fields in julia]

    def own(self):
        """What this process has counted, as a worker tells it."""
        counts = {**self.config.stash.get(COUNTS, {})}
        if watching.watched["calls"]:
            counts["calls of which no byte given was changed"] = watching.watched[
                "calls"
            ]
            counts["tensors looked at in these"] = watching.watched["tensors"]
        julia = self.config.stash.get(JULIA, [])
        return counts, [astuple(outcome) for outcome in julia]

    def pytest_deselected(self, items):
        self.left_out += [i.nodeid for i in items if i.get_closest_marker("slow")]

    def pytest_sessionfinish(self):
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput[HERE] = (*self.own(), self.left_out)
        else:
            self.add(*self.own())

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        told = getattr(node, "workeroutput", {}).get(HERE)
        if told is not None:  # nothing is told by one that crashed
            *own, self.left_out = told
            self.add(*own)

    def pytest_runtest_logreport(self, report):
        if report.when == "call":
            self.calls[report.nodeid] = report.duration
        before = self.seconds.get(report.nodeid, 0.0)
        self.seconds[report.nodeid] = before + report.duration
        if "slow" in report.keywords:
            self.slow.add(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter):
        line = terminalreporter.write_line
        if self.counts:
            terminalreporter.section("Cases that were compared")
            for kind, number in self.counts.items():
                line(f"{number:6} {kind}")
        if self.julia:
            terminalreporter.section("Julia's own tests")
            for outcome in sorted(self.julia, key=lambda outcome: outcome.row):
                line(outcome.row)
        terminalreporter.section("Summary")
        for row in self.rows(terminalreporter.stats):
            line(row)
        if self.config.getoption("--keep-seconds"):
            lanes.keep(self.seconds, self.calls, self.slow)

    def rows(self, stats):
        """The summary's lines: both languages, skips by reason, and the machine."""
        kinds = ("passed", "failed", "error", "skipped", "xfailed")
        yield f"Python    {told({kind: len(stats.get(kind, ())) for kind in kinds})}"
        if self.julia:
            of_julia = {
                "passed": sum(outcome.passed for outcome in self.julia),
                "broken": sum(outcome.broken for outcome in self.julia),
                "skipped": sum(len(outcome.skipped) for outcome in self.julia),
            }
            yield f"Julia     {told(of_julia)}, in {len(self.julia)} files"
        reasons = Counter(  # of whole files, too, which are skipped when collected
            report.longrepr[2].removeprefix("Skipped: ")
            for report in stats.get("skipped", ())
        )
        reasons.update(why for outcome in self.julia for why in outcome.skipped)
        for why, number in reasons.most_common():
            yield f"Skipped   {number}: {' '.join(why.split())}"
        if self.left_out:
            seconds = sum(lanes.seconds_of({*map(lanes.unit, self.left_out)}).values())
            yield (
                f"Not run   {len(self.left_out)} slow tests, about "
                f"{seconds / 60:.0f} minutes (make slow)"
            )
        yield f"Machine   {machine()}; {julia_at_hand()}"


def told(counts):
    """``8,941 passed, 54 skipped``: the kinds of which there are any."""
    return ", ".join(f"{n:,} {kind}" for kind, n in counts.items() if n) or "none"


def julia_at_hand():
    """Julia's version, or that there is none."""
    return "no Julia" if WHY else "Julia " + ".".join(map(str, julia_version()))
