"""Operations recorded into programs give the bits that the same operations give at once."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import numpy as np
import pytest

import pyturbo
from pyturbo import ops
from pyturbo.errors import ArgumentError
from pyturbo.recording import Recorder, Strand, Tensor
from pyturbo.symbols import Place, symbol

HIDDEN, INNER, EXPERTS, TOP = 64, 96, 6, 3
TOKENS = symbol("tokens")


@pytest.fixture
def weights() -> dict[str, tuple[np.ndarray, ...]]:
    rng = np.random.default_rng(3)

    def quantized(*shape: int) -> tuple[np.ndarray, ...]:
        return ops.affine_quantize(rng.standard_normal(shape, np.float32), bits=4, group_size=32)

    return {
        "gate": quantized(INNER, HIDDEN),
        "up": quantized(INNER, HIDDEN),
        "down": quantized(HIDDEN, INNER),
        "expert_gate": quantized(EXPERTS, INNER, HIDDEN),
        "expert_up": quantized(EXPERTS, INNER, HIDDEN),
        "expert_down": quantized(EXPERTS, HIDDEN, INNER),
        "norm": (rng.uniform(0.5, 2, HIDDEN).astype(np.float32),),
        "router": (rng.standard_normal((EXPERTS, HIDDEN), np.float32),),
    }


def block(
    x: np.ndarray, w: dict[str, tuple[np.ndarray, ...]], device: pyturbo.Device | None = None
) -> np.ndarray:
    """A dense and a routed layer, written once for both ways of running it."""
    h = ops.rms_norm(x, *w["norm"], 1e-6, device=device)
    h = ops.affine_swiglu(h, (*w["gate"], 4, 32), (*w["up"], 4, 32), device=device)
    x = ops.add(x, ops.affine_matmul(h, *w["down"], bits=4, group_size=32, device=device), device=device)
    h = ops.rms_norm(x, *w["norm"], 1e-6, device=device)
    ids, probabilities = ops.route(ops.matmul(h, *w["router"], device=device), TOP, device=device)
    gate, up = (*w["expert_gate"], 4, 32), (*w["expert_up"], 4, 32)
    h = ops.affine_experts_swiglu(h, ids, gate, up, device=device)
    h = ops.affine_experts_matmul(h, ids, *w["expert_down"], bits=4, group_size=32, device=device)
    return ops.moe_combine(x, h, probabilities, device=device)


def test_a_recorded_layer_has_the_bits_of_an_eager_one(
    device: pyturbo.Device, weights: dict[str, tuple[np.ndarray, ...]]
) -> None:
    source, target = device.empty((40, HIDDEN)), device.empty((40, HIDDEN))
    with Recorder(device, {"tokens": 40}) as recorder:
        x = Tensor(source, (TOKENS, HIDDEN), np.float32)
        with recorder.label("layer"):
            y = block(x, weights)  # type: ignore[arg-type]
        ops.add(y, y)
        recorder.launch("add", (y, np.zeros((40, HIDDEN), np.float32), target, TOKENS * HIDDEN), None)
    assert recorder.program.listing()[0][0] == "layer"
    fewest = max(8, device.traits.few_tokens + 1)  # that have the kernels of 40
    for tokens in (33, fewest, 40):
        inputs = np.random.default_rng(tokens).standard_normal((tokens, HIDDEN), np.float32)
        source.view(inputs.shape).write(inputs)
        recorder.program.run(tokens=tokens)
        want = block(inputs, weights, device) + np.float32(0)
        assert target.numpy()[:tokens].tobytes() == want.tobytes()


def test_scratch_memory_is_used_again(
    device: pyturbo.Device, weights: dict[str, tuple[np.ndarray, ...]]
) -> None:
    def scratch(layers: int) -> int:
        with Recorder(device, {"tokens": 16}) as recorder:
            x = Tensor(device.empty((16, HIDDEN)), (TOKENS, HIDDEN), np.float32)
            for _ in range(layers):
                x = block(x, weights)  # type: ignore[arg-type, assignment]
            del x
            gc.collect()
        return recorder._scratch.free_bytes

    assert scratch(2) == scratch(7) > 0


def test_state_in_a_block_changes_in_place(device: pyturbo.Device) -> None:
    rng = np.random.default_rng(5)
    heads, dim, tokens = 2, 32, 3
    q, k, v = (rng.standard_normal((tokens, heads, dim), np.float32) for _ in range(3))
    g, beta = (rng.uniform(0.1, 0.9, (tokens, heads)).astype(np.float32) for _ in range(2))
    start = rng.standard_normal((heads, dim, dim), np.float32)
    with Recorder(device, {}, blocks=("state",)) as recorder:
        state = Tensor(Place("state", 16, start.nbytes), start.shape, np.float32)
        y, after = ops.delta_net(q, k, v, g, beta, state)  # type: ignore[arg-type]
        assert after is state
    block_ = device.empty(4 + start.size)
    block_.view(start.shape, offset=16).write(start)
    recorder.program.run([block_])
    want_y, want_state = ops.delta_net(q, k, v, g, beta, start, device=device)
    assert block_.numpy()[4:].tobytes() == want_state.tobytes()
    assert y.memory.numpy()[: want_y.size].tobytes() == want_y.tobytes()  # type: ignore[attr-defined]


def test_rows_of_a_tensor_follow_symbols(device: pyturbo.Device) -> None:
    source = device.empty((9, 8))
    source.write(np.arange(72).reshape(9, 8))
    target = device.empty((1, 8))
    with Recorder(device, {"tokens": 9}) as recorder:
        last = Tensor(source, (TOKENS, 8), np.float32).rows(TOKENS - 1)
        recorder.launch("add", (last, last, target, 8), None)
    for tokens in (1, 4, 9):
        recorder.program.run(tokens=tokens)
        assert target.numpy()[0, 0] == 2 * 8 * (tokens - 1)
    with pytest.raises(ArgumentError, match="expected bytes 288 to 320"):
        recorder.program.run(tokens=10)


def test_wrong_shapes(device: pyturbo.Device) -> None:
    with Recorder(device, {"tokens": 4, "other": 4}):
        a = Tensor(device.empty((4, 8)), (TOKENS, 8), np.float32)
        b = Tensor(device.empty((4, 8)), (symbol("other"), 8), np.float32)
        with pytest.raises(ArgumentError, match=r"add: b: expected shape \[tokens, 8\], got"):
            ops.add(a, b)
        with pytest.raises(ArgumentError, match="at most one symbol"):
            _ = Tensor(device.empty(16), (TOKENS, symbol("other")), np.float32).size
        with pytest.raises(ArgumentError, match="reshape: expected 8 \\* tokens values"):
            a.reshape(TOKENS, 9)
    assert a.reshape(TOKENS, 2, 4).shape == (TOKENS, 2, 4)


def test_outside_of_a_recorder_operations_run(device: pyturbo.Device) -> None:
    with Recorder(device, {}) as recorder:
        ops.add(np.ones(4, np.float32), np.ones(4, np.float32))
    assert ops.add(np.ones(4, np.float32), np.ones(4, np.float32), device=device)[0] == 2
    assert len(recorder.program) == 1


def compressed_layer(q: Any, k: Any, v: Any, caches: Any, position: Any, method: Any, device: Any) -> Any:
    """Own keys exact, older ones compressed; then the new ones are appended."""
    q, k, v = (ops.turbo_rotate(x, device=device) for x in (q, k, v))
    options = {"window": 25, "method": method, "own": (k, v), "live": position, "rotated": True}
    y = ops.turbo_attention(q, *caches, 0.2, **options, device=device)
    caches = [
        ops.turbo_append(rows, x, position, rotated=True, device=device) for rows, x in zip(caches, (k, v))
    ]
    return ops.turbo_unrotate(y, device=device), caches


def arrays_of(rows: ops.TurboRows) -> tuple[Any, ...]:
    return rows.packed, rows.scales, rows.means, rows.recent, rows.recent_keys


@pytest.mark.parametrize("tokens", [1, TOKENS], ids=["decode", "prefill"])
def test_a_recorded_compressed_cache(device: pyturbo.Device, tokens: Any) -> None:
    heads, kv_heads, dim, context, limit = 6, 2, 64, 60, 1 if tokens == 1 else 30
    rng = np.random.default_rng(5)
    inputs = [device.empty((limit, n, dim)) for n in (heads, kv_heads, kv_heads)]
    eager = [ops.turbo_rows(context, kv_heads, dim, bits, means=True, recent=7) for bits in (4, 3)]
    shapes = [[(array.shape, array.dtype) for array in arrays_of(rows)] for rows in eager]
    buffers = [[device.empty(*each) for each in of_rows] for of_rows in shapes]
    names = {"position": context} | ({} if tokens == 1 else {"tokens": limit})
    with Recorder(device, names) as recorder:
        caches = []
        for rows, memory in zip(eager, buffers):
            packed, scales, *others = (Tensor(part, part.shape, part.dtype) for part in memory)
            caches.append(ops.TurboRows(packed, scales, rows.bits, dim, *others))
        operands = [Tensor(part, (tokens, *part.shape[1:]), np.float32) for part in inputs]
        y, _ = compressed_layer(*operands, caches, symbol("position"), "auto", None)
    position = 0
    for count in (1,) * 4 if tokens == 1 else (9, 30, 10, 11):
        chunk = [rng.standard_normal((count, *part.shape[1:]), np.float32) for part in inputs]
        for part, array in zip(inputs, chunk):
            part.view(array.shape).write(array)
        recorder.program.run(
            **{"position": position, "tokens": count} if tokens != 1 else {"position": position}
        )
        method = "split" if tokens == 1 else "tiled"
        want, eager = compressed_layer(*chunk, eager, position, method, device)
        assert y.memory.numpy()[: want.size].tobytes() == want.tobytes()
        position += count
        for memory, rows in zip(buffers, eager):
            for part, array in zip(memory[:3], arrays_of(rows)):
                np.testing.assert_array_equal(part.numpy()[:, :position], array[:, :position])
            recent, keys = (part.numpy() for part in memory[3:])
            np.testing.assert_array_equal(recent[:, :position], rows.recent[:, :position])
            np.testing.assert_array_equal(keys[:position], rows.recent_keys[:position])


def gated(x: Any) -> Any:
    return ops.softmax(ops.swiglu(x, x))


def test_strands_are_recorded_side_by_side(device: pyturbo.Device) -> None:
    rng = np.random.default_rng(6)
    array = rng.standard_normal((3, 64), np.float32)
    with Recorder(device, {}) as recorder:
        x = Tensor(device.buffer(array), array.shape, np.float32)
        y = recorder.stack((Strand(partial(gated, x.rows(i)), i) for i in range(3)), 3)
        z = ops.add(y, y)
    names = [launch.kernel for launch in recorder.program.listing()]
    assert names == ["swiglu"] * 3 + ["softmax"] * 3 + ["add"]
    assert [launch.waits for launch in recorder.program.listing()] == [False] * 3 + [True, False, False, True]
    recorder.program.run()
    want = ops.softmax(ops.swiglu(array, array, device=device), device=device)
    np.testing.assert_array_equal(z.memory.read()[: want.size].reshape(want.shape), 2 * want)


def test_a_strand_has_no_stack(device: pyturbo.Device) -> None:
    x = device.empty((1, 64))
    with Recorder(device, {}) as recorder:
        row = Tensor(x, x.shape, np.float32)
        own = Strand(lambda: ops.swiglu(row, row), 0)
        with pytest.raises(pyturbo.errors.StateError, match="not stacks themselves"):
            recorder.stack([Strand(lambda: recorder.stack([own], 1), 0)], 1)
        assert recorder.stack([own], 1).shape == (1, 64)


def test_strands_of_several_rows_of_which_some_are_left_out(device: pyturbo.Device) -> None:
    array = np.random.default_rng(7).standard_normal((9, 64), np.float32)
    limits = {"rows": 9, "first1": 9, "count0": 4, "count1": 4, "count2": 4}
    with Recorder(device, limits) as recorder:
        x = Tensor(device.buffer(array), (symbol("rows"), 64), np.float32)
        firsts = 0, symbol("first1"), symbol("first1") + symbol("count1")
        strands = []
        for i, first in enumerate(firsts):
            part = x.rows(first, symbol(f"count{i}"))
            strands.append(Strand(partial(gated, part), first, symbol(f"count{i}"), f"count{i}"))
        y = recorder.stack(strands, symbol("rows"))
        z = ops.add(y, y)
    waits = [launch.waits for launch in recorder.program.listing()]
    assert waits == [False] * 3 + [True, False, False, True]
    want = 2 * ops.softmax(ops.swiglu(array, array, device=device), device=device)
    for counts in ((2, 3, 4), (2, 0, 3), (0, 4, 0), (4, 1, 1)):
        symbols = {f"count{i}": count for i, count in enumerate(counts)}
        rows = sum(counts)
        recorder.program.run(rows=rows, first1=counts[0], **symbols)
        got = z.memory.read()[: rows * 64].reshape(rows, 64)
        np.testing.assert_array_equal(got, want[:rows])


def test_rows_of_strided_rows(device: pyturbo.Device) -> None:
    array = np.arange(60, dtype=np.float32).reshape(10, 6)
    with Recorder(device, {}) as recorder:
        whole = ops.add(*[Tensor(device.buffer(array), array.shape, np.float32)] * 2)
        part = whole.columns(2, 4).rows(3, 5)
        assert (part.shape, part.stride) == ((5, 4), 6)
        q, _ = ops.qk_norm(part.reshape(5, 1, 4), part.reshape(5, 1, 4))
    recorder.program.run()
    rows = np.ascontiguousarray(2 * array[3:8, 2:]).reshape(5, 1, 4)
    want, _ = ops.qk_norm(rows, rows, device=device)
    np.testing.assert_array_equal(q.memory.read()[:20].reshape(want.shape), want)


def test_one_of_strided_rows(device: pyturbo.Device) -> None:
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    with Recorder(device, {}) as recorder:
        whole = ops.add(*[Tensor(device.buffer(array), array.shape, np.float32)] * 2)
        part = whole.columns(2, 4).rows(3)
        y = ops.add(part, part)
    recorder.program.run()
    np.testing.assert_array_equal(y.memory.read()[:4], 4 * array[3, 2:])
