"""What ``python -m paddle_chainrules`` does: doctor, bench and explain.

May import all rooms.
"""
