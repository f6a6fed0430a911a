"""The operators that programs hold, by families, and :mod:`.table` of all.

An entry says how an operator is called and has its rules. We never guess a missing
entry: a function that uses such an operator is not captured.
"""
