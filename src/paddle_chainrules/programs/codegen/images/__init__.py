"""Convolutions and pooling, and their windows."""
