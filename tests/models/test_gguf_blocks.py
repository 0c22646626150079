"""Every architecture with all matrices in blocks of each type, against the same values in float32.

Does not catch: a type that all of our readers decode wrongly, which the tests of its kernels do.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gguf_models import BLOCK_MODELS, GgufModel, gguf_tensors, metadata
from pyturbo.bench.peers.random_blocks import random_rows
from pyturbo.checkpoint.gguf_writer import GgufTensor, write_gguf
from pyturbo.model import load
from reference import gguf as reference

BOUND = 2e-3  # of the logits' standard deviation, as in test_parity
TOKENS = 40  # more than a tile of a product of matrices
#: Tensors that llama.cpp leaves in float32.
PLAIN = ("norm.weight", "conv1d.weight", "gate_inp.weight")

#: Types that the tensors of a file mix, in turns.
MIXTURE = ("Q4_K", "Q6_K", "Q8_0", "F16", "IQ4_XS")

KINDS = sorted(reference.SIZES)


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
        data = random_rows(rng, kind, rows, width, float(array.std()))
        blocks.append(GgufTensor.of(name, data, kind, array.shape))
        values = data if kind == "F16" else reference.dequantize(reference.Weight(data, kind))
        exact.append(GgufTensor.of(name, values.astype(np.float32).reshape(array.shape)))
    return blocks, exact


def check(one: GgufModel, kinds: tuple[str, ...], folder: Path) -> None:
    logits = []
    for number, tensors in enumerate(both_forms(one, kinds)):
        (path,) = write_gguf(folder / f"{number}.gguf", metadata(one), tensors)
        model = load(path, kv="f32")
        session = model.session(TOKENS + 1)
        session.prefill(one.model.tokens()[:TOKENS])
        logits.append(np.stack([session.logits, session.step(7)]))
    got, want = logits
    assert np.abs(got - want).max() <= BOUND * want.std()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["qwen3moe", "deepseek2", "gpt-oss"])
def test_one_type(tmp_path: Path, name: str, kind: str) -> None:
    check(BLOCK_MODELS[name], (kind,), tmp_path)


@pytest.mark.parametrize("name", sorted(BLOCK_MODELS))
def test_a_mixture_of_types(tmp_path: Path, name: str) -> None:
    """Gate and up of an MLP, queries, keys and values have different types."""
    check(BLOCK_MODELS[name], MIXTURE, tmp_path)
