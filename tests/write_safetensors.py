"""Writes safetensors files as the two ecosystems do: ``pt`` with an aligned header, ``mlx`` without."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np

CODES = {
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    np.dtype(ml_dtypes.bfloat16): "BF16",
    np.dtype(np.uint32): "U32",
    np.dtype(np.uint8): "U8",
}


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray], producer: str) -> None:
    """producer: "pt" pads the header to 8 bytes; "mlx" does not, and orders data otherwise than names."""
    order = sorted(tensors)
    if producer == "mlx":
        order.sort(key=lambda name: name[::-1])
    entries: dict[str, object] = {}
    end = 0
    for name in order:
        start, end = end, end + tensors[name].nbytes
        entries[name] = {
            "dtype": CODES[tensors[name].dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [start, end],
        }
    header = {"__metadata__": {"format": producer}, **dict(sorted(entries.items()))}
    text = json.dumps(header, separators=(",", ":")).encode()
    if producer == "pt":
        text += b" " * (-len(text) % 8)
    elif len(text) % 2 == 0:
        text += b" "  # so that no tensor is aligned
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(np.ascontiguousarray(tensors[name]).tobytes())


def write_shards(folder: Path, tensors: Mapping[str, np.ndarray], producer: str, shards: int) -> None:
    """``model.safetensors``, or `shards` files of consecutive names with their index."""
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, producer)
        return
    names = sorted(tensors)
    index: dict[str, str] = {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        chosen = names[i * len(names) // shards : (i + 1) * len(names) // shards]
        part = {name: tensors[name] for name in chosen}
        write_safetensors(folder / file, part, producer)
        index |= dict.fromkeys(part, file)
    total = sum(array.nbytes for array in tensors.values())
    text = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=2)
    (folder / "model.safetensors.index.json").write_text(text)
