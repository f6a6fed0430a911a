"""Data movement into new buffers: gathers, scatters, padding, permutations."""
