"""Rows of a compressed cache: rotation, encoding and decoding.

A cache of one layer is a TurboRows for its keys and one for its values. Vectors enter as float32
[tokens, kv_heads, dim], or [batch, tokens, kv_heads, dim] for independent sequences, with a dim of
``pyturbo.turbo_codec.DIMS``.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pyturbo import turbo_codec
from pyturbo._device import Device
from pyturbo._dtypes import SUFFIXES
from pyturbo.errors import ArgumentError
from pyturbo.ops._checks import flag, integer, stored_weight, values
from pyturbo.ops._run import (
    Array,
    DeviceLike,
    Target,
    as_array,
    changeable,
    empty,
    launch,
    operand,
    resolve,
    result,
    write_back,
)

_ARRAYS = ("packed", "scales", "means", "recent", "recent_keys")  # of TurboRows
_MOST_RECENT = 32  # kMaxRecent of the kernels


class TurboRows(NamedTuple):
    """Encoded vectors: a stream of words, a scale, and optionally a mean for each.

    There may be exact rows of the vectors that were appended last: row j % rows is that of position j as
    long as recent_keys has j there.
    """

    packed: Any  # uint32 [kv_heads, capacity, words], or with a leading batch
    scales: Any  # float16 [kv_heads, capacity]
    bits: int
    dim: int
    means: Any = None  # float16 [kv_heads, capacity]
    recent: Any = None  # float16 [kv_heads, rows, dim], rotated
    recent_keys: Any = None  # uint32 [rows]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """batch, kv_heads, capacity."""
        *batch, kv_heads, capacity = self.scales.shape
        return math.prod(batch), kv_heads, capacity

    @property
    def recent_rows(self) -> int:
        """How many exact rows there are."""
        return 0 if self.recent is None else int(self.recent.shape[-2])


def turbo_rows(
    capacity: int,
    kv_heads: int,
    dim: int,
    bits: int,
    *,
    batch: int | None = None,
    means: bool = False,
    recent: int = 0,
) -> TurboRows:
    """Return rows for `capacity` positions, all of them zero vectors, the last `recent` ones exact."""
    _check_codec("turbo_rows", dim, bits)
    sizes = {"kv_heads": kv_heads, "capacity": capacity}
    sizes = sizes if batch is None else {"batch": batch, **sizes}
    shape = tuple(integer("turbo_rows", name, value, most=2**31 - 1) for name, value in sizes.items())
    packed = np.zeros((*shape, turbo_codec.row_words(dim, bits)), np.uint32)
    kept = np.zeros(shape, np.float16) if flag("turbo_rows", "means", means) else None
    rows = TurboRows(packed, np.zeros(shape, np.float16), bits, dim, kept)
    if not (count := integer("turbo_rows", "recent", recent, most=_MOST_RECENT)):
        return rows
    exact = np.zeros((*shape[:-1], count, dim), np.float16)
    return rows._replace(recent=exact, recent_keys=np.zeros(count, np.uint32))


def hadamard(
    x: ArrayLike, signs: ArrayLike | None = None, inverse: bool = False, *, device: DeviceLike = None
) -> Array:
    """Return ``H (signs * x) / sqrt(dim)`` of each row of x [..., dim], or the inverse; signs default to 1.

    H is Sylvester's Hadamard matrix for powers of two. For 12 and 20 times a power of two, up to 512, it is
    the Kronecker product of a matrix of that order with Sylvester's.
    """
    op = "hadamard"
    x = _floats(op, "x", x)
    dim = x.shape[-1]
    if 512 % dim and (dim % 12 or 384 % dim) and (dim % 20 or 320 % dim):
        raise ArgumentError(
            f"{op}: x: expected rows of 1, 12 or 20 times a power of two, at most 512 values, got {dim}"
        )
    factors = None if signs is None else operand(op, "signs", signs, np.float32, (dim,))
    constants = {"has_signs": factors is not None, "inverse": flag(op, "inverse", inverse)}
    device = resolve(device)
    y = empty(device, x.shape, x.dtype)
    name = f"hadamard_{SUFFIXES[x.dtype]}"
    launch(device, name, x, factors, y, x.size // dim, dim, constants=constants)
    return result(y)


def turbo_encode(x: ArrayLike, bits: int, *, means: bool = False, device: DeviceLike = None) -> TurboRows:
    """Encode x [tokens, kv_heads, dim] in 2, 3, 4, 6 or 8 bits per coordinate.

    means stores the mean of each vector separately. Vectors with a common offset need that: keys and values
    of projections with a bias.
    """
    op = "turbo_encode"
    x = _vectors(op, "x", x)
    *batch, tokens, kv_heads, dim = x.shape
    _check_codec(op, dim, bits)
    means = flag(op, "means", means)
    device = resolve(device)
    shape = (*batch, kv_heads, tokens)
    packed = empty(device, (*shape, turbo_codec.row_words(dim, bits)), np.uint32)
    kept = empty(device, shape, np.float16) if means else None
    rows = TurboRows(packed, empty(device, shape, np.float16), bits, dim, kept)
    _encode(device, rows, x, 0, rotated=False)
    return TurboRows(
        result(rows.packed), result(rows.scales), bits, dim, None if kept is None else result(kept)
    )


def turbo_append(
    rows: TurboRows, x: ArrayLike, position: int, *, rotated: bool = False, device: DeviceLike = None
) -> TurboRows:
    """Encode x [tokens, kv_heads, dim] into the rows (position + t) % capacity of `rows`.

    The arrays of `rows` are changed in place and returned, those of its exact rows among them. rotated: x is
    rotated already. If there are more vectors than rows, the last ones stay.

    Examples:
        >>> rows = pyturbo.ops.turbo_rows(capacity=8, kv_heads=1, dim=64, bits=4)
        >>> x = np.ones((2, 1, 64), np.float32)
        >>> rows = pyturbo.ops.turbo_append(rows, x, 3, device="cpu")
        >>> np.linalg.norm(pyturbo.ops.turbo_decode(rows, device="cpu"), axis=-1)[:, 0].round(2)
        array([0., 0., 0., 8., 8., 0., 0., 0.], dtype=float32)
    """
    op = "turbo_append"
    device = resolve(device)
    given = _changeable_rows(device, op, rows)
    target = checked_rows(op, "rows", given)
    *batch, kv_heads, _ = target.scales.shape
    x = operand(op, "x", _vectors(op, "x", x), np.float32, (*batch, None, kv_heads, target.dim))
    _encode(device, target, x, position, flag(op, "rotated", rotated))
    changed: dict[str, Any] = {
        name: write_back(getattr(given, name), getattr(target, name))
        for name in _ARRAYS
        if getattr(target, name) is not None
    }
    return given._replace(**changed)


def turbo_decode(
    rows: TurboRows,
    *,
    rotated: bool = False,
    ring_start: int = 0,
    live: int | None = None,
    device: DeviceLike = None,
) -> Array:
    """Decode rows to float32 [live, kv_heads, dim]; rotated leaves the vectors rotated.

    Vector j is in row (ring_start + j) % capacity; live defaults to the capacity. Exact rows are not read.
    """
    op = "turbo_decode"
    rows = checked_rows(op, "rows", rows)
    batch, kv_heads, capacity = rows.sizes
    context = capacity if live is None else integer(op, "live", live)
    rotated = flag(op, "rotated", rotated)
    device = resolve(device)
    y = empty(device, (*rows.scales.shape[:-2], context, kv_heads, rows.dim))
    constants = {"bits": rows.bits, "has_means": rows.means is not None}
    arrays = (rows.packed, rows.scales, rows.means, _ones(rows), y)
    sizes = (batch, context, capacity, ring_start, kv_heads, rows.dim)
    launch(device, "turbo_decode", *arrays, *sizes, constants=constants)
    return result(y) if rotated else turbo_unrotate(result(y), device=device)


def turbo_rotate(x: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Rotate the vectors of x [..., dim] as the codec does."""
    rows = _floats("turbo_rotate", "x", x)
    return hadamard(rows, turbo_codec.signs(rows.shape[-1]), device=device)


def turbo_unrotate(x: ArrayLike, *, device: DeviceLike = None) -> Array:
    """Undo `turbo_rotate`."""
    rows = _floats("turbo_unrotate", "x", x)
    return hadamard(rows, turbo_codec.signs(rows.shape[-1]), inverse=True, device=device)


@cache
def rotated_ones(dim: int) -> Array:
    """Return the rotated vector of ones: in rotated form, the mean m of a vector is m times this."""
    device = Device("cpu:reference", check=False)
    y = device.empty((dim,))
    kernel = device.kernel("hadamard_f32", {"has_signs": True, "inverse": False})
    kernel(np.ones(dim, np.float32), turbo_codec.signs(dim), y, 1, dim)  # runs now, even under a Recorder
    return result(y)


def _ones(rows: TurboRows) -> Array | None:
    return None if rows.means is None else rotated_ones(rows.dim)


def _encode(device: Target, rows: TurboRows, x: Array, position: int, rotated: bool) -> None:
    batch, kv_heads, capacity = rows.sizes
    tokens = x.shape[-3]
    constants = {"bits": rows.bits, "rotates": not rotated, "has_means": rows.means is not None}
    constants |= {"has_recent": rows.recent is not None}
    signs = None if rotated else turbo_codec.signs(rows.dim)
    arrays = (x, signs, _ones(rows), rows.packed, rows.scales, rows.means, rows.recent, rows.recent_keys)
    sizes = (batch, tokens, capacity, kv_heads, rows.dim, position, rows.recent_rows)
    launch(device, "turbo_encode", *arrays, *sizes, constants=constants)


def _floats(op: str, name: str, value: ArrayLike) -> Array:
    array = as_array(op, name, value, np.float32)
    if array.ndim == 0:
        raise ArgumentError(f"{op}: {name}: expected an array with at least one axis, got a number")
    return stored_weight(op, array, (None,) * array.ndim, name)[0]


def _vectors(op: str, name: str, value: ArrayLike) -> Array:
    array = values(op, name, value)
    if array.ndim not in (3, 4):
        raise ArgumentError(
            f"{op}: {name}: expected shape [tokens, heads, dim] or [batch, tokens, heads, dim], "
            f"got {list(array.shape)}"
        )
    return array


def _changeable_rows(device: Target, op: str, rows: TurboRows) -> TurboRows:
    _check_type(op, "rows", rows)
    given: dict[str, Any] = {
        name: changeable(device, op, f"rows.{name}", getattr(rows, name))
        for name in _ARRAYS
        if name in ("packed", "scales") or getattr(rows, name) is not None
    }
    return rows._replace(**given)


def _check_type(op: str, name: str, rows: TurboRows) -> None:
    if not isinstance(rows, TurboRows):
        raise ArgumentError(f"{op}: {name}: expected TurboRows, got {type(rows).__name__}")


def checked_rows(op: str, name: str, rows: TurboRows) -> TurboRows:
    """Return `rows` with arrays that kernels can read, after a check of their shapes."""
    _check_type(op, name, rows)
    _check_codec(op, rows.dim, rows.bits)
    scales = as_array(op, f"{name}.scales", rows.scales, np.float16)
    if scales.ndim not in (2, 3):
        raise ArgumentError(
            f"{op}: {name}.scales: expected shape [kv_heads, capacity] or [batch, kv_heads, capacity], "
            f"got {list(scales.shape)}"
        )
    scales = operand(op, f"{name}.scales", scales, np.float16, scales.shape)
    words = turbo_codec.row_words(rows.dim, rows.bits)
    packed = operand(op, f"{name}.packed", rows.packed, np.uint32, (*scales.shape, words))
    means = None
    if rows.means is not None:
        means = operand(op, f"{name}.means", rows.means, np.float16, scales.shape)
    recent, keys = rows.recent, rows.recent_keys
    if (recent is None) != (keys is None):
        raise ArgumentError(f"{op}: {name}: expected recent and recent_keys, or neither")
    if recent is not None:
        recent = operand(op, f"{name}.recent", recent, np.float16, (*scales.shape[:-1], None, rows.dim))
        keys = operand(op, f"{name}.recent_keys", keys, np.uint32, (recent.shape[-2],))
        if not 0 < recent.shape[-2] <= _MOST_RECENT:
            raise ArgumentError(
                f"{op}: {name}.recent: expected 1 to {_MOST_RECENT} rows, got {recent.shape[-2]}"
            )
    return TurboRows(packed, scales, rows.bits, rows.dim, means, recent, keys)


def _check_codec(op: str, dim: int, bits: int) -> None:
    if bits not in turbo_codec.WIDTHS:
        raise ArgumentError(f"{op}: bits: expected one of 2, 3, 4, 6 and 8, got {bits}")
    if dim not in turbo_codec.DIMS:
        raise ArgumentError(f"{op}: dim: expected one of 64, 80, 96, 128, 256 and 512, got {dim}")
