"""Paddle's backward engine and its graph, and where their kernels end."""
