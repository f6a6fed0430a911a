"""Sizes that vary with the number of samples, so that one program serves any."""
