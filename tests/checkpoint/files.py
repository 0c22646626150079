"""Files byte by byte, right and wrong ones."""

import json
import struct

import numpy as np

from kernels.random_blocks import FACTORS

TYPES = {
    "F32": 0, "F16": 1, "BF16": 30, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10,
    "Q3_K": 11, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14, "IQ4_NL": 20, "IQ4_XS": 23, "MXFP4": 39,
}  # fmt: skip
_KINDS = {
    "u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"), "i32": (5, "<i"),
    "f32": (6, "<f"), "bool": (7, "<B"), "u64": (10, "<Q"), "i64": (11, "<q"), "f64": (12, "<d"),
}  # fmt: skip


def safetensors(header, data=b"", length=None):
    """`header` is an object, or the bytes of one; `length` what the file says of it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, content):
    """A metadata value; kind "string", a number, or ["string"] or [number] for an array."""
    if isinstance(kind, list):
        items = b"".join(_bare(kind[0], item) for item in content)
        return struct.pack("<IIQ", 9, _code(kind[0]), len(content)) + items
    return struct.pack("<I", _code(kind)) + _bare(kind, content)


def _code(kind):
    return 8 if kind == "string" else _KINDS[kind][0]


def _bare(kind, content):
    return string(content) if kind == "string" else struct.pack(_KINDS[kind][1], content)


def tensor_info(name, shape, code, offset):
    return string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], code, offset)


def gguf(metadata, tensors=None, alignment=32, version=3):
    """metadata: key -> (kind, content). tensors: name -> (type, shape, bytes)."""
    return b"".join(gguf_parts(metadata, tensors, alignment, version))


def gguf_parts(metadata, tensors=None, alignment=32, version=3):
    """What `gguf` puts together; the content of a tensor may be an array too."""
    infos, end, data = b"", 0, []
    for name, (kind, shape, content) in (tensors or {}).items():
        gap = bytes(-end % alignment)
        infos += tensor_info(name, shape, TYPES[kind], end + len(gap))
        raw = content if isinstance(content, bytes) else content.reshape(-1).view(np.uint8)
        data += [gap, raw]
        end += len(gap) + len(raw)
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors or {}), len(metadata))
    head += b"".join(string(key) + value(*item) for key, item in metadata.items()) + infos
    return [head + bytes(-len(head) % alignment), *data]


def llama_metadata(architecture="llama", **more):
    """Of a model with 4 query and 2 key heads of 16, hidden 64."""
    return {
        "general.architecture": ("string", architecture),
        f"{architecture}.block_count": ("u32", 1),
        f"{architecture}.context_length": ("u32", 512),
        f"{architecture}.embedding_length": ("u32", 64),
        f"{architecture}.feed_forward_length": ("u32", 96),
        f"{architecture}.attention.head_count": ("u32", 4),
        f"{architecture}.attention.head_count_kv": ("u32", 2),
        f"{architecture}.attention.layer_norm_rms_epsilon": ("f32", 2**-17),
        f"{architecture}.rope.freq_base": ("f32", 50000.0),
        "tokenizer.ggml.model": ("string", "gpt2"),
        "tokenizer.ggml.tokens": (["string"], ["a", "b", "Ġc", "é"]),
        "tokenizer.ggml.token_type": (["i32"], [1, 1, 1, 3]),
        "tokenizer.ggml.merges": (["string"], ["a b"]),
        "tokenizer.ggml.eos_token_id": ("u32", 3),
    } | more


def blocks(rng, kind, size, shape):
    """Random bytes of blocks whose scales are finite."""
    data = rng.integers(0, 256, shape, np.uint8)
    view = data.reshape(-1, size)
    if kind == "MXFP4":
        view[:, 0] = rng.integers(120, 126, len(view))
    for offset in FACTORS[kind]:
        halves = rng.normal(0, 0.1, len(view)).astype(np.float16)
        view[:, offset : offset + 2] = halves.view(np.uint8).reshape(-1, 2)
    return data
