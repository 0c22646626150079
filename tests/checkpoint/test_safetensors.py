"""The header of safetensors files: what is read, and every way in which it can be wrong."""

import json

import ml_dtypes
import numpy as np
import pytest

from checkpoint.files import entry, safetensors
from pyturbo.checkpoint import safetensors as parser
from pyturbo.errors import FileError, FormatError


def opened(tmp_path, content):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    return parser.read_header(path)


@pytest.mark.parametrize("pad", range(16))
def test_tensors_are_read_at_any_alignment(tmp_path, pad):
    a, b = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(5, dtype=np.float16)
    c = np.arange(7).astype(ml_dtypes.bfloat16)
    header = {
        "__metadata__": {"format": "mlx", "pad": "x" * pad},
        "c": entry("BF16", [7], 34, 48),
        "a": entry("F32", [2, 3], 0, 24),
        "b": entry("F16", [5], 24, 34),
        "none": entry("U32", [0, 3], 24, 24),
        "scalar": entry("U8", [], 48, 49),
    }
    tensors, metadata = opened(
        tmp_path, safetensors(header, a.tobytes() + b.tobytes() + c.tobytes() + b"\x07")
    )
    assert metadata["format"] == "mlx"
    assert list(tensors) == ["a", "none", "b", "c", "scalar"]  # in the order of the data
    for name, want in {"a": a, "b": b, "c": c, "scalar": np.uint8(7), "none": np.empty((0, 3), "u4")}.items():
        info = tensors[name]
        got = info.file.read(info.array_dtype, info.array_shape, info.offset)
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype
        assert got.ctypes.data % 16 == 0 or not got.size
        if got.size:
            assert got.flags.writeable != info.mapped


@pytest.mark.parametrize("kind", parser.DTYPES)
def test_every_dtype(tmp_path, kind):
    size = parser.DTYPES[kind].itemsize
    tensors, _ = opened(tmp_path, safetensors({"t": entry(kind, [3], 0, 3 * size)}, bytes(3 * size)))
    assert tensors["t"].array_dtype.itemsize == size


GOOD = entry("F32", [2], 0, 8)

DAMAGED = {
    "empty": (b"", "8 bytes of header length"),
    "short": (b"\x01\0\0", "8 bytes of header length"),
    "header beyond the file": (safetensors({"t": GOOD}, bytes(8), length=10_000), "header length"),
    "header of 2^64": (safetensors({"t": GOOD}, bytes(8), length=2**64 - 1), "header length"),
    "not JSON": (safetensors(b"{'t'"), "not valid JSON"),
    "not UTF-8": (safetensors(b'{"\xff": 1}'), "not valid JSON"),
    "not an object": (safetensors(b"[]"), "expected a JSON object"),
    "too deep": (safetensors(b"[" * 200_000), "nested too deeply"),
    "NaN": (safetensors(b'{"t": NaN}'), "NaN is not a number"),
    "a number of many digits": (safetensors(b'{"t": ' + b"9" * 5000 + b"}"), "not valid JSON"),
    "duplicate tensor": (safetensors(b'{"t": 1, "t": 2}'), "duplicate key 't'"),
    "duplicate field": (
        safetensors(b'{"t": {"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}'),
        "duplicate key 'dtype'",
    ),
    "metadata not text": (safetensors({"__metadata__": {"a": 1}}), "__metadata__"),
    "metadata not an object": (safetensors({"__metadata__": []}), "__metadata__"),
    "entry not an object": (safetensors({"t": 3}), "'t': expected dtype, shape"),
    "field missing": (safetensors({"t": {"dtype": "F32", "shape": [0]}}), "'t': expected dtype, shape"),
    "field too many": (safetensors({"t": GOOD | {"x": 1}}, bytes(8)), "'t': expected dtype, shape"),
    "unknown dtype": (safetensors({"t": entry("F4", [2], 0, 1)}, b"\0"), "'t': dtype: expected one of"),
    "dtype not text": (safetensors({"t": entry(["F32"], [2], 0, 8)}, bytes(8)), "'t': dtype"),
    "wrong dtype": (safetensors({"t": entry("F16", [2], 0, 8)}, bytes(8)), "'t': expected 4 bytes"),
    "wrong shape": (safetensors({"t": entry("F32", [3], 0, 8)}, bytes(8)), "'t': expected 12 bytes"),
    "negative size": (safetensors({"t": entry("F32", [-2], 0, 8)}, bytes(8)), "'t': shape"),
    "size a fraction": (safetensors({"t": entry("F32", [2.0], 0, 8)}, bytes(8)), "'t': shape"),
    "size a boolean": (safetensors({"t": entry("F32", [True, 2], 0, 8)}, bytes(8)), "'t': shape"),
    "shape not a list": (safetensors({"t": entry("F32", 2, 0, 8)}, bytes(8)), "'t': shape"),
    "many axes": (safetensors({"t": entry("F32", [1] * 100, 0, 4)}, bytes(4)), "'t': shape"),
    "overflowing product": (safetensors({"t": entry("U8", [2**32, 2**32], 0, 0)}), "'t': shape"),
    "overflow beside zero": (safetensors({"t": entry("F32", [0, 2**62, 2**62], 0, 0)}), "'t': shape"),
    "huge size": (safetensors({"t": entry("U8", [10**400], 0, 0)}), "'t': shape"),
    "offsets reversed": (safetensors({"t": entry("F32", [2], 8, 0)}, bytes(8)), "'t': data_offsets"),
    "offset negative": (safetensors({"t": entry("F32", [2], -8, 0)}, bytes(8)), "'t': data_offsets"),
    "offsets three": (
        safetensors({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8, 8]}}, bytes(8)),
        "'t': data_offsets",
    ),
    "truncated": (safetensors({"t": GOOD}, bytes(7)), "'t': data_offsets: expected at most 7"),
    "beyond the file": (safetensors({"t": entry("F32", [2], 2**60, 2**60 + 8)}), "'t': data_offsets"),
    "overlap": (
        safetensors({"t": GOOD, "u": entry("F32", [2], 4, 12)}, bytes(12)),
        "'u': expected data from byte .*, after 't'",
    ),
    "the same bytes": (safetensors({"t": GOOD, "u": GOOD}, bytes(8)), "from byte .* on, after 't'"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damage_is_named(tmp_path, damage):
    content, message = DAMAGED[damage]
    with pytest.raises(FormatError, match=message) as caught:
        opened(tmp_path, content)
    assert "model.safetensors" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_hostile_names_are_short_and_printable_in_messages(tmp_path):
    name = "\ud800\x1b[31m" + "n" * 10_000
    with pytest.raises(FormatError) as caught:
        opened(tmp_path, safetensors(json.dumps({name: 1}).encode()))
    text = str(caught.value)
    assert len(text) < 1000
    assert text.isprintable()


def test_file_that_shrinks_after_it_was_opened(tmp_path):
    header = {"__metadata__": {"p": ""}, "t": entry("U8", [100_000], 0, 100_000)}
    while len(safetensors(header)) % 16 == 0:
        header["__metadata__"]["p"] += "x"
    tensors, _ = opened(tmp_path, safetensors(header, bytes(100_000)))
    info = tensors["t"]
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 50)
    with pytest.raises(FormatError, match="ends at byte"):
        info.file.read(info.array_dtype, info.array_shape, info.offset)


def test_not_a_regular_file(tmp_path):
    import os

    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(FileError, match="regular file"):
        parser.read_header(tmp_path / "model.safetensors")
