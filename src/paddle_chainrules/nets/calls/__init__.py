"""Arguments of a net's call, the program that serves it, and its backward pass."""
