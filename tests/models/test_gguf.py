"""Tiny models in GGUF files: against llama.cpp on the same file, and against the published form of the model.

The architectures have their own tests of what they compute; these are about names, layouts and metadata.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gguf_models import GGUF_MODELS, GOLDEN, gguf_tensors, write
from pyturbo.model import Model, load
from tiny_models import checksum, write_hf

BOUND = 1e-4  # of the logits' standard deviation: everything is in float32, added in another order

GOLDENS = [name for name, one in GGUF_MODELS.items() if one.golden]
PUBLISHED = [name for name, one in GGUF_MODELS.items() if one.published]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf")


def model_of(folder: Path, name: str, device: str = "cpu") -> Model:
    path = folder / f"{name}.gguf"
    if not path.exists():
        write(GGUF_MODELS[name], path)
    return load(path, device, kv="f32")


@pytest.mark.parametrize("name", GOLDENS)
def test_logits_are_those_of_llama_cpp(folder: Path, name: str) -> None:
    one = GGUF_MODELS[name]
    with np.load(GOLDEN) as golden:
        want, positions = golden[name], golden["positions"]
        assert golden[f"{name}_checksum"] == checksum(gguf_tensors(one))
    got = model_of(folder, name).logits(one.model.tokens())[positions]
    assert np.abs(got - want).max() <= BOUND * want.std()


@pytest.mark.parametrize("name", PUBLISHED)
def test_logits_are_those_of_the_published_form(folder: Path, name: str) -> None:
    one = GGUF_MODELS[name]
    want = load(write_hf(one.model, folder / f"{name}-hf"), kv="f32").logits(one.model.tokens())
    got = model_of(folder, name).logits(one.model.tokens())
    assert np.abs(got - want).max() <= BOUND * want.std()


def test_tokenizer_and_chat_template_are_those_of_the_file(folder: Path) -> None:
    """Bytes are their own tokens; "the" is made by two merges, and ends of turns are tokens."""
    model = model_of(folder, "qwen35moe")
    ids = model.prompt_ids([{"role": "user", "content": "the é"}])
    assert ids[:1] + ids[-1:] == [258, ord("\n")]
    assert ids[6:10] == [257, ord(" "), *"é".encode()]
    assert ids[10] == 259
    assert model.tokenizer.decode(ids) == "user\nthe é\nassistant\n"
