"""All that is private to Paddle: its engine, its graph, its operators and their faults.

May import nothing of this package.
"""
