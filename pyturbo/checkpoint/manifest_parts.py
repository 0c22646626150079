"""The arrays of one record of a packed checkpoint: names, types, shapes and places."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.manifest_entries import Fields
from pyturbo.checkpoint.safetensors import DTYPES
from pyturbo.checkpoint.weights import FLOATS
from pyturbo.errors import FormatError
from pyturbo.ops.affine_format import BITS, GROUP_SIZES
from pyturbo.ops.fp_format import FP_FORMATS

#: The layers of an expert, and the arrays of one of them, in the order they have in a record.
PROJECTIONS = ("gate_proj", "up_proj", "down_proj")
PARTS = ("weight", "scales", "biases", "global_scale", "bias")

#: Parts start at multiples of this many bytes.
ALIGNMENT = 64

_NAME = re.compile(rf"({'|'.join(PROJECTIONS)})\.({'|'.join(PARTS)})")
_DTYPES = ("F32", "F16", "BF16", "U32", "U8")
_DTYPE = re.compile("|".join(_DTYPES))


@dataclass(frozen=True)
class Part:
    """One array of a record."""

    name: str  # "gate_proj.weight"
    dtype: str  # as safetensors spells it: "U32", "BF16"
    shape: tuple[int, ...]
    offset: int  # from the start of the record
    nbytes: int

    @property
    def array_dtype(self) -> np.dtype[Any]:
        return DTYPES[self.dtype]

    @property
    def end(self) -> int:
        return self.offset + self.nbytes

    @staticmethod
    def read(fields: Fields) -> Part:
        name = fields.matching("name", _NAME, 'a name such as "gate_proj.weight"')
        fields = fields.named(name)
        dtype = fields.matching("dtype", _DTYPE, f"one of {', '.join(_DTYPES)}")
        shape = fields.sizes("shape")
        offset, nbytes = fields.count("offset", least=0), fields.count("bytes", least=1)
        if offset % ALIGNMENT:
            raise fields.wrong("offset", f"a multiple of {ALIGNMENT}")
        if nbytes != math.prod(shape) * DTYPES[dtype].itemsize:
            raise fields.wrong("bytes", f"{math.prod(shape) * DTYPES[dtype].itemsize}")
        return Part(name, dtype, shape, offset, nbytes)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "dtype": self.dtype,
            "shape": list(self.shape),
            "offset": self.offset,
            "bytes": self.nbytes,
        }


def lay_out(arrays: Iterable[tuple[str, str, tuple[int, ...]]]) -> tuple[Part, ...]:
    """Lay out a record of arrays, given by name, type and shape: each at the next multiple of ALIGNMENT."""
    parts: list[Part] = []
    for name, dtype, shape in arrays:
        offset = -(-parts[-1].end // ALIGNMENT) * ALIGNMENT if parts else 0
        parts.append(Part(name, dtype, shape, offset, math.prod(shape) * DTYPES[dtype].itemsize))
    return tuple(parts)


def check_parts(
    fields: Fields, parts: Sequence[Part], formats: Mapping[str, Format | None], stride: int
) -> None:
    """Refuse parts that overlap or leave the record, or whose types and shapes the formats do not have."""
    if formats.keys() != set(PROJECTIONS):
        raise fields.wrong("formats", f"an entry for each of {', '.join(PROJECTIONS)}")
    for before, after in pairwise(parts):
        if after.offset < before.end:
            raise FormatError(
                f"{fields.where}: {after.name}: offset: expected {before.end} or more, after {before.name}, "
                f"got {after.offset}"
            )
    if parts and parts[-1].end > stride:
        raise FormatError(
            f"{fields.where}: {parts[-1].name}: expected an end within the stride of {stride}, "
            f"got {parts[-1].end}"
        )
    found = {part.name: part for part in parts}
    if len(found) != len(parts):
        raise fields.wrong("parts", "each part once")
    sizes = [_check_projection(fields, name, found, formats[name]) for name in PROJECTIONS]
    if sizes[1] != sizes[0] or sizes[2] != sizes[0][::-1]:
        raise FormatError(
            f"{fields.where}: expected gate_proj and up_proj [inner, hidden] and down_proj [hidden, inner], "
            f"got {', '.join(str(list(size)) for size in sizes)}"
        )


def _check_projection(
    fields: Fields, name: str, found: Mapping[str, Part], form: Format | None
) -> tuple[int, int]:
    """Check the parts of one projection, and return its size [out, in]."""
    weight = found.get(f"{name}.weight")
    if weight is None or len(weight.shape) != 2:
        raise FormatError(f"{fields.where}: {name}.weight: expected a matrix, got {_text(weight)}")
    out_dim, in_dim = weight.shape
    if form is not None:
        _check_format(fields, name, form)
        in_dim = form.width(in_dim)
    expected = _expected(found, name, form, (out_dim, in_dim))
    for kind in PARTS:
        part = found.get(f"{name}.{kind}")
        if (part and (part.dtype, part.shape)) not in expected[kind]:
            choices = " or ".join(dict.fromkeys(map(_choice, expected[kind])))
            raise FormatError(f"{fields.where}: {name}.{kind}: expected {choices}, got {_text(part)}")
    return out_dim, in_dim


def _check_format(fields: Fields, name: str, form: Format) -> None:
    """Refuse formats that no kernel reads."""
    known = form.mode == "affine" and form.bits in BITS and form.group_size in GROUP_SIZES
    known |= FP_FORMATS.get(form.mode) == (form.bits, form.group_size)
    if not known and (form.block is None or form != Format.blocks(form.mode)):
        raise FormatError(f"{fields.where}: formats: {name}: expected a known format, got {form}")


_Choice = tuple[str, tuple[int, ...]] | None  # a type and a shape; None: no such part


def _expected(
    found: Mapping[str, Part], name: str, form: Format | None, size: tuple[int, int]
) -> dict[str, list[_Choice]]:
    """Return the types and shapes that each part of a projection may have."""
    out_dim, in_dim = size
    expected: dict[str, list[_Choice]] = {kind: [None] for kind in PARTS}
    expected["bias"] += [(dtype, (out_dim,)) for dtype in FLOATS]
    if form is None:
        expected["weight"] = [(dtype, size) for dtype in FLOATS]
        return expected
    if form.block is not None:
        row = max(1, in_dim // form.block.values) * form.block.bytes
        expected["weight"] = [("U8", (out_dim, row))]
        return expected
    groups = (out_dim, max(1, in_dim // form.group_size))
    # Rows of whole groups fill whole words.
    words = groups[1] * form.group_size * form.bits // 32
    expected["weight"] = [("U32", (out_dim, words))]
    if form.mode != "affine":
        expected["scales"] = [("U8", groups)]
        if form.mode == "nvfp4":
            expected["global_scale"] = [None, ("F32", ())]
        return expected
    scales = found.get(f"{name}.scales")
    own = scales.dtype if scales is not None and scales.dtype in FLOATS else None
    expected["scales"] = [(dtype, groups) for dtype in FLOATS]
    expected["biases"] = [(dtype, groups) for dtype in FLOATS if own in (None, dtype)]
    return expected


def _choice(choice: _Choice) -> str:
    return "none" if choice is None else f"{choice[0]} {list(choice[1])}"


def _text(part: Part | None) -> str:
    return "none" if part is None else f"{part.dtype} {list(part.shape)}"
