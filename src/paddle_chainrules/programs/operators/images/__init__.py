"""Convolutions, pooling, and images in other sizes."""
