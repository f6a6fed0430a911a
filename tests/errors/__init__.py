"""Calls that are refused, a table for each room of the package.

A row is an id, the call, the type of its error, and the words that its message must
have: a pattern, or several. A call with a parameter ``path`` is given an empty folder.
"""
