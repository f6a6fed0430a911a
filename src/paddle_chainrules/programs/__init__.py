"""Functions as straight lines of operators, and derivatives of chains as formulas.

May import :mod:`paddle_chainrules.paddle_side`.
"""
