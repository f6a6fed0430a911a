"""Convolutions and pooling, and the windows that they go over."""
