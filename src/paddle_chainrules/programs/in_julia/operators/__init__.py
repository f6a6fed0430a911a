"""Operators written in Julia, a family a file, much as those of programs."""
