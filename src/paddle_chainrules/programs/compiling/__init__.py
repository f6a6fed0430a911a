"""From what was noted to Python that runs: passes, the cut in two ways, source."""
