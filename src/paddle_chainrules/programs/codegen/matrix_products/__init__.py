"""Products of matrices, by libraries or in registers."""
