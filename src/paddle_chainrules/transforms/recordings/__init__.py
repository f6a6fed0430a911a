"""A function's graph, recorded on Paddle's tape or by rules, and the way back."""
