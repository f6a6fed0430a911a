"""Any paddle.nn.Layer as a net: a functional module, and where it holds what."""
