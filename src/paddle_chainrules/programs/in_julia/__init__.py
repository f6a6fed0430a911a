"""Programs as functions of Julia's: the entry of each operator, and the source."""
