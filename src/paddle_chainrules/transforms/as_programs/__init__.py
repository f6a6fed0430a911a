"""Functions as programs, by jit or unasked: when, which one, and on whose graph."""
