"""Captured functions as straight lines of operators, and derivatives as formulas.

May import :mod:`paddle_chainrules.paddle_side`.
"""
