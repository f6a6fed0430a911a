"""Loops of steps, and choices, in the semantics of ``jax.lax``."""
