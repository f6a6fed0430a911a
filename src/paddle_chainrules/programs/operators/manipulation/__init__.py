"""The same elements in other shapes and at other places."""
