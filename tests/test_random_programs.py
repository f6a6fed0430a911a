"""Programs drawn at random; see :mod:`random_programs`."""

import os

import pytest

from random_programs import verdicts_of

FIRST = 1000 * int(os.environ.get("RANDOM_PROGRAMS", "0"))
"""The first seed; CI draws other programs every hour."""

CASES = [
    pytest.param(range(FIRST, FIRST + 40), id="some"),
    *(
        pytest.param(range(start, start + 500), id=str(start), marks=pytest.mark.slow)
        for start in range(100_000, 102_000, 500)
    ),
]


@pytest.mark.parametrize("seeds", CASES)
def test_answers_are_right_or_refused(seeds):
    found = {seed: verdict for seed, (*_, verdict) in verdicts_of(seeds)}
    assert sorted(found) == [*seeds]
    wrong = [f"seed {seed}: {text}" for seed, text in found.items() if text]
    assert not wrong, "\n\n".join(wrong)
