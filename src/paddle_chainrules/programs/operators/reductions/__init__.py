"""Sums, norms, orders and other operations along axes."""
