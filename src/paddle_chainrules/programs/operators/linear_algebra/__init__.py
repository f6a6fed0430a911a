"""Products of matrices, factorizations, and solutions by these."""
