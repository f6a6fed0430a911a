"""The same elements at other places, which are memory of their own."""
