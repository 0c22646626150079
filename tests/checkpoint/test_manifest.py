"""packed.json: what is read, and every way in which it can be wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pyturbo.checkpoint.config import Format
from pyturbo.checkpoint.manifest import (
    NAME,
    PAGE,
    Manifest,
    PackedFile,
    PackedLayer,
    Part,
    Resident,
    checksum,
)
from pyturbo.errors import FormatError

HIDDEN, INNER, EXPERTS = 96, 64, 3
ITEM = {"U32": 4, "U8": 1, "F32": 4, "F16": 2, "BF16": 2}
AFFINE = Format(bits=3, group_size=32, mode="affine")
NVFP4 = Format(bits=4, group_size=16, mode="nvfp4")
Q5_0 = Format(bits=5, group_size=32, mode="Q5_0")


def arrays(form: Format | None, out_dim: int, in_dim: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    if form is None:
        return {"weight": ("BF16", (out_dim, in_dim)), "bias": ("F32", (out_dim,))}
    if form.mode == "Q5_0":
        return {"weight": ("U8", (out_dim, in_dim // 32 * 22))}
    words = ("U32", (out_dim, in_dim * form.bits // 32))
    groups = (out_dim, in_dim // form.group_size)
    if form.mode == "affine":
        return {"weight": words, "scales": ("F16", groups), "biases": ("F16", groups)}
    return {"weight": words, "scales": ("U8", groups), "global_scale": ("F32", ())}


def layer(number: int, forms: tuple[Format | None, ...]) -> PackedLayer:
    parts, end = [], 0
    sizes = ((INNER, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER))
    for name, form, size in zip(("gate_proj", "up_proj", "down_proj"), forms, sizes):
        for kind, (dtype, shape) in arrays(form, *size).items():
            nbytes = int(np.prod(shape)) * ITEM[dtype]
            parts.append(Part(f"{name}.{kind}", dtype, shape, end, nbytes))
            end += -(-nbytes // 64) * 64
    stride = -(-end // PAGE) * PAGE
    return PackedLayer(
        f"model.layers.{number}.mlp.switch_mlp",
        f"experts/layer-{number:03}.bin",
        EXPERTS,
        stride,
        tuple(parts),
        dict(zip(("gate_proj", "up_proj", "down_proj"), forms)),
        tuple(f"{number:08x}{expert:08x}" for expert in range(EXPERTS)),
    )


MANIFEST = Manifest(
    "qwen3_moe",
    {"fingerprint": "0f" * 32, "expert_bits": 3},
    Resident("model.safetensors", 4096, "1" * 16, {"model.norm.weight": "2" * 16}),
    {"config.json": PackedFile(2, checksum(b"{}"))},
    (layer(1, (AFFINE, AFFINE, None)), layer(4, (NVFP4, NVFP4, AFFINE)), layer(5, (Q5_0, Q5_0, Q5_0))),
)


def seal(entries: dict[str, Any]) -> bytes:
    """The text of a manifest whose checksum is right, as docs/packed-format.md states it."""
    rest = {key: value for key, value in entries.items() if key != "checksum"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return json.dumps(rest | {"checksum": checksum(text.encode())}).encode()


def write(folder: Path, data: bytes | None = None) -> Path:
    (folder / "experts").mkdir()
    for name, size in MANIFEST.sizes().items():
        with (folder / name).open("wb") as file:
            file.truncate(size)
    (folder / NAME).write_bytes(seal(MANIFEST.to_json()) if data is None else data)
    return folder


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert Manifest.read(write(tmp_path)) == MANIFEST
    assert seal(MANIFEST.to_json()) == json.dumps(MANIFEST.to_json()).encode()
    assert MANIFEST.layers[0].part("up_proj.biases").dtype == "F16"
    assert MANIFEST.layers[0].part("up_proj.bias") is None


def test_parts_are_views_of_records() -> None:
    one = MANIFEST.layers[1]
    records = np.arange(one.nbytes, dtype=np.uint32).astype(np.uint8)
    for part in one.parts:
        view = one.array(part, records)
        assert view.shape == (EXPERTS, *part.shape)
        assert np.shares_memory(view, records)
        for expert in range(EXPERTS):
            start = expert * one.stride + part.offset
            assert view[expert].tobytes() == records[start : start + part.nbytes].tobytes()
    single = one.array(one.parts[0], records[one.stride : 2 * one.stride], count=1)
    assert single[0].tobytes() == one.array(one.parts[0], records)[1].tobytes()


def place(path: str) -> Callable[[dict[str, Any]], tuple[Any, Any]]:
    """The object that holds the entry at a path such as "layers.0.parts.2.offset", and its key there."""
    steps = [int(step) if step.isdigit() else step for step in path.split("/")]

    def find(entries: dict[str, Any]) -> tuple[Any, Any]:
        value: Any = entries
        for step in steps[:-1]:
            value = value[step]
        return value, steps[-1]

    return find


HOSTILE: list[tuple[str, Any, str]] = [
    ("format", "gguf", "format: expected 'pyturbo-packed', got 'gguf'"),
    ("version", 2, "version: expected 1, .* got 2"),
    ("version", True, "version: expected 1, .* got True"),
    ("version", 1.0, "version: expected 1, .* got 1.0"),
    ("model_type", "../x", "model_type: expected a name"),
    ("source", None, "source: expected an object, got None"),
    ("source/fingerprint", "0f", "source: fingerprint: expected 64 hexadecimal digits, got '0f'"),
    ("resident/file", "../../etc/passwd", "resident: file: expected 'model.safetensors', got"),
    ("resident/file", "/model.safetensors", "resident: file: expected 'model.safetensors', got"),
    ("resident/bytes", -1, "resident: bytes: expected a number from 8 on, got -1"),
    ("resident/bytes", 2**80, "resident: bytes: expected a number from 8 on"),
    ("resident/header", "X" * 16, "resident: header: expected 16 hexadecimal digits"),
    ("resident/checksums/a\n", 3, r"checksums: 'a\\n': expected 16 hexadecimal digits, got 3"),
    ("files", {}, "files: expected an entry 'config.json'"),
    ("files/..", {"bytes": 1, "checksum": "0" * 16}, "expected the name of another file, got '..'"),
    ("files/a\\/b", {}, "expected the name of another file, got"),
    ("files/packed.json", {}, "expected the name of another file, got 'packed.json'"),
    ("files/config.json/bytes", 2.5, "config.json: bytes: expected a number from 0 on, got 2.5"),
    ("layers", [], "layers: expected at least one layer with experts"),
    ("layers", {}, "layers: expected a list, got an object"),
    ("layers/0", 7, r"layers\[0\]: expected an object, got 7"),
    ("layers/0/path", "model.layers.4.mlp.switch_mlp", "layers: path: 'model.layers.4.* occurs twice"),
    ("layers/0/path", "lm_head", "path: expected a path such as"),
    ("layers/0/file", "experts/layer-004.bin", "layers: file: 'experts/layer-004.bin': occurs twice"),
    ("layers/0/file", "experts/../layer-004.bin", "file: expected a name such as"),
    ("layers/0/file", "/experts/layer-004.bin", "file: expected a name such as"),
    ("layers/0/file", "experts/layer-004.bin\n", "file: expected a name such as"),
    ("layers/0/experts", 0, "experts: expected a number from 1 on, got 0"),
    ("layers/0/experts", 4, "checksums: expected 4, got 3"),
    ("layers/0/stride", PAGE + 64, f"stride: expected a multiple of {PAGE}, got {PAGE + 64}"),
    ("layers/0/stride", 0, f"stride: expected a number from {PAGE} on, got 0"),
    ("layers/0/stride", PAGE, rf"expected an end within the stride of {PAGE}, got \d+"),
    ("layers/0/checksums/1", "0" * 15, "checksums: expected 16 hexadecimal digits, got '0+'"),
    ("layers/0/checksums", None, "checksums: expected a list, got None"),
    ("layers/0/parts", [], "gate_proj.weight: expected a matrix, got none"),
    ("layers/0/parts/0/name", "gate_proj.codes", "name: expected a name such as"),
    ("layers/0/parts/0/name", "up_proj.weight", "parts: expected each part once"),
    ("layers/0/parts/0/dtype", "F64", "gate_proj.weight: dtype: expected one of F32, F16, BF16, U32, U8"),
    ("layers/0/parts/0/dtype", "F32", r"gate_proj.weight: expected U32 \[64, 9\], got F32 \[64, 9\]"),
    ("layers/0/parts/0/shape", [64, 9, 1], "shape: expected at most two sizes"),
    ("layers/0/parts/0/shape", [64, -9], "shape: expected sizes from 1 on"),
    ("layers/0/parts/0/shape", [576], "gate_proj.weight: expected a matrix"),
    ("layers/0/parts/0/shape", [32, 18], r"gate_proj.scales: expected F32 \[32, 6\] .*, got F16 \[64, 3\]"),
    ("layers/0/parts/0/shape", [65, 9], "gate_proj.weight: bytes: expected 2340, got 2304"),
    ("layers/0/parts/0/bytes", 2303, "gate_proj.weight: bytes: expected 2304, got 2303"),
    ("layers/0/parts/1/offset", 2300, "gate_proj.scales: offset: expected a multiple of 64, got 2300"),
    ("layers/0/parts/1/offset", 2240, "offset: expected 2304 or more, after gate_proj.weight, got 2240"),
    ("layers/0/parts/7/offset", 2**60, "expected an end within the stride"),
    ("layers/0/parts/1/dtype", "BF16", r"gate_proj.biases: expected BF16 \[64, 3\], got F16 \[64, 3\]"),
    ("layers/0/formats", {}, "formats: expected an entry for each of gate_proj, up_proj, down_proj"),
    ("layers/0/formats/gate_proj", None, r"gate_proj.weight: expected F32 \[64, 9\] or .*, got U32"),
    ("layers/0/formats/gate_proj", {"bits": 3}, "gate_proj: expected null, or mode, bits and group_size"),
    ("layers/0/formats/gate_proj/bits", 7, "formats: gate_proj: expected a known format, got 7 bits"),
    ("layers/0/formats/gate_proj/bits", 4, r"gate_proj.weight: expected U32 \[64, 8\], got U32 \[64, 9\]"),
    ("layers/0/formats/gate_proj/mode", "q4", "gate_proj: mode: expected one of affine"),
    ("layers/0/formats/gate_proj/mode", "mxfp4", "formats: gate_proj: expected a known format, got mxfp4"),
    ("layers/0/formats/down_proj", {"mode": "affine", "bits": 4, "group_size": 64}, "down_proj.weight: expe"),
    ("layers/0/formats/gate_proj/mode", "Q4_K", "formats: gate_proj: expected a known format, got Q4_K"),
    ("layers/2/formats/up_proj/mode", "Q4_0", "formats: up_proj: expected a known format, got Q4_0"),
    ("layers/2/parts/0/dtype", "F16", r"gate_proj.weight: bytes: expected 8448, got 4224"),
    ("layers/2/parts/0/shape", [32, 132], "expected gate_proj and up_proj"),
    ("layers/2/parts/0/shape", [96, 44], "expected gate_proj and up_proj"),
    ("layers/1/formats/up_proj/mode", "affine", "formats: up_proj: expected a known format, got 4 bits"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "message"), HOSTILE, ids=[case[0] for case in HOSTILE])
def test_a_hostile_manifest_is_refused(path: str, value: Any, message: str, tmp_path: Path) -> None:
    entries = copy.deepcopy(MANIFEST.to_json())
    holder, key = place(path)(entries) if "\\" not in path else (entries["files"], "a/b")
    holder[key] = value
    with pytest.raises(FormatError, match=f"packed.json: .*{message}"):
        Manifest.read(write(tmp_path, seal(entries)))


@pytest.mark.parametrize(
    "name", ["gate_proj.scales", "gate_proj.biases", "up_proj.weight", "down_proj.weight"]
)
def test_a_part_that_is_missing(name: str) -> None:
    entries = copy.deepcopy(MANIFEST.to_json())
    entries["layers"][0]["parts"] = [part for part in entries["layers"][0]["parts"] if part["name"] != name]
    with pytest.raises(FormatError, match=f"switch_mlp: {name}: expected .*, got none"):
        Manifest.parse(seal(entries), "packed.json")


def test_projections_must_fit_each_other() -> None:
    entries = copy.deepcopy(MANIFEST.to_json())
    parts = entries["layers"][0]["parts"]
    parts[6] |= {"shape": [INNER, HIDDEN]}
    parts[7] |= {"shape": [INNER], "bytes": INNER * 4}
    with pytest.raises(FormatError, match=r"got \[64, 96\], \[64, 96\], \[64, 96\]"):
        Manifest.parse(seal(entries), "packed.json")


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8"])
def test_only_nvfp4_has_a_global_scale(mode: str) -> None:
    entries = copy.deepcopy(MANIFEST.to_json())
    entries["layers"][1]["formats"]["gate_proj"] = {
        "mode": mode,
        "bits": 4 if mode == "mxfp4" else 8,
        "group_size": 32,
    }
    with pytest.raises(FormatError, match=r"gate_proj\.(weight|scales|global_scale): expected"):
        Manifest.parse(seal(entries), "packed.json")


def test_every_changed_character_is_found() -> None:
    text = json.dumps(MANIFEST.to_json()).encode()
    for i in range(len(text)):
        for bit in (0x01, 0x20):
            damaged = bytearray(text)
            damaged[i] ^= bit
            with pytest.raises(FormatError):
                Manifest.parse(bytes(damaged), "packed.json")


@pytest.mark.parametrize("name", MANIFEST.sizes())
def test_sizes_of_files(name: str, tmp_path: Path) -> None:
    folder = write(tmp_path)
    size = (folder / name).stat().st_size
    (folder / name).write_bytes(bytes(size - 1))
    with pytest.raises(FormatError, match=f"{name}: expected {size} bytes, got {size - 1}"):
        Manifest.read(folder)
    (folder / name).unlink()
    with pytest.raises(FormatError, match=f"{name}: expected {size} bytes, got none: No such file"):
        Manifest.read(folder)


def test_a_manifest_that_is_too_large(tmp_path: Path) -> None:
    folder = write(tmp_path)
    with (folder / NAME).open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(FormatError, match="expected at most 100000000 bytes of JSON"):
        Manifest.read(folder)
