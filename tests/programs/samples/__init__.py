"""Arguments for every operator of the table: a row a variant, tensors by shapes."""

from .basic import BASIC
from .indexing import INDEXING
from .tensors import T
from .writes import WRITES

__all__ = ["SAMPLES", "T"]

SAMPLES = {**BASIC, **WRITES}
for name, rows in INDEXING.items():
    SAMPLES[name] = [*SAMPLES.get(name, []), *rows]
