"""Write packed models with random weights whose routers choose as unevenly as those of real models.

Routers are random; the embeddings decide what they choose. The embedding of a token is the sum of noise, of a
vector that all tokens share and of one that the tokens of its topic share. A router gives each of these its
own experts, so that some are popular in all texts, others in a topic. With `text`, which changes its topic
every RUN tokens, two thirds of the experts that a token needs are among the 64 of 256 that a layer used last,
as published measurements of real models have it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from pyturbo.bench.peers import random_moe
from pyturbo.bench.peers.random_moe import Maker, Shape
from pyturbo.checkpoint import manifest as manifests
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.manifest import Manifest, PackedFile, PackedLayer, Resident, checksum, stride_of
from pyturbo.checkpoint.manifest_parts import lay_out
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.checkpoint.tensors import Progress
from pyturbo.convert.plan import Output
from pyturbo.convert.shards import CODES, safetensors_header
from pyturbo.ops import affine_quantize

COMMON, TOPIC = 0.45, 0.75  # deviations of the shared vectors; that of the noise is 1
TOPICS = 32
WORDS = 128  # tokens of a topic
RUN = 150  # tokens of a text on one topic

#: Qwen3.6-35B-A3B: 40 layers of 256 experts, 18.1 GB of them.
SHAPE = Shape(2048, 40, 248_320, 16, 2, 256, 16, 32, 128, 256, 8, 512, 512, context=32_768)

_PREFIX = "language_model.model."
_FORMAT = Format(bits=4, group_size=random_moe.GROUP_SIZE, mode="affine")

Array = NDArray[Any]


@dataclass(frozen=True)
class Records:
    """The bytes of one layer's file, with its place in the manifest."""

    layer: PackedLayer
    data: Array  # uint8 [experts, stride]


def text(tokens: int, seed: int = 0) -> NDArray[np.int64]:
    """Return token ids that stay on one topic for RUN tokens at a time."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, TOPICS, -(-tokens // RUN)).repeat(RUN)[:tokens]
    return topics * WORDS + rng.integers(0, WORDS, tokens)


def expert_bytes(shape: Shape) -> int:
    """Return the bytes of all records of a layer."""
    values = 3 * shape.hidden * shape.expert_inner
    page = manifests.PAGE
    return shape.experts * -(-(values // 2 + values // random_moe.GROUP_SIZE * 4) // page) * page


def fingerprint(shape: Shape) -> str:
    """Return what tells models of one shape from others; their weights are random, but always the same."""
    return hashlib.sha256(f"{shape} {COMMON} {TOPIC} {TOPICS} {WORDS}".encode()).hexdigest()


def write(folder: Path, shape: Shape, progress: Progress | None = None) -> None:
    """Write the model into a new folder."""
    (folder / "experts").mkdir(parents=True)
    config = json.dumps(random_moe.config(shape)).encode()
    (folder / "config.json").write_bytes(config)
    make = Maker(max(shape.experts * shape.expert_inner, shape.vocab) * shape.hidden // 2, centered=True)
    resident = _write_resident(folder / manifests.RESIDENT, make, shape)
    layers = []
    for i in range(shape.layers):
        records = _records(i, random_moe.experts(make, shape))
        records.data.tofile(folder / records.layer.file)
        layers.append(records.layer)
        if progress is not None:
            progress((i + 1) * records.data.nbytes, shape.layers * records.data.nbytes)
    files = {"config.json": PackedFile(len(config), checksum(config))}
    made = Manifest("qwen3_5_moe", {"fingerprint": fingerprint(shape)}, resident, files, tuple(layers))
    (folder / manifests.NAME).write_text(json.dumps(made.to_json()), encoding="utf-8")


@contextmanager
def stored(folder: Path) -> Iterator[dict[str, Array]]:
    """Give the tensors that `write` wrote, in the mapped files, by their names in an MLX checkpoint."""
    with open_checkpoint(folder) as checkpoint:
        assert isinstance(checkpoint, PackedCheckpoint)
        arrays = {name: checkpoint.view(name) for name in checkpoint if name.startswith("language_model.")}
        for layer, records in zip(checkpoint.manifest.layers, checkpoint.mappings()):
            for part in layer.parts:
                arrays[f"language_model.{layer.path}.{part.name}"] = layer.array(part, np.asarray(records))
        yield arrays


def _records(i: int, arrays: dict[str, Array]) -> Records:
    path = "mlp.switch_mlp."
    named = {name.removeprefix(path): array for name, array in arrays.items()}
    parts = lay_out((name, CODES[array.dtype], array.shape[1:]) for name, array in named.items())
    experts = len(next(iter(named.values())))
    formats = {name.partition(".")[0]: _FORMAT for name in named}
    file = f"experts/layer-{i:03}.bin"
    layer = PackedLayer(f"model.layers.{i}.{path[:-1]}", file, experts, stride_of(parts), parts, formats, ())
    data = np.zeros((experts, layer.stride), np.uint8)
    for part in parts:
        layer.array(part, data.reshape(-1))[...] = named[part.name]
    sums = tuple(checksum(record.data) for record in data)
    return Records(PackedLayer(**vars(layer) | {"checksums": sums}), data)


def _write_resident(path: Path, make: Maker, shape: Shape) -> Resident:
    make.linear("language_model.model.embed_tokens", shape.vocab, shape.hidden)
    make.linear("language_model.lm_head", shape.vocab, shape.hidden)
    make.norm("language_model.model.norm.weight", shape.hidden)
    arrays = make.take()
    _set_topics(arrays, shape)
    for i in range(shape.layers):
        own = random_moe.layer(make, shape, full=random_moe.has_attention(i))
        arrays |= {f"{_PREFIX}layers.{i}.{name}": array for name, array in own.items()}
    outputs = [Output(name, array.dtype, array.shape) for name, array in arrays.items()]
    header, offsets = safetensors_header(outputs, {}, 4096, padded=True)
    sums = {}
    with path.open("wb") as file:
        file.write(header)
        for name, array in arrays.items():
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            sums[name] = checksum(data.data)
            file.seek(offsets[name])
            file.write(data.data)
    return Resident(path.name, path.stat().st_size, checksum(header), sums)


def _set_topics(arrays: dict[str, Array], shape: Shape) -> None:
    """Give the tokens of `text` their embeddings."""
    rng = np.random.default_rng(1)
    common, topics = rng.standard_normal(shape.hidden), rng.standard_normal((TOPICS, 1, shape.hidden))
    noise = rng.standard_normal((TOPICS, WORDS, shape.hidden))
    rows = (noise + COMMON * common + TOPIC * topics).reshape(-1, shape.hidden)
    values = affine_quantize(rows.astype(np.float32), _FORMAT.bits, _FORMAT.group_size)
    for kind, array in zip(("weight", "scales", "biases"), values):
        name = f"{_PREFIX}embed_tokens.{kind}"
        whole = arrays[name].copy()
        whole[: len(rows)] = array.astype(ml_dtypes.bfloat16) if kind != "weight" else array
        arrays[name] = whole
