"""The models of gguf_models with their matrices in blocks."""

from __future__ import annotations

import numpy as np
from ml_dtypes import bfloat16

from gguf_models import GgufModel, gguf_tensors
from pyturbo.bench.peers.random_blocks import random_rows
from pyturbo.checkpoint.gguf_writer import GgufTensor
from reference import gguf as reference

#: Types that are no blocks.
FLOATS = ("F16", "BF16")

#: Tensors that llama.cpp leaves in float32.
PLAIN = ("norm.weight", "conv1d.weight", "gate_inp.weight")


def is_matrix(name: str, array: np.ndarray) -> bool:
    return array.ndim > 1 and name.endswith(".weight") and not name.endswith(PLAIN)


def both_forms(one: GgufModel, kinds: tuple[str, ...]) -> tuple[list[GgufTensor], list[GgufTensor]]:
    """The tensors of a file in blocks, and the same in float32. Matrices take the types in turns."""
    rng = np.random.default_rng(1)
    blocks, exact, number = [], [], 0
    for name, array in gguf_tensors(one).items():
        if not is_matrix(name, array):
            blocks.append(GgufTensor.of(name, array))
            exact.append(GgufTensor.of(name, array))
            continue
        kind = kinds[number % len(kinds)]
        number += 1
        width, rows = array.shape[-1], array.size // array.shape[-1]
        data = random_rows(rng, "F32" if kind == "BF16" else kind, rows, width, float(array.std()))
        if kind == "BF16":
            data = data.astype(bfloat16)
        blocks.append(GgufTensor.of(name, data, kind, array.shape))
        values = data if kind in FLOATS else reference.dequantize(reference.Weight(data, kind))
        exact.append(GgufTensor.of(name, values.astype(np.float32).reshape(array.shape)))
    return blocks, exact
