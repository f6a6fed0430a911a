"""The commands of ``python -m paddle_chainrules``: doctor, bench and explain.

May import all rooms.
"""
