"""Differential equations solved: seconds to an error, on all sides.

``problem.py`` says what a problem is, ``steady.py``, ``evolving.py`` and ``flows.py``
have them, ``references.py`` their solutions where no formula has one. Each of the
modules ``by_...`` trains by one side's own ways. ``run.py`` trains them all, each in a
process of its own, and ``page.py`` writes docs/solved.md.
"""
