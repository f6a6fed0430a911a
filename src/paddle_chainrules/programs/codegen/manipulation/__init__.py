"""The same elements at other places, in memory of their own."""
