"""Nets and functions as shared libraries, for C, C++, Fortran and Julia."""

from .exports import Export
from .load import Library, load_library
from .save import save_library

__all__ = ["Export", "Library", "load_library", "save_library"]
