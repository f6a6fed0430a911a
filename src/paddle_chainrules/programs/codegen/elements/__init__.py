"""Arithmetic and functions of one element, as instructions of LLVM."""
