"""How the files of one architecture differ from the common layout.

An architecture whose files differ declares a `FileLayout` named LAYOUT in its file under pyturbo.models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyturbo.checkpoint.config import Format


@dataclass(frozen=True)
class Stored:
    """The tensor that holds one projection of all experts, named relative to the path of the experts.

    The tensor is [experts, out, in]. If its name has a "{}", which stands for the number of an expert, each
    expert has a tensor [out, in] of its own. Several projections may share the output axis of a tensor;
    `part` is then the number of one of its equal `parts`.
    """

    tensor: str
    part: int = 0
    parts: int = 1
    interleaved: bool = False  # rows of the parts alternate; otherwise one part follows the other
    transposed: bool = False  # the tensor is [experts, in, out]

    def rows(self, count: int) -> slice | None:
        """Return the rows of this projection, of `count` rows of the tensor; None if they are all."""
        if self.parts == 1:
            return None
        if self.interleaved:
            return slice(self.part, count, self.parts)
        size = count // self.parts
        return slice(self.part * size, (self.part + 1) * size)


#: The common forms of experts: a tensor for each projection, gate and up in one, or a tensor for each expert.
EXPERTS = {
    "gate_proj": (Stored("gate_proj"), Stored("gate_up_proj", 0, 2), Stored("{}.gate_proj")),
    "up_proj": (Stored("up_proj"), Stored("gate_up_proj", 1, 2), Stored("{}.up_proj")),
    "down_proj": (Stored("down_proj"), Stored("{}.down_proj")),
}


@dataclass(frozen=True)
class Gguf:
    """How GGUF files of an architecture differ from those of others."""

    #: Names in a layer by those in the file, in addition to the common ones: of modules, or of tensors with
    #: their suffix.
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class FileLayout:
    """Names and layouts of one architecture. The defaults fit most architectures."""

    #: Tensors of safetensors files that hold experts, by projection; the first that a file has is used.
    experts: Mapping[str, tuple[Stored, ...]] = field(default_factory=lambda: EXPERTS)
    #: Names of norms that multiply by 1 + weight: transformers stores the weight, mlx-lm the sum.
    offset_norms: re.Pattern[str] | None = None
    #: Prefix of all names in the MLX directory that a conversion writes.
    prefix: str = ""
    #: Formats that mlx-lm gives to matrices by the end of their path; None leaves them in floating point.
    formats: Mapping[str, Format | None] = field(default_factory=dict)
    #: Ends of the names of tensors that a conversion keeps in the type they have in the file.
    exact: tuple[str, ...] = ()
    gguf: Gguf | None = None  # None: GGUF files of this architecture are not supported
