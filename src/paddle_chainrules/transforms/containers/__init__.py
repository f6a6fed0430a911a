"""Containers of tensors in arguments and results: trees, sparse and packed rows."""
