"""Reshaping, indexing, gathering and scattering of elements."""
