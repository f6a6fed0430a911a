"""Records of what a function does to tensors, by operation, with gradients."""
