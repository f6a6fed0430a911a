"""Functions of each element by itself, and of several tensors element by element."""
