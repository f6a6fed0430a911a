"""Functions of one sample run for many samples, or for many rows in blocks."""
