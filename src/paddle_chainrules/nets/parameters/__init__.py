"""Parameters outside of nets: flat, nested, by the names of state dicts."""
