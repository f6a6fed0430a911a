"""Sums, norms, orders and what else goes along axes."""
