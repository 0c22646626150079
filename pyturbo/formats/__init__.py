"""Formats of the weight of a linear layer, or of a stack of them. A format is one class in one file.

`Linear` states what layers ask of a format; the kernels that read it are operations of `pyturbo.ops`.
"""

from __future__ import annotations

from pyturbo.formats.affine import Affine
from pyturbo.formats.dense import Dense
from pyturbo.formats.fp import Fp
from pyturbo.formats.gguf import Gguf
from pyturbo.formats.linear import Buckets, Linear

__all__ = ["Affine", "Buckets", "Dense", "Fp", "Gguf", "Linear"]
