"""Experts that are read while a replay runs: find_slots, an ExpertStore and passes, on every device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pyturbo
from pyturbo import ops
from pyturbo._experts import ExpertStore
from pyturbo.recording import Recorder, Tensor
from pyturbo.symbols import symbol

LAYERS, EXPERTS, OUT, IN, TOP, TOKENS = 5, 7, 24, 40, 2, 6
STRIDE = 16384


def write(folder: Path) -> tuple[np.ndarray, list[tuple[Path, int]]]:
    """Write one record for each expert, its weights and padding, and return the weights of all layers."""
    weights = np.random.default_rng(3).standard_normal((LAYERS, EXPERTS, OUT, IN), np.float32)
    files = []
    for layer, experts in enumerate(weights):
        records = np.zeros((EXPERTS, STRIDE), np.uint8)
        records[:, : OUT * IN * 4] = experts.reshape(EXPERTS, -1).view(np.uint8)
        records.tofile(folder / f"{layer}.bin")
        files.append((folder / f"{layer}.bin", EXPERTS))
    return weights, files


@pytest.mark.parametrize("slots", [1, 3, 2 * LAYERS * EXPERTS])
def test_passes_over_slots(device: pyturbo.Device, tmp_path: Path, slots: int) -> None:
    """Results have the bits of experts that are all in memory, however few slots there are."""
    weights, files = write(tmp_path)
    slab, tables = device.shared(slots * STRIDE, "uint8"), device.shared((LAYERS, 5, 8), "int32")
    stack = np.ndarray((slots, OUT, IN), np.float32, slab.numpy(), 0, (STRIDE, IN * 4, 4))
    source, chosen = device.empty((TOKENS, IN)), device.empty((LAYERS, TOKENS, TOP), "int32")
    results = [device.empty((TOKENS, TOP, OUT)) for _ in range(LAYERS)]
    tokens = symbol("tokens")
    with ExpertStore(files, STRIDE, slab, tables, threads=2) as store:
        with Recorder(device, {"tokens": TOKENS}) as recorder:
            x = Tensor(source, (tokens, IN), np.float32)
            for layer in range(LAYERS):
                table, counts, found, missing = (
                    Tensor(tables.view(count, dtype, offset=4 * 8 * (5 * layer + row)), (count,), dtype)
                    for row, (count, dtype) in enumerate(
                        [(EXPERTS, "int32"), (EXPERTS, "uint32"), (EXPERTS, "int32"), (1, "uint32")]
                    )
                )
                part = chosen.view((TOKENS, TOP), "int32", offset=4 * layer * TOKENS * TOP)
                ids = Tensor(part, (tokens, TOP), np.int32)
                ops.find_slots(ids, table, counts, found, missing)  # type: ignore[arg-type]
                recorder.ask(store.loop(layer))
                with recorder.passes():
                    y = ops.dense_experts_matmul(x, ids, stack, slots=found)  # type: ignore[arg-type]
                recorder.launch("add", (y, y, results[layer], tokens * (TOP * OUT)), None)
        rng = np.random.default_rng(5)
        for count in (1, TOKENS, 1, 1, 4):
            inputs = rng.standard_normal((count, IN), np.float32)
            choices = rng.integers(0, EXPERTS, (LAYERS, count, TOP), np.int32)
            source.view(inputs.shape).write(inputs)
            for layer in range(LAYERS):
                chosen.view((count, TOP), offset=4 * layer * TOKENS * TOP).write(choices[layer])
                results[layer].write(np.nan)
            recorder.program.run(tokens=count)
            for layer in range(LAYERS):
                y = ops.dense_experts_matmul(inputs, choices[layer], weights[layer], device=device)
                got = results[layer].numpy().reshape(-1)[: y.size]
                assert got.tobytes() == (y + y).tobytes()
        stats = store.stats()
    assert all(row["misses"] > 0 for row in stats)
    assert slots <= 3 or all(row["hits"] > 0 for row in stats)
