"""Every row of the tables raises its error, says its words, and writes no file."""

import inspect
import re

import pytest

from errors import distributed, libraries, nets, optimizers, programs, transforms

ROWS = [
    pytest.param(*row, id=f"{module.__name__.partition('.')[2]}: {name}", marks=marks)
    for module in (distributed, libraries, nets, optimizers, programs, transforms)
    for marks in [getattr(module, "MARKS", ())]
    for name, *row in module.ROWS
]


def test_no_row_has_the_id_of_another():
    assert len({row.id for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(("call", "error", "words"), ROWS)
def test_what_is_refused_is_told(call, error, words, tmp_path):
    given = {"path": tmp_path} if "path" in inspect.signature(call).parameters else {}
    with pytest.raises(error) as told:
        call(**given)
    for pattern in (words,) if isinstance(words, str) else words:
        assert re.search(pattern, str(told.value)), str(told.value)
    assert not [*tmp_path.iterdir()]
