"""Programs as Julia functions: the entry of each operator, and the source."""
