"""Elementwise operators, many of them fused into one loop of machine code."""
