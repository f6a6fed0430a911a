"""From recorded operations to Python that runs: passes, splitting, source."""
