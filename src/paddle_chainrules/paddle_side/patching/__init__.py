"""Functions of Paddle's, replaced for all callers."""
