"""The graph that Paddle records of a function, and the backward pass through it."""
