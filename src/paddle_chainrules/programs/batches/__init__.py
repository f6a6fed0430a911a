"""Functions of one sample run for many, and of many rows run in blocks of them."""
