"""What a run compared, in all its processes, and Julia's own tests: told at the end."""

import pytest

import lanes
import watching

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
    config.pluginmanager.register(RunSummary(config))


class RunSummary:
    """Gathers what each process of tests has counted."""

    def __init__(self, config):
        self.config = config
        self.counts, self.julia, self.left_out = {}, [], []
        self.seconds, self.calls, self.slow = {}, {}, set()

    def add(self, counts, julia):
        for kind, number in counts.items():
            self.counts[kind] = self.counts.get(kind, 0) + number
        self.julia += julia

    def own(self):
        """What this process has counted, as a worker tells it."""
        counts = {**self.config.stash.get(COUNTS, {})}
        if watching.watched["calls"]:
            counts["calls of which no byte given was changed"] = watching.watched[
                "calls"
            ]
            counts["tensors looked at in these"] = watching.watched["tensors"]
        julia = self.config.stash.get(JULIA, [])
        return counts, [(o.passed, o.broken, o.summary) for o in julia]

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
            for _, _, summary in sorted(self.julia, key=lambda outcome: outcome[2]):
                line(summary)
            passed = sum(passed for passed, _, _ in self.julia)
            broken = sum(broken for _, broken, _ in self.julia)
            line(f"{passed} passed, {broken} broken")
        if self.left_out:
            seconds = sum(lanes.seconds_of({*map(lanes.unit, self.left_out)}).values())
            line(
                f"Left to make slow: {len(self.left_out)} tests that take about "
                f"{seconds / 60:.0f} minutes, by tests/{lanes.KEPT.name}"
            )
        if self.config.getoption("--keep-seconds"):
            lanes.keep(self.seconds, self.calls, self.slow)
