"""Libraries of physics-informed nets, whose derivatives come from Taylor series.

Each module needs the library of its name, and is imported by itself.
"""
