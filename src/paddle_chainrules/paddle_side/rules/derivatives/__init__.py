"""Formulas of derivatives that Paddle gets wrong, or leaves out."""
