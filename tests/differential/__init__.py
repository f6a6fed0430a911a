"""Derivatives of Paddle's functions and layers beside central differences."""
