"""The operators that programs hold, by families, and :mod:`.table` of all.

An entry says how an operator is called and has its rules. A missing one is no guess: a
function that uses the operator is not captured.
"""
