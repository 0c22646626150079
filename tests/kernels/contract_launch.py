"""Launches of any kernel, put together from its contract: sizes by the names of arguments, buffers by shapes.

Kernels use one vocabulary for their arguments, so one table of sizes serves nearly all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import pyturbo

Values = dict[str, Any]
SPARE = 64  # bytes that every buffer is longer

DTYPES = {
    "float": np.float32, "half": np.float16, "bfloat": ml_dtypes.bfloat16, "int": np.int32,
    "uint": np.uint32, "ulong": np.uint64, "uchar": np.uint8,
}  # fmt: skip

# Program-scope constants that shapes name.
CONSTANTS = {"kBlockWords": 16384, "kColumns": 32}

# Values by the name of an argument, in an order in which each may depend on those before it.
SIZES: dict[str, float | Callable[[Values], float]] = {
    "tokens": 5, "count": 9, "rows": 9, "choices": 9, "vocab": 11, "hidden": 96, "group_size": 32, "k": 3,
    "x_rows": 3, "in": 96, "out": 37, "experts": 6, "context": 45, "capacity": 50, "heads": 6, "kv_heads": 2,
    "dim": 64, "scale": 0.2, "blocks": 3, "width": 40, "position": 4, "channels": 70, "k_heads": 2,
    "v_heads": 4, "v_dim": 24, "rank": 80, "rope": 24, "nope": 40, "stride": 45, "first": 3, "repeat": 2,
    "sets": 3, "kept": 2, "eps": 1e-5, "pairs": 24, "batch": 2, "ring_start": 3, "threshold": 0.01,
    "alpha": 1.702, "limit": 7.0, "recent": 16,
    "matrices": lambda v: 4 if v["by_slot"] else v["experts"],
    "weight_stride": lambda v: v["out"] * v["in"] + 8,
    "bias_stride": lambda v: v["dim"] + 3,
    "global_stride": 7,
    "window": lambda v: 30 if v.get("causal", True) else 0,
    "softcap": lambda v: 5.0 if v.get("causal", True) else 0.0,
    "packed_stride": lambda v: v["out"] * v["in"] // 32 * v["bits"] + 8,
    "scales_stride": lambda v: v["out"] * v["in"] // v.get("group", 32) + 4,
    "biases_stride": lambda v: v["out"] * v["in"] // 32 + 12,
    "blocks_stride": lambda v: (v["out"] * v["in"] // v["block"] + 4) * v["block_bytes"],
    "qk_stride": lambda v: v["k_heads"] * v.get("columns", v.get("tiles")) * 32 + 7,
    "v_stride": lambda v: v["v_heads"] * v["v_dim"] + 5,
}  # fmt: skip

OTHER_SIZES: dict[str, Values] = {
    "gather_rows": {"x_rows": 7},
    "qk_norm": {"stride": 400},
    "mla_dense_project_transposed": {"in": 37, "out": 96},
    "mla_affine_project_transposed": {"in": 37, "out": 96},
    "mla_fp_project_transposed": {"in": 37, "out": 96},
    "mla_gguf_project_transposed": {"in": 37, "out": 512},
}

# Function constants that are not booleans.
WIDTHS = {"bits": 4, "key_bits": 3, "value_bits": 4, "row_teams": 4}


@dataclass
class Launch:
    name: str
    constants: Values
    values: Values
    arguments: list[tuple[str, Any]]  # name and array, value or None
    outputs: list[str]

    def run(self, device: pyturbo.Device) -> dict[str, np.ndarray]:
        buffers = {}
        for name, value in self.arguments:
            if isinstance(value, np.ndarray):
                buffers[name] = device.empty(value.shape, value.dtype)
                buffers[name].write(value)
        kernel = device.kernel(self.name, self.constants)
        kernel(*(buffers.get(name, value) for name, value in self.arguments))
        return {name: buffers[name].numpy().copy() for name in self.outputs if name in buffers}


def launches(function: str) -> Iterator[Launch]:
    """One launch of each instance with all function constants, and one without those that may be off.

    That is, booleans are false and others undefined. Bodies do not round operands, so `bf16_operands` is off.
    """
    instances = [kernel for kernel in pyturbo.kernels().values() if kernel["function"] == function]
    for kernel in instances:
        constants = [c for c in kernel["constants"] if c["name"] != "bf16_operands"]
        required = [c for c in constants if c["required"]]
        yield _launch({**kernel, "constants": constants}, on=True)
        if required != constants or any(c["type"] == "bool" for c in required):
            yield _launch({**kernel, "constants": required}, on=False)


def _launch(kernel: Values, *, on: bool) -> Launch:
    rng = np.random.default_rng(7)
    constants = {c["name"]: on if c["type"] == "bool" else WIDTHS[c["name"]] for c in kernel["constants"]}
    parameters = {name: int(text) for name, text in kernel["template"].items() if text.isdigit()}
    width = {"in": 512, "hidden": 512} if "block" in parameters else {}  # whole blocks of GGUF
    others = {**width, **OTHER_SIZES.get(kernel["function"], {})}
    values = {**CONSTANTS, **constants, **parameters, **others}
    wanted = [a["name"] for a in kernel["arguments"] if a["kind"] == "value"]
    for name in (name for name in SIZES if name in wanted and name not in values):
        size = SIZES[name]
        values[name] = size(values) if callable(size) else size
    arguments: list[tuple[str, Any]] = []
    for a in kernel["arguments"]:
        if a["condition"] and not constants[a["condition"]]:
            arguments.append((a["name"], None))
        elif a["kind"] == "value":
            arguments.append((a["name"], values[a["name"]]))
        else:
            arguments.append((a["name"], _buffer(rng, kernel, a, values)))
    outputs = [a["name"] for a in kernel["arguments"] if a["access"] == "write" and a["kind"] == "buffer"]
    return Launch(kernel["name"], constants, values, arguments, outputs)


def _buffer(rng: np.random.Generator, kernel: Values, argument: Values, values: Values) -> np.ndarray:
    dtype = np.dtype(DTYPES[re.sub(r"\b(device|const|constant)\b|[*& ]", "", argument["type"])])
    count = math.prod(_extent(text, values) for text in argument["shape"]) + SPARE // dtype.itemsize
    name = argument["name"]
    if dtype.kind in "iu":
        return _integers(rng, name, dtype, count, values)
    data = rng.standard_normal(count)
    compressed = "turbo" in kernel["function"]
    if name in ("l", "p", "g", "beta") or (compressed and name.endswith("scales")):
        data = rng.uniform(0.1, 1, count)
    if kernel["function"].startswith("delta_net") and name in ("q", "k"):
        data /= np.sqrt(32 * values.get("columns", values.get("tiles")))
    return data.astype(dtype)


def _extent(text: str, values: Values) -> int:
    """Evaluate an extent of a shape: integer arithmetic, and `in`, which is a keyword here."""
    expression = re.sub(r"\bin\b", "inputs", text.replace("/", "//"))
    scope = {"ceil_div": lambda a, b: -(-a // b), "inputs": values.get("in"), "__builtins__": {}}
    return int(eval(expression, scope, values))


def _integers(
    rng: np.random.Generator, name: str, dtype: np.dtype[Any], count: int, values: Values
) -> np.ndarray:
    """Make indices of which some are out of range, or codes of which none is NaN."""
    rows = values.get("rows", values.get("count"))
    if name == "offsets":
        return np.sort(rng.integers(0, rows + 1, count)).astype(dtype)
    if name == "slots":  # some name no matrix, some are negative
        return rng.integers(-1, values.get("matrices", 4) + 1, count).astype(dtype)
    if name == "order":
        return rng.integers(-1, rows + 1, count).astype(dtype)
    if name == "recent_keys":  # exact rows of the last 11 keys
        keys = np.arange(values.get("context", count) - 11, values.get("context", count))
        numbers = np.zeros(count, dtype)
        numbers[keys % values["recent"]] = keys
        return numbers
    if name.endswith("scales"):  # of small floats: powers of two near 1, as E4M3 or as E8M0
        e4m3, e8m0 = rng.integers(5, 9, count) * 8, rng.integers(125, 129, count)
        return (e4m3 if values["group"] == 16 else e8m0).astype(dtype)
    if "block_bytes" in values and dtype == np.uint8:
        data = rng.integers(0, 256, count, np.uint8) & 0xBF  # no 16-bit factor reaches 2
        if values["block_bytes"] == 17:  # MXFP4, whose blocks start with an exponent
            data[::17] = rng.integers(125, 129, data[::17].size)
        return data
    if dtype == np.int32:
        end = values.get("vocab") or values.get("experts") or values.get("x_rows", 0) * 2 or values["tokens"]
        return rng.integers(-1, end + 1, count).astype(dtype)
    words = rng.integers(0, 1 << 32, count, np.uint32)
    return words & np.uint32(0xF7F7F7F7) if "group" in values and values.get("bits") == 8 else words
