"""Rules for Paddle's operators while a graph is recorded, with their reasons.

Part of :mod:`paddle_chainrules.paddle_side`; may import from there.
"""
