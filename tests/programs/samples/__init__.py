"""Arguments for every operator of the table: a row a variant, tensors by shapes."""

from .basic import BASIC
from .complex_numbers import COMPLEX
from .spectral import SPECTRAL
from .tensors import T
from .writes import WRITES

__all__ = ["SAMPLES", "T"]

SAMPLES = {**BASIC, **SPECTRAL, **WRITES}
for _name, _rows in COMPLEX.items():
    SAMPLES[_name] = [*SAMPLES.get(_name, []), *_rows]
