"""Tensors and weights in blocks of rows: together they are what loading gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import random_gguf
from models.test_gpt_oss import MXFP4, published
from models.test_gpt_oss import write as write_gpt_oss
from pyturbo import models, ops
from pyturbo.checkpoint import Weights, open_checkpoint, stream
from pyturbo.checkpoint.source import Source
from pyturbo.checkpoint.stream import Stream
from reference import gguf as reference
from tiny_configs import FP_MODELS, MODELS
from tiny_models import write_hf, write_mlx


@contextmanager
def opened(path: Path) -> Iterator[tuple[Weights, Weights]]:
    """The weights of a checkpoint twice: with all sources, and to load them from."""
    with open_checkpoint(path) as checkpoint:
        _, outline = models.outline(checkpoint)
        yield outline, checkpoint.weights(models.layout(checkpoint.model_type))


def loaded(weights: Weights, source: Source) -> dict[str, np.ndarray]:
    if source.name.endswith(".bias") and (".experts." in source.name or ".switch_mlp." in source.name):
        path = source.name.removesuffix(".bias")
        return {"weight": weights.experts(path, bias=True).bias}
    if not source.matrix:
        return {"weight": weights.tensor(source.name)}
    ask = weights.experts if len(source.shape) == 3 else weights.linear
    arrays = vars(ask(source.name, source.shape))
    names = {"packed": "weight", "blocks": "weight", "bias": None, "global_scale": None}
    return {
        names.get(name, name): array
        for name, array in arrays.items()
        if isinstance(array, np.ndarray) and names.get(name, name)
    }


def read(one: Stream) -> dict[str, np.ndarray]:
    """All blocks of all matrices of a stream, put together."""
    found: dict[str, list[np.ndarray]] = {name: [] for name in one.arrays}
    for matrix in range(one.matrices):
        for block in one.blocks(matrix):
            assert block.keys() == found.keys()
            for name, array in block.items():
                found[name].append(array)
    specs = one.arrays
    return {
        name: np.concatenate([array.reshape(-1) for array in arrays]).reshape(specs[name].shape)
        for name, arrays in found.items()
    }


def compare(path: Path) -> None:
    with opened(path) as (outline, weights):
        for source in outline.sources.values():
            want = loaded(weights, source)
            for stacked in {False, source.matrix and len(source.shape) == 3}:
                if not stacked and not source.values.whole:
                    continue
                got = read(outline.stream(source, stacked=stacked))
                assert got.keys() == want.keys(), source.name
                for name, array in want.items():
                    assert got[name].dtype == array.dtype, source.name
                    assert got[name].tobytes() == array.tobytes(), (source.name, name, stacked)


@pytest.mark.parametrize("block", [1, 1000, 1 << 20])
@pytest.mark.parametrize("name", ["qwen3_next", "deepseek_v3", "gpt_oss"])
def test_directories(name: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK", block)
    compare(write_hf(MODELS[name], tmp_path / "hf"))
    compare(write_mlx(MODELS[name], tmp_path / "mlx"))


@pytest.mark.parametrize("block", [1000, 1 << 20])
def test_experts_in_blocks_of_mxfp4(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK", block)
    compare(write_gpt_oss(tmp_path / "blocks", published()[0], **MXFP4))


@pytest.mark.parametrize("block", [1000, 1 << 20])
@pytest.mark.parametrize("kind", [*reference.SIZES, "F16"])
def test_gguf_files(kind: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "BLOCK", block)
    compare(random_gguf.write(tmp_path / "a.gguf", random_gguf.only(kind)))


@pytest.mark.parametrize("kind", reference.SIZES)
def test_values_of_blocks(kind: str, tmp_path: Path) -> None:
    with opened(random_gguf.write(tmp_path / "a.gguf", random_gguf.only(kind))) as (outline, weights):
        source = outline.sources["model.layers.1.mlp.down_proj"]
        one = outline.stream(source)
        got = np.concatenate([one.values(block, 0) for block in one.blocks()])
        layer = weights.linear(source.name, source.shape)
        np.testing.assert_array_equal(got, reference.dequantize(reference.Weight(layer.blocks, kind)))


@pytest.mark.parametrize("name", ["qwen3_5_moe_mxfp4", "qwen3_5_moe_nvfp4", "qwen3_moe"])
def test_values(name: str, tmp_path: Path) -> None:
    with opened(write_mlx((MODELS | FP_MODELS)[name], tmp_path / "mlx")) as (outline, weights):
        path = next(path for path in outline.sources if path.endswith(".switch_mlp.up_proj"))
        source = outline.sources[path]
        one = outline.stream(source, stacked=True)
        got = np.concatenate([one.values(block, 1) for block in one.blocks(1)])
        layer = weights.experts(path, source.shape)
        if source.format.mode == "affine":
            scales, biases = layer.scales[1].astype(np.float32), layer.biases[1].astype(np.float32)
            want = ops.affine_dequantize(layer.packed[1], scales, biases, layer.bits, layer.group_size)
        else:
            want = ops.fp_dequantize(layer.packed[1], layer.scales[1], layer.mode)
        np.testing.assert_array_equal(got, want)
