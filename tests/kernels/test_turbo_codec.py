"""The codec of the compressed cache against its definition, on every device.

Does not catch: a rotation that helps less than another one would; what the codec does to a model.
"""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pyturbo
from kernels.harness import Out, assert_close, run_kernel
from pyturbo import errors, ops, turbo_codec
from pyturbo.ops.turbo import rotated_ones
from reference import turbo as reference
from turboquant import make_tables

WIDTHS, DIMS = turbo_codec.WIDTHS, turbo_codec.DIMS
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}

#: Mean squared error of a standard normal variable, as the literature has it.
DISTORTIONS = {2: 0.117482, 3: 0.034548, 4: 0.009501, 6: 6.4424e-4, 8: 4.1185e-5}

widths = pytest.mark.parametrize("bits", WIDTHS)
tables = pytest.mark.parametrize("bits", make_tables.BITS)
dims = pytest.mark.parametrize("dim", DIMS)


def codes_of(rows):
    """int [tokens, kv_heads, dim]."""
    kv_heads, tokens = rows.scales.shape
    return np.array(
        [
            [reference.unpack(rows.packed[h, t], rows.dim, rows.bits) for h in range(kv_heads)]
            for t in range(tokens)
        ]
    )


def rows_of(codes, bits, scale=1.0):
    """TurboRows of one head with the given codes [tokens, dim], which decode to centroids times a scale."""
    tokens, dim = codes.shape
    packed = np.stack([reference.pack(row, bits) for row in codes])[None]
    scales = np.full((1, tokens), scale, np.float16)
    return ops.TurboRows(packed, scales, bits, dim)


def spread_vectors(rng, *shape):
    """Normal vectors of many lengths."""
    lengths = np.exp(rng.standard_normal((*shape[:-1], 1)))
    return (rng.standard_normal(shape) * lengths).astype(np.float32)


# Tables -------------------------------------------------------------------------------------------


def test_the_header_is_what_the_script_writes():
    assert make_tables.HEADER.read_text() == make_tables.header()


@tables
def test_centroids_are_the_means_of_their_cells(bits):
    table = make_tables.lloyd_max(bits)
    assert (np.diff(table) > 0).all()
    np.testing.assert_array_equal(table, -table[::-1])
    np.testing.assert_allclose(reference.cell_means(table), table, rtol=0, atol=1e-9)
    assert reference.distortion(table) == pytest.approx(DISTORTIONS[bits], rel=1e-4)


@tables
def test_the_codec_rounds_centroids_to_float16(bits):
    table, rounded = make_tables.lloyd_max(bits), make_tables.codebook(bits)
    np.testing.assert_array_equal(rounded.astype(np.float16), rounded)
    assert (np.abs(rounded - table) <= 2.0**-11 * np.abs(table)).all()
    np.testing.assert_array_equal(reference.codebook(bits), rounded)
    assert reference.distortion(rounded) < 1.001 * DISTORTIONS[bits]


def test_known_centroids():
    np.testing.assert_allclose(make_tables.lloyd_max(2)[2:], [0.45278003, 1.51041761], atol=1e-8)
    np.testing.assert_allclose(
        make_tables.lloyd_max(3)[4:], [0.24509418, 0.75600528, 1.34390928, 2.15194570], atol=1e-8
    )
    np.testing.assert_allclose(make_tables.lloyd_max(4)[[8, 15]], [0.12839503, 2.73258957], atol=1e-8)
    np.testing.assert_allclose(make_tables.lloyd_max(6)[[32, 63]], [0.03340951, 3.74410127], atol=1e-8)


@pytest.mark.parametrize("order", [12, 20])
def test_the_small_hadamard_matrices_are_those_of_mlx(order):
    matrix = {12: make_tables.hadamard_12, 20: make_tables.hadamard_20}[order]()
    np.testing.assert_array_equal(matrix @ matrix.T, order * np.eye(order))
    np.testing.assert_array_equal(matrix, reference.hadamard_matrix(order))


def test_signs():
    assert (
        "".join("+" if sign > 0 else "-" for sign in turbo_codec.signs(32))
        == "-++--++-----+-++++---+++-++--+--"
    )
    for dim in DIMS:
        np.testing.assert_array_equal(turbo_codec.signs(dim), turbo_codec.signs(512)[:dim])


def test_words_of_a_row():
    assert [turbo_codec.row_words(128, bits) for bits in WIDTHS] == [8, 12, 16, 24, 32]
    assert [turbo_codec.row_words(80, bits) for bits in WIDTHS] == [5, 8, 10, 15, 20]


# Rotation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("dim", [1, 2, 4, 12, 20, 32, 48, *DIMS, 320, 384])
def test_hadamard_matches_the_dense_matrix(device, rng, dim, inverse, signed):
    x = spread_vectors(rng, 5, dim)
    signs = np.where(rng.random(dim) < 0.5, np.float32(1), np.float32(-1)) if signed else None
    args = (x, signs, Out(x.shape), 5, dim)
    (y,) = run_kernel(device, "hadamard_f32", *args, constants={"has_signs": signed, "inverse": inverse})
    power = dim if 512 % dim == 0 else dim // (12 if dim % 12 == 0 else 20)
    matrix = np.kron(reference.hadamard_matrix(dim // power), reference.hadamard_matrix(power)) / math.sqrt(
        dim
    )
    matrix = matrix * (1.0 if signs is None else signs)
    want = x.astype(np.float64) @ (matrix if inverse else matrix.T)
    assert_close(y, want, "dot", np.abs(x).sum(axis=1, keepdims=True) / math.sqrt(dim))


def test_hadamard_of_known_values(device):
    y = ops.hadamard(np.array([1, 2, 3, 4], np.float32), device=device)
    np.testing.assert_array_equal(y, [5, -1, -2, 0])


@dims
def test_rotation_keeps_lengths_and_is_undone(device, rng, dim):
    x = spread_vectors(rng, 3, 2, dim)
    signs = turbo_codec.signs(dim)
    y = ops.hadamard(x, signs, device=device)
    np.testing.assert_allclose(np.linalg.norm(y, axis=-1), np.linalg.norm(x, axis=-1), rtol=1e-6)
    again = ops.hadamard(y, signs, inverse=True, device=device)
    assert (np.abs(again - x) <= 1e-6 * np.linalg.norm(x, axis=-1, keepdims=True)).all()


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_hadamard_rounds_once(device, rng, kind):
    x = rng.standard_normal((3, 96), np.float32).astype(TYPES[kind])
    y = ops.hadamard(x, device=device)
    assert y.dtype == x.dtype
    step = {"f16": 2**-11, "bf16": 2**-8}[kind]
    want = reference.rotate(x.astype(np.float32))
    assert (np.abs(y.astype(np.float64) - want) <= step * np.abs(want) + 1e-5).all()


def test_hadamard_shows_nan_in_its_row_only(device, rng):
    x = rng.standard_normal((6, 80), np.float32)
    x[2, 7], x[4, 0] = np.nan, np.inf
    y = ops.hadamard(x, device=device)
    np.testing.assert_array_equal(np.isfinite(y).all(axis=1), [True, True, False, True, False, True])


# Encoding -----------------------------------------------------------------------------------------


def test_known_words():
    words = {
        2: ("1b1b1b1b 1b1b1b1b 1b1b1b1b", "1b1b1b1b"),
        3: ("53977053 70539770 97705397", "97705397"),
        4: ("4d6f81a3 c5e7092b 4d6f81a3", "c5e7092b"),
        6: ("9f611283 90bbd2d9 b2579740", "f35ba781"),
        8: ("18110a03 342d261f 5049423b", "7c756e67"),
    }
    for bits, (first, last) in words.items():
        packed = reference.pack((7 * np.arange(128) + 3) % (1 << bits), bits)
        assert " ".join(f"{word:08x}" for word in packed[:3]) == first
        assert f"{packed[-1]:08x}" == last


@widths
@dims
def test_every_code_is_unpacked(device, rng, bits, dim):
    most = (1 << bits) - 1
    codes = np.stack(
        [
            (7 * np.arange(dim) + 3) & most,
            np.full(dim, most),
            np.arange(dim) % 2 * most,
            rng.integers(0, most + 1, dim),
        ]
    )
    rows = rows_of(codes, bits)
    y = ops.turbo_decode(rows, rotated=True, device=device)
    assert_close(y[:, 0], reference.codebook(bits)[codes], "elementwise")


@widths
@dims
def test_encode_matches_float64(device, rng, bits, dim):
    tokens, kv_heads, capacity, position = 3, 2, 5, 9
    x = spread_vectors(rng, 1, tokens, kv_heads, dim)
    x[0, 1, 0] = 0
    signs = turbo_codec.signs(dim)
    words = turbo_codec.row_words(dim, bits)
    packed, scales = Out((1, kv_heads, capacity, words), np.uint32), Out((1, kv_heads, capacity), np.float16)
    sizes = (1, tokens, capacity, kv_heads, dim, position, 0)
    constants = {"bits": bits, "rotates": True, "has_means": False, "has_recent": False}
    arrays = (x, signs, None, packed, scales, None, None, None)
    got = run_kernel(device, "turbo_encode", *arrays, *sizes, constants=constants)
    slots = (position + np.arange(tokens)) % capacity
    others = np.setdiff1d(np.arange(capacity), slots)
    assert (got[0][0][:, others] == 0xFFFFFFFF).all()
    assert np.isnan(got[1][0][:, others]).all()
    rows = ops.TurboRows(got[0][0][:, slots], got[1][0][:, slots], bits, dim)
    check_codes(rows, *reference.encode(reference.rotate(x[0], signs), bits))
    assert rows.scales[0, 1] == 0
    assert (codes_of(rows)[1, 0] == (0 if bits == 8 else (1 << bits) // 2 - 1)).all()


def check_codes(rows, codes, scales, scaled):
    """Equal but for values next to a boundary, and there by one; scales are those that the codes ask for.

    A scale is rounded to float16, by half of a unit in its last place: 2^-11 of it, or 2^-25 near zero.
    """
    got, centroids = codes_of(rows), reference.codebook(rows.bits)
    boundaries = np.convolve(np.sort(centroids), [0.5, 0.5], "valid")
    distance = np.abs(scaled[..., None] - boundaries).min(axis=-1)
    rank = np.argsort(np.argsort(centroids))
    assert (np.abs(rank[got] - rank[codes]) <= (distance < 1e-6 * (1 + np.abs(scaled)))).all()
    assert (got != codes).sum() <= max(1, 1e-3 * got.size)
    for h in range(rows.scales.shape[0]):
        for t in range(rows.scales.shape[1]):
            assert rows.packed[h, t].tobytes() == reference.pack(got[t, h], rows.bits).tobytes()
    wanted = scales * np.linalg.norm(centroids[codes], axis=-1)
    lengths = np.linalg.norm(centroids[got], axis=-1)  # in units of the scale
    assert (np.abs(rows.scales.T * lengths - wanted) <= (1e-6 + 2**-11) * wanted + 2**-25 * lengths).all()


@widths
def test_centroids_are_encoded_as_themselves(device, rng, bits):
    """Without a rotation, up to the length that the codec divides by."""
    table = reference.codebook(bits)
    dim = 512
    if bits == 8:
        codes = (np.arange(dim) % 255 - 127) % 256  # all but -128, which no coordinate has
    else:
        codes = np.searchsorted((table[1:] + table[:-1]) / 2, np.sort(rng.standard_normal(dim)))
    x = table[codes].astype(np.float32)
    x *= np.float32(math.sqrt(dim) / np.linalg.norm(x)) if bits > 4 else 1
    empty = ops.turbo_rows(1, 1, dim, bits)
    rows = ops.turbo_append(empty, x[None, None], 0, rotated=True, device=device)
    check_codes(rows, *reference.encode(x[None, None].astype(np.float64), bits))
    if bits != 6:
        np.testing.assert_array_equal(codes_of(rows)[0, 0], codes)


def test_values_around_known_boundaries(device):
    """The first value is looked at; the others make the vector's length that of a unit normal one."""
    for value, code in [(0.0, 7), (1e-6, 8), (2.4003, 14), (2.4005, 15), (-3.0, 0)]:
        x = np.full(256, math.sqrt((256 - value**2) / 255), np.float32)
        x[0] = value
        rows = ops.turbo_rows(1, 1, 256, 4)
        rows = ops.turbo_append(rows, x[None, None], 0, rotated=True, device=device)
        assert codes_of(rows)[0, 0, 0] == code


def test_bytes_are_steps(device):
    """The largest magnitude becomes 127 steps; ties round to even."""
    x = np.zeros(64, np.float32)
    steps = [127, -127, 0.5, 1.5, -0.5, -1.5, 2.5, 0.49, -0.51, 126.4]
    x[: len(steps)] = steps
    for scale in (1.0, 2.0**-12, 512.0):
        rows = ops.turbo_rows(1, 1, 64, 8)
        rows = ops.turbo_append(rows, x[None, None] * np.float32(scale), 0, rotated=True, device=device)
        codes = codes_of(rows)[0, 0].astype(np.int8)
        assert codes.tolist() == [127, -127, 0, 2, 0, -2, 2, 0, -1, 126] + [0] * 54
        length = np.linalg.norm(codes.astype(np.float64)) / 64
        assert rows.scales[0, 0] == np.float16(np.linalg.norm(x) * scale / length)


@pytest.mark.parametrize(
    ("bits", "code", "value"), [(4, 15, 2.732421875), (8, 100, 100 / 64), (8, 156, -100 / 64)]
)
def test_a_known_value_is_decoded(device, bits, code, value):
    rows = rows_of(np.full((1, 256), code), bits, scale=2.0)
    np.testing.assert_allclose(ops.turbo_decode(rows, rotated=True, device=device), 2 * value, rtol=1e-6)


@widths
@dims
def test_lengths_are_kept(device, rng, bits, dim):
    """Up to the rounding of a scale to float16, which is 2^-11 of it at most."""
    x = spread_vectors(rng, 4, 3, dim)
    x[0, 0], x[1, 1] = 0, 1e4
    x[2, 2] = 1e-4 * rng.standard_normal(dim)
    x[3, 0] = 1e-40  # shorter than any vector that is told apart from zero
    x[3, 1] = 0
    x[3, 1, 7] = 5  # all coordinates of a rotated spike have one magnitude, which the scale corrects
    y = ops.turbo_decode(ops.turbo_encode(x, bits, device=device), device=device)
    lengths = np.linalg.norm(x.astype(np.float64), axis=-1)
    np.testing.assert_allclose(
        np.linalg.norm(y.astype(np.float64), axis=-1), lengths, rtol=1e-5 + 2**-11, atol=1e-30
    )
    np.testing.assert_allclose(y[3, 1], x[3, 1], rtol=2**-11, atol=2e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("bits", [4, 8])
def test_nan_and_inf_show_in_their_vector(device, rng, bad, bits):
    x = rng.standard_normal((5, 2, 64), np.float32)
    x[3, 1, 40] = bad
    y = ops.turbo_decode(ops.turbo_encode(x, bits, device=device), rotated=True, device=device)
    finite = np.isfinite(y).all(axis=-1)
    assert not finite[3, 1]
    assert finite.sum() == 9


@widths
def test_means_are_kept_apart(device, rng, bits):
    x = spread_vectors(rng, 6, 2, 96) + np.float32(7) * rng.standard_normal((6, 2, 1)).astype(np.float32)
    rows = ops.turbo_encode(x, bits, means=True, device=device)
    means = x.mean(axis=-1, dtype=np.float64)
    np.testing.assert_allclose(rows.means.T, means, rtol=2**-11, atol=2e-6 * np.abs(x).max())
    np.testing.assert_allclose(
        rotated_ones(96), reference.rotate(np.ones(96), turbo_codec.signs(96)), atol=1e-6
    )
    want = reference.unrotate(reference.decode(rows, turbo_codec.signs(96)), turbo_codec.signs(96))
    y = ops.turbo_decode(rows, device=device)
    np.testing.assert_allclose(y, want, rtol=0, atol=1e-6 * np.abs(x).max())
    centred = (x - means[..., None]).astype(np.float64)
    error = ((y - x) ** 2).sum() / (centred**2).sum()
    assert error < 1.2 * DISTORTIONS[bits]


def test_appending_goes_round_and_leaves_the_rest(device, rng):
    x = spread_vectors(rng, 17, 2, 64)
    current = ops.turbo_rows(7, 2, 64, 3, means=True)
    position = 0
    for tokens in (3, 5, 2, 7):
        current = ops.turbo_append(current, x[position : position + tokens], position, device=device)
        position += tokens
    whole = ops.turbo_encode(x, 3, means=True, device=device)
    for got, want in zip(
        (current.packed, current.scales, current.means), (whole.packed, whole.scales, whole.means)
    ):
        for t in range(10, 17):
            np.testing.assert_array_equal(got[:, t % 7], want[:, t])
    y = ops.turbo_decode(current, ring_start=17 % 7, live=5, device=device)
    assert y.tobytes() == ops.turbo_decode(whole, device=device)[10:15].tobytes()
    before = [array.copy() for array in (current.packed, current.scales, current.means)]
    ops.turbo_append(current, x[:2], 5, device=device)
    for array, kept in zip((current.packed, current.scales, current.means), before):
        np.testing.assert_array_equal(array[:, :5], kept[:, :5])
        assert (array[:, 5:] != kept[:, 5:]).any()


def test_of_more_vectors_than_rows_the_last_ones_stay(device, rng):
    tokens, kv_heads, capacity, dim, position = 19, 3, 5, 80, 4
    x = spread_vectors(rng, 2, tokens, kv_heads, dim)
    words = turbo_codec.row_words(dim, 3)
    outputs = Out((2, kv_heads, capacity, words), np.uint32), Out((2, kv_heads, capacity), np.float16)
    sizes = (2, tokens, capacity, kv_heads, dim, position, 0)
    constants = {"bits": 3, "rotates": True, "has_means": False, "has_recent": False}
    arrays = (x, turbo_codec.signs(dim), None, *outputs, None, None, None)
    packed, scales = run_kernel(device, "turbo_encode", *arrays, *sizes, constants=constants)
    whole = ops.turbo_encode(x, 3, device=device)
    for t in range(tokens - capacity, tokens):
        np.testing.assert_array_equal(packed[:, :, (position + t) % capacity], whole.packed[:, :, t])
        np.testing.assert_array_equal(scales[:, :, (position + t) % capacity], whole.scales[:, :, t])


def test_the_last_vectors_are_kept_as_they_are(device, rng):
    """In float16, of every sequence and head, whatever is appended at once; and the keys they are of."""
    x = spread_vectors(rng, 2, 23, 3, 96)
    rotated = reference.rotate(x, turbo_codec.signs(96))
    rows = ops.turbo_rows(40, 3, 96, 4, batch=2, recent=7)
    position = 0
    for tokens in (3, 1, 4, 15):
        part = x[:, position : position + tokens]
        rows = ops.turbo_append(rows, part, position, device=device)
        position += tokens
        for key in range(max(0, position - 7), position):
            assert rows.recent_keys[key % 7] == key
            want = rotated[:, key]
            got = rows.recent[:, :, key % 7].astype(np.float64)
            bound = 2**-11 * np.abs(want) + 1e-6 * np.abs(want).max() + 2**-25
            assert (np.abs(got - want) <= bound).all()
    plain = ops.turbo_encode(x, 4, device=device)
    np.testing.assert_array_equal(rows.packed[:, :, :23], plain.packed)
    np.testing.assert_array_equal(rows.scales[:, :, :23], plain.scales)


def test_a_batch_is_its_sequences(device, rng):
    x = spread_vectors(rng, 3, 4, 2, 80)
    rows = ops.turbo_encode(x, 6, device=device)
    y = ops.turbo_decode(rows, device=device)
    for b in range(3):
        one = ops.turbo_encode(x[b], 6, device=device)
        assert rows.packed[b].tobytes() == one.packed.tobytes()
        assert rows.scales[b].tobytes() == one.scales.tobytes()
        assert y[b].tobytes() == ops.turbo_decode(one, device=device).tobytes()


@given(
    tokens=st.integers(1, 6),
    kv_heads=st.integers(1, 3),
    dim=st.sampled_from(DIMS),
    bits=st.sampled_from(WIDTHS),
    spare=st.integers(0, 5),
    position=st.integers(0, 2**32 - 7),
    seed=st.integers(0, 99),
)
# One value lies next to the boundary of two codes: of many values, and of 160.
@example(tokens=2, kv_heads=2, dim=512, bits=8, spare=0, position=0, seed=14)
@example(tokens=1, kv_heads=2, dim=80, bits=8, spare=0, position=0, seed=64)
def test_any_shape(tokens, kv_heads, dim, bits, spare, position, seed):
    x = spread_vectors(np.random.default_rng(seed), tokens, kv_heads, dim)
    capacity = tokens + spare
    rows = ops.turbo_rows(capacity, kv_heads, dim, bits)
    rows = ops.turbo_append(rows, x, position, device="cpu:reference")
    slots = (position + np.arange(tokens)) % capacity
    kept = rows._replace(packed=rows.packed[:, slots], scales=rows.scales[:, slots])
    check_codes(kept, *reference.encode(reference.rotate(x, turbo_codec.signs(dim)), bits))


# Quality ------------------------------------------------------------------------------------------


def relative_error(x, y):
    return ((y.astype(np.float64) - x) ** 2).sum(axis=-1) / (x.astype(np.float64) ** 2).sum(axis=-1)


@pytest.mark.parametrize(
    ("dim", "errors_by_bits"),
    [
        (64, (0.1163, 0.0328, 0.00888, 0.00060, 3.5e-5)),
        (128, (0.1190, 0.0338, 0.00916, 0.00062, 4.15e-5)),
        (256, (0.1200, 0.0344, 0.00935, 0.00063, 4.8e-5)),
        (512, (0.1205, 0.0345, 0.00945, 0.00064, 5.5e-5)),
    ],
)
def test_error_of_normal_vectors(rng, dim, errors_by_bits):
    x = spread_vectors(rng, 500, 4, dim)
    for bits, want in zip(WIDTHS, errors_by_bits):
        y = ops.turbo_decode(ops.turbo_encode(x, bits, device="cpu"), device="cpu")
        assert relative_error(x, y).mean() == pytest.approx(want, rel=0.05)
        slope = (y.astype(np.float64) * x).sum() / (x.astype(np.float64) ** 2).sum()
        assert slope == pytest.approx(math.sqrt(1 - DISTORTIONS[bits]), rel=5e-3)


def test_the_worst_of_many_vectors(rng):
    x = spread_vectors(rng, 1000, 4, 128)
    for bits, least in zip(WIDTHS, (0.90, 0.955, 0.98, 0.996, 0.9998)):
        y = ops.turbo_decode(ops.turbo_encode(x, bits, device="cpu"), device="cpu").astype(np.float64)
        cosine = (x * y).sum(axis=-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(y, axis=-1)
        assert cosine.min() > least


@dims
def test_vectors_that_plain_transforms_fail_on(rng, dim):
    """A constant vector, which without signs is one huge coordinate, and normal ones with an offset."""
    offsets = rng.standard_normal((20, 3, dim)).astype(np.float32) + np.array([1, 3, 10], np.float32)[:, None]
    for x, most in ((np.ones((1, 1, dim), np.float32), 0.02), (offsets, 0.02)):
        y = ops.turbo_decode(ops.turbo_encode(x, 4, device="cpu"), device="cpu")
        assert relative_error(x, y).mean() < most
    if dim >= 128 and not dim & (dim - 1):
        rows = ops.turbo_rows(20, 3, dim, 4)
        rows = ops.turbo_append(rows, ops.hadamard(offsets, device="cpu"), 0, rotated=True, device="cpu")
        y = ops.hadamard(ops.turbo_decode(rows, rotated=True, device="cpu"), device="cpu")
        assert relative_error(offsets, y).mean() > 0.2


# Errors -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ops.hadamard(np.ones((2, 24 * 3), np.float32)),
            "hadamard: x: expected rows of 1, 12 or 20 times a power of two, at most 512 values, got 72",
        ),
        (
            lambda: ops.hadamard(np.ones(64, np.float32), np.ones(63, np.float32)),
            r"hadamard: signs: expected shape \[64\], got \[63\]",
        ),
        (
            lambda: ops.turbo_encode(np.ones((1, 1, 64), np.float32), 5),
            "turbo_encode: bits: expected one of 2, 3, 4, 6 and 8, got 5",
        ),
        (
            lambda: ops.turbo_encode(np.ones((1, 1, 72), np.float32), 4),
            "turbo_encode: dim: expected one of 64, 80, 96, 128, 256 and 512, got 72",
        ),
        (
            lambda: ops.turbo_encode(np.ones((1, 64), np.float32), 4),
            r"turbo_encode: x: expected shape \[tokens, heads, dim\] or .*, got \[1, 64\]",
        ),
        (
            lambda: ops.turbo_append(ops.turbo_rows(3, 2, 64, 4), np.ones((1, 3, 64), np.float32), 0),
            r"turbo_append: x: expected shape \[any, 2, 64\], got \[1, 3, 64\]",
        ),
        (
            lambda: ops.turbo_decode(ops.turbo_rows(3, 2, 64, 4)._replace(bits=3)),
            r"turbo_decode: rows.packed: expected shape \[2, 3, 6\], got \[2, 3, 8\]",
        ),
        (
            lambda: ops.turbo_rows(3, 2, 64, 4, recent=33),
            "turbo_rows: recent: expected 0 to 32, got 33",
        ),
        (
            lambda: ops.turbo_decode(ops.turbo_rows(3, 2, 64, 4, recent=4)._replace(recent_keys=None)),
            "turbo_decode: rows: expected recent and recent_keys, or neither",
        ),
        (
            lambda: ops.turbo_decode(
                ops.turbo_rows(3, 2, 64, 4)._replace(
                    recent=np.zeros((2, 33, 64), np.float16), recent_keys=np.zeros(33, np.uint32)
                )
            ),
            "turbo_decode: rows.recent: expected 1 to 32 rows, got 33",
        ),
        (
            lambda: ops.turbo_decode(
                ops.turbo_rows(3, 2, 64, 4)._replace(scales=np.zeros((2, 3), np.float32))
            ),
            "turbo_decode: rows.scales: expected float16, got float32",
        ),
        (lambda: ops.turbo_decode(np.ones(3)), "turbo_decode: rows: expected TurboRows, got ndarray"),
        (lambda: ops.turbo_decode(ops.turbo_rows(3, 2, 64, 4), live=4), "requires context <= capacity"),
    ],
)
def test_refuses(call, message):
    with pytest.raises(errors.ArgumentError, match=message):
        call()


def test_the_manifest_names_the_kernels():
    assert {"hadamard_f32", "turbo_encode", "turbo_decode"} <= set(pyturbo.kernels())
