"""Normalization, and recurrent layers."""
