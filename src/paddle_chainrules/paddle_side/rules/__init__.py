"""What Paddle's operators go through while a graph is recorded, and why.

Part of :mod:`paddle_chainrules.paddle_side`; may import from there.
"""
