"""Which tests run in which process, in which order, and which of the slow ones.

The unit is a file: its tests run in turn in one process. What takes long by itself is a
unit of its own, and what starts processes with threads of their own, or counts on time,
is one unit, so that one of these runs at a time. The longest units begin. A test that
is marked ``thinned(n)`` has each n-th case run, the others with the slow ones.
``seconds.json`` says how long each file takes, without those of its tests that are
named there by themselves: long ones, and the slow ones. ``--keep-seconds``, for a whole
run, writes it.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from device import plugin, selection

HERE = Path(__file__).parent
KEPT = HERE / "seconds.json"
_KEPT = json.loads(KEPT.read_text()) if KEPT.exists() else {}
SECONDS = {k: v[0] if isinstance(v, list) else v for k, v in _KEPT.items()}
CASES = {k: v[1] for k, v in _KEPT.items() if isinstance(v, list)}
"""How many cases took these seconds, of functions with slow ones."""
UNKNOWN = 0.1
"""Seconds of a test of which nothing is known."""
LONG = 12
"""Seconds from which on a test is a unit by itself."""
PARTS = 100
"""How many parts the slow tests have, of which ``--part`` runs one."""
ALONE = "one at a time"
ONE_AT_A_TIME = (
    "tests/bridge/test_julia.py::test_every_order",
    "tests/bridge/test_julia.py::test_threads_may_end",
    "tests/distributed/",
    "tests/test_stress.py",
)


def unit(nodeid):
    """What is run in turn by one process: what is named by itself, ALONE, or a file."""
    if nodeid.startswith(ONE_AT_A_TIME):
        return ALONE
    names = nodeid, function_of(nodeid)
    return next((name for name in names if name in SECONDS), file_of(nodeid))


def file_of(nodeid):
    return nodeid.partition("::")[0]


def function_of(nodeid):
    """The test without what it is given."""
    return nodeid.partition("[")[0]


def seconds_of(units):
    """The seconds that each unit takes: those kept of its tests, or of its file."""
    known = dict.fromkeys(units, 0.0)
    for name, seconds in SECONDS.items():
        if (which := unit(name)) in known:
            known[which] += seconds
    return known


def pytest_addoption(parser):
    parser.addoption(
        "--part",
        type=int,
        metavar="N",
        help=f"of the tests marked slow run one part in {PARTS}, that of number "
        f"N modulo {PARTS}, beside the others; that of the hour, say",
    )
    parser.addoption(
        "--device",
        metavar="NAME",
        help="run on this device, fake_gpu, whose memory the host cannot touch",
    )
    parser.addoption(
        "--keep-seconds",
        action="store_true",
        help=f"write how long the tests took into {KEPT.name}",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """The longest units first; of the slow tests the part that is asked for."""
    thin(items)
    if plugin.VARIABLE in os.environ:
        for item in items:
            if reason := selection.reason_for(item.nodeid):
                item.add_marker(pytest.mark.skip(reason=reason))
    part = config.getoption("--part")
    if part is not None:
        slow = [item.nodeid for item in items if item.get_closest_marker("slow")]
        others = {*slow} - {*parts(slow)[part % PARTS]}
        left = [item for item in items if item.nodeid in others]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item.nodeid not in others]
        if config.option.markexpr == "not slow":
            config.option.markexpr = ""  # the slow ones that are asked for stay
    known = seconds_of({unit(item.nodeid) for item in items})
    items.sort(key=lambda item: -known[unit(item.nodeid)])


def thin(items):
    """Mark as slow what a test that is thinned leaves out: all but each n-th case."""
    cases = Counter()
    for item in items:
        if thinned := item.get_closest_marker("thinned"):
            name = function_of(item.nodeid)
            if cases[name] % thinned.args[0]:
                item.add_marker(pytest.mark.slow)
            cases[name] += 1


def seconds_by_test(nodeids):
    """The seconds of each test: its own, or its share of its function's or file's.

    Where only some cases of a function are to run, they have a part of its seconds.
    """
    own = {nodeid: SECONDS.get(nodeid) for nodeid in nodeids}
    shared = {
        nodeid: next(
            (n for n in (function_of(nodeid), file_of(nodeid)) if n in SECONDS), ""
        )
        for nodeid, seconds in own.items()
        if seconds is None
    }
    cases = Counter(shared.values())
    for name, number in cases.items():
        cases[name] = max(number, CASES.get(name, 0))
    return {
        nodeid: (SECONDS[name] / cases[name] if (name := shared[nodeid]) else UNKNOWN)
        if seconds is None
        else seconds
        for nodeid, seconds in own.items()
    }


def parts(nodeids, count=PARTS):
    """Tests or files in parts of about the same length, in the same way each time."""
    seconds = seconds_by_test(nodeids)
    loads = [(0.0, i, []) for i in range(count)]
    for nodeid in sorted(nodeids, key=lambda n: (-seconds[n], n)):
        load, i, chosen = min(loads)
        loads[i] = load + seconds[nodeid], i, [*chosen, nodeid]
    return [chosen for _, _, chosen in loads]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Units(LoadScopeScheduling):
        """Units in the order of collection to whoever is free."""

        def _split_scope(self, nodeid):
            return unit(nodeid)

    config.option.loadscopereorder = False
    return Units(config, log)


def keep(taken, calls, slow):
    """Write the seconds of a run's tests into the file, beside those it did not run.

    Args:
        taken: the seconds by test.
        calls: those of the test alone, without what it shares with others of its file.
        slow: the tests that are marked so, which are named whatever they take.
    """
    sums, cases = {}, Counter()
    for nodeid, seconds in taken.items():
        name = file_of(nodeid)
        if calls.get(nodeid, 0.0) >= LONG:
            name = nodeid
        elif nodeid in slow:
            name = function_of(nodeid)
            cases[name] += 1
        sums[name] = sums.get(name, 0.0) + seconds
    gone = {nodeid for nodeid in taken if nodeid not in sums}
    kept = {k: v for k, v in SECONDS.items() if k not in gone} | sums
    cases = {name: max(n, CASES.get(name, 0)) for name, n in (CASES | cases).items()}
    rounded = {
        k: [round(v, 1), cases[k]] if k in cases else round(v, 1)
        for k, v in sorted(kept.items())
    }
    rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in rounded.items())
    KEPT.write_text(f"{{\n{rows}\n}}\n")
