"""Every architecture with all matrices in blocks of each type, against the same values in float32.

Does not catch: a type that all of our readers decode wrongly, which the tests of its kernels do.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gguf_blocks import FLOATS, both_forms
from gguf_models import BLOCK_MODELS, GgufModel, metadata
from pyturbo.checkpoint.gguf_writer import write_gguf
from pyturbo.model import load
from reference import gguf as reference

BOUND = 2e-3  # of the logits' standard deviation, as in test_parity
TOKENS = 40  # more than a tile of a product of matrices
#: Types that the tensors of a file mix, in turns.
MIXTURE = ("Q4_K", "Q6_K", "Q8_0", "F16", "IQ4_XS")

KINDS = [*sorted(reference.SIZES), *FLOATS]


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
