"""Any paddle.nn.Layer as a net: its shell, the places of its tensors, its structure."""
