"""What holds tensors in arguments and results: trees, sparse and packed rows."""
