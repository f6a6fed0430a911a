"""Operators of each element by itself, many of them as one loop of machine code."""
