"""What a library looks like from each language."""
