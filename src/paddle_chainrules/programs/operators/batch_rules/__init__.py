"""Rules for many samples at once, a family of operators a file."""
