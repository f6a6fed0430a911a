"""Nets without state: parameters come with every call, gradients in their form.

May import :mod:`paddle_chainrules.paddle_side`, :mod:`paddle_chainrules.programs` and
:mod:`paddle_chainrules.transforms`.
"""
