"""The graph that Paddle records of a function, and the way back through it."""
