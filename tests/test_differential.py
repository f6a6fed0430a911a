"""Paddle's functions and layers, each derivative exact or refused by name."""

import numpy as np
import paddle
import pytest

from differential import calls, run, verdicts
from differential.tables import CALLED, TABLES


@pytest.mark.thinned(3)
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("table", TABLES)
def test_exact_or_refused_by_name(table, part, count_case):
    cases = [(table, name) for name in TABLES[table].cases]
    assert len(cases) > {"functions": 250, "layers": 200}[table]
    found = run.run(cases[part::3])
    assert not run.faults(found)
    for rows in found.values():
        for _, verdict, _ in rows:
            count_case(f"derivatives of {table}: {verdict}")


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_the_same_as_programs(table, count_case, monkeypatch):
    monkeypatch.setenv("PROGRAMS", "1")
    cases = [(table, name) for name in TABLES[table].cases]
    found = run.run(cases)
    assert not run.faults(found)
    for rows in found.values():
        for _, verdict, _ in rows:
            count_case(f"derivatives of {table} as programs: {verdict}")


def called(cases, count_case):
    found = run.run(cases)
    assert not run.faults(found)
    for (table, _), rows in found.items():
        for asked, verdict, _ in rows:
            call = asked.partition(",")[0]
            count_case(f"{table}, {call}: {verdict}")


def test_called_many_times(count_case):
    """A few of those below."""
    chosen = [
        "exp: complex",
        "sinc",
        "logaddexp",
        "index_put",
        "Embedding, sparse, padding",
    ]
    cases = [(t, n) for t, table in CALLED.items() for n in table.cases]
    some = [case for case in cases if case[1] in chosen] + cases[::120]
    called(some, count_case)


@pytest.mark.slow
@pytest.mark.parametrize("table", CALLED)
def test_every_one_called_many_times(table, count_case):
    called([(table, name) for name in CALLED[table].cases], count_case)


def test_a_fault_of_a_later_call_is_found():
    class Late(calls.CalledLayer):
        def called(self, given, seeds):
            self.count = getattr(self, "count", 0) + 1
            found = [*super().called(given, seeds)]
            return [found[0] + 1e-3, *found[1:]] if self.count > 5 else found

    name = "Embedding, sparse, padding"
    for how in ({}, {"jit": True}):
        with calls.default_dtype("float64"):
            found = calls.asked(Late(name, "float64", how), print)
        assert [v.verdict for v in found] == ["exact", "exact", "wrong"]
        assert found[-1].asked.startswith("call 6")


def test_a_fault_is_found(monkeypatch):
    """What is wrong is called wrong, and what crashes is counted."""

    def double(x):
        y = paddle.assign(x.detach() * 2)
        return y + 0 * x

    found = verdicts.of_function("double", double, [np.ones(3)], print)
    assert {v.verdict for v in found} == {"wrong"}

    def overwriting(x):
        paddle.assign(x * 2, output=kept)
        return x * x

    kept = paddle.ones([3])
    questions = verdicts.Question(print)
    questions.ask("anything", lambda: overwriting(kept) and [], [kept])
    assert "impure" in {v.verdict for v in questions.verdicts}
    assert verdicts.judged(ValueError("of Paddle's"))[0] == "crashed"
