"""Paddle's functions and layers, each derivative exact or refused by name."""

import numpy as np
import paddle
import pytest

from differential import run, verdicts
from differential.tables import TABLES


@pytest.mark.parametrize("table", TABLES)
def test_exact_or_refused_by_name(table, count_case):
    cases = [(table, name) for name in TABLES[table].cases]
    found = run.run(cases)
    assert not run.faults(found)
    for rows in found.values():
        for _, verdict, _ in rows:
            count_case(f"derivatives of {table}: {verdict}")
    assert len(cases) > {"functions": 400, "layers": 200}[table]


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
