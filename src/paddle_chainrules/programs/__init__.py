"""Nets as formulas: closed forms of chains of Linear layers, and their derivatives.

May import :mod:`paddle_chainrules.paddle_side`.
"""
