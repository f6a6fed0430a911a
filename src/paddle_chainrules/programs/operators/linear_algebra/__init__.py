"""Products of matrices, factors of them, and what is solved by these."""
