"""Derivatives by the inputs, by Taylor series through operations."""
