"""What a packed folder holds, read without the code that loads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pyturbo import models
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.directory import DirectoryCheckpoint
from pyturbo.checkpoint.manifest import Manifest
from pyturbo.formats import Linear
from pyturbo.layers.moe import Experts


def same(got: np.ndarray, want: np.ndarray, name: str) -> None:
    assert (got.dtype, got.shape) == (want.dtype, want.shape), name
    assert got.tobytes() == want.tobytes(), name


def linear_arrays(layer: Linear) -> dict[str, np.ndarray]:
    """The arrays of a layer by the names of their parts."""
    names = {"packed": "weight", "blocks": "weight"}
    found = {name: value for name, value in vars(layer).items() if isinstance(value, np.ndarray)}
    return {names.get(name, name): array for name, array in found.items()}


def expert_layers(network: object) -> list[Experts]:
    return [layer.mlp.experts for layer in network.layers if hasattr(layer.mlp, "experts")]


def compare_with_loading(source: Path, folder: Path, model_type: str, experts: bool = True) -> None:
    """Compare every array with what loading the source gives; `experts`: also those of records."""
    manifest = Manifest.read(folder)
    with open_checkpoint(source) as checkpoint:
        network = models.build(checkpoint)
        weights = checkpoint.weights(models.layout(model_type))
        _, outline = models.outline(checkpoint)
        if experts:
            compare_experts(folder, manifest, expert_layers(network))
        packed = DirectoryCheckpoint(folder)
        got = packed.weights(models.layout(model_type))
        for one in outline.sources.values():
            if ".switch_mlp." in one.name or ".experts." in one.name:
                continue
            if not one.matrix:
                same(got.tensor(one.name), weights.tensor(one.name), one.name)
                continue
            ask = "experts" if len(one.shape) == 3 else "linear"
            found, want = (linear_arrays(getattr(of, ask)(one.name, one.shape)) for of in (got, weights))
            assert found.keys() == want.keys()
            for name, array in want.items():
                same(found[name], array, f"{one.name}.{name}")
        assert got.unused() == []
        assert got.tied == weights.tied


def compare_experts(folder: Path, manifest: Manifest, found: list[Experts]) -> None:
    assert len(manifest.layers) == len(found)
    for layer, experts in zip(manifest.layers, found):
        records = np.fromfile(folder / layer.file, np.uint8)
        parts = {part.name: layer.array(part, records) for part in layer.parts}
        want = {
            f"{name}_proj.{part}": array
            for name in ("gate", "up", "down")
            for part, array in linear_arrays(getattr(experts, name)).items()
        }
        assert parts.keys() == want.keys()
        for name, array in want.items():
            same(parts[name], array, f"{layer.path}.{name}")
