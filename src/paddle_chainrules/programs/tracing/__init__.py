"""What a function does to tensors, noted operation by operation, with its gradients."""
