"""The list of what does not run on the device, and the page that shows it."""

import re
from collections import Counter

import pytest

from device import selection

PAGE = (selection.ROOT / "docs" / "devices.md").read_text()


def test_every_pattern_names_a_test_that_is_there():
    assert selection.unknown() == []
    assert selection.reason_for("tests/nets/test_joint.py::test_gradients_equal_x[1]")
    assert selection.reason_for("tests/nets/test_joint.py::test_others[1]") is None
    assert selection.reason_for("tests/programs/test_vectors.py::test_any[1]")


def test_the_page_counts_the_files():
    counts = Counter(file.rpartition("/")[0] for file in selection.files())
    rows = re.findall(r"(?m)^\| `(tests[\w/]*)` \| (\d+) \|", PAGE)
    assert {folder: int(number) for folder, number in rows} == counts


@pytest.mark.parametrize("pattern", selection.NOT_ON_DEVICE)
def test_the_page_has_every_test_that_is_left_out(pattern):
    reason = selection.NOT_ON_DEVICE[pattern]
    rows = [row for row in PAGE.splitlines() if row.startswith(f"| {reason} |")]
    shown = pattern.removeprefix("tests/")
    assert len(rows) == 1, pattern
    assert f"`{shown}`" in rows[0]
