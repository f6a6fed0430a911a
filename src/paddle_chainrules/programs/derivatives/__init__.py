"""Derivatives with respect to inputs, by Taylor series through operations."""
