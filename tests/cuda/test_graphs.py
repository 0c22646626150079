"""Programs as CUDA graphs through soft CUDA: edges, updates, the time of launches."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import cuda_in_tests
import pyturbo
from pyturbo.symbols import Launch, Place, symbol

if not cuda_in_tests.IN_USE:
    pytest.skip("soft CUDA is not in use", allow_module_level=True)

from cuda_calls import full, made_since
from pyturbo import _soft_cuda_tests as soft_cuda


def test_a_program_is_one_graph_with_the_edges_it_needs(cuda: pyturbo.Device) -> None:
    a, b, c, d = (full(cuda, i) for i in range(1, 5))
    program = pyturbo.Program(cuda)
    kernel = cuda.kernel("add")
    for x, y in ((a, b), (a, c), (b, d), (c, a)):
        program.add(kernel, x, x, y, 64)
    soft_cuda.reset()
    for _ in range(2):
        program.run()
    counters = soft_cuda.counters()
    assert (counters["graphs"], counters["graph_launches"], counters["nodes"]) == (1, 2, 8)
    # d follows b; a is written after both b and c have been computed from it
    assert (counters["edges"], counters["needless_edges"]) == (2 * 3, 0)
    assert counters["node_updates"] == 0
    assert [x.read()[0] for x in (a, b, c, d)] == [16, 8, 8, 16]


@pytest.mark.parametrize(("capability", "newest", "early"), [(90, 90, 2), (89, 90, 0), (90, 89, 0)])
def test_what_never_changes_starts_early_and_waits(capability: int, newest: int, early: int) -> None:
    """Kernels wait themselves if they are compiled for compute capability 9.0 or newer."""
    options: dict[str, Any] = {"capability": capability, "archs": [75, 80, newest]}
    soft_cuda.set_options(**options)
    with pyturbo.Device("cuda") as cuda:
        a, b, c, d = full(cuda, 1), *(cuda.empty(64) for _ in range(3))
        program = pyturbo.Program(cuda, symbols=("count",))
        kernel = cuda.kernel("add")
        program.add(kernel, a, a, b, 64)
        program.add(kernel, b, b, c, 64)
        program.add(kernel, c, c, d, symbol("count"))
        program.add(kernel, c, b, a, 64)
        soft_cuda.reset()
        soft_cuda.set_options(**options)
        for count in (64, 10):
            program.run(count=count)
        counters = soft_cuda.counters()
        assert (counters["graphs"], counters["edges"], counters["early_edges"]) == (1, 2 * 3, early)
        assert [x.read()[9] for x in (a, b, c, d)] == [36, 12, 24, 48]


def test_every_order_that_the_edges_allow_gives_the_same(cuda: pyturbo.Device) -> None:
    rng = np.random.default_rng(5)
    places = rng.integers(0, 6, (40, 3))

    def run(device: pyturbo.Device) -> list[float]:
        buffers = [full(device, i / 8) for i in range(6)]
        program = pyturbo.Program(device)
        for i, j, k in places:
            program.add(device.kernel("add"), buffers[i], buffers[j], buffers[k], 64)
        program.run()
        return [float(buffer.read()[9]) for buffer in buffers]

    want = run(pyturbo.Device("cpu", threads=1))
    for seed in range(5):
        soft_cuda.set_options(seed=seed)
        assert run(cuda) == want


def test_only_what_changed_is_updated(cuda: pyturbo.Device) -> None:
    a, b, c = full(cuda, 1), cuda.empty(64), cuda.empty(256)
    program = pyturbo.Program(cuda, symbols=("count",), blocks=("block",))
    kernel = cuda.kernel("add")
    program.add(kernel, a, a, b, 64)
    program.add(kernel, a, b, c.view(64, offset=0), symbol("count"))
    blocks = [full(cuda, 3), full(cuda, 5)]
    program.add(kernel, Place("block", 0, 256), a, c.view(64, offset=512), 64)
    updates = []
    for count, block in ((64, 0), (64, 0), (10, 0), (10, 1), (20, 1)):
        soft_cuda.reset()
        program.run([blocks[block]], count=count)
        updates.append(soft_cuda.counters()["node_updates"])
    assert updates == [0, 0, 1, 1, 1]
    assert c.read()[128] == 6


def test_a_decode_step_updates_few_nodes(cuda: pyturbo.Device) -> None:
    """Two for each layer with attention, the embedding, and the largest logits, which take turns."""
    with pyturbo.load(device=cuda) as model:
        session = model.session(512)
        session.prefill([1, 2, 3])
        session.step(4)
        soft_cuda.reset()
        session.step(5)
        counters = soft_cuda.counters()
        attention = sum(launch.kernel == "rope_append_f16" for launch in launches(model))
    assert attention == 2
    assert counters["node_updates"] == 2 * attention + 2
    assert (counters["graph_launches"], counters["launches"]) == (1, 0)
    assert (counters["copies_in"], counters["copies_out"]) == (1, 1)


def launches(model: pyturbo.Model) -> Sequence[Launch]:
    """The launches of the program of a decode step."""
    with model.runner.program(512, 1, "last") as (_, graph):
        return graph.program.listing()


def test_a_launch_without_threadgroups_is_left_out(cuda: pyturbo.Device) -> None:
    a, b, c, d = full(cuda, 1), cuda.empty(64), cuda.empty(64), cuda.empty(64)
    program = pyturbo.Program(cuda, symbols=("count",))
    kernel = cuda.kernel("add")
    program.add(kernel, a, a, b, 64)
    program.add(cuda.kernel("threadgroup_argument"), b, c, symbol("count"))
    program.add(kernel, b, b, d, 64)
    for count, nodes in ((0, 2), (1, 3), (0, 2)):
        soft_cuda.reset()
        program.run(count=count)
        assert soft_cuda.counters()["nodes"] == nodes
    assert (c.read()[0], d.read()[63]) == (128, 4)


def test_memory_of_the_host_as_a_block_keeps_no_graph_away(cuda: pyturbo.Device) -> None:
    a, b = full(cuda, 1), cuda.empty(64)
    program = pyturbo.Program(cuda, blocks=("block",))
    program.add(cuda.kernel("add"), Place("block", 0, 256), a, b, 64)
    on_host = cuda.buffer(np.full(64, 3, np.float32))
    for block, graphs, value in (
        (on_host, 0, 4),
        (full(cuda, 5), 1, 6),
        (on_host, 0, 4),
        (full(cuda, 7), 1, 8),
    ):
        soft_cuda.reset()
        program.run([block])
        assert soft_cuda.counters()["graph_launches"] == graphs
        assert b.read()[0] == value


def test_a_longer_program_is_a_new_graph(before: Counter[str], cuda: pyturbo.Device) -> None:
    a, b = full(cuda, 1), cuda.empty(64)
    program = pyturbo.Program(cuda)
    for length in (1, 2, 3):
        program.add(cuda.kernel("add"), a, b, b, 64)
        program.run()
        assert b.read()[0] == length * (length + 1) / 2
    assert made_since(before)["graph"] == made_since(before)["graph exec"] == 1
    del program
    assert made_since(before)["graph"] == made_since(before)["graph exec"] == 0


def test_times_of_launches(cuda: pyturbo.Device) -> None:
    a, b = full(cuda, 1), cuda.empty(64)
    program = pyturbo.Program(cuda)
    for _ in range(5):
        program.add(cuda.kernel("add"), a, b, b, 64)
    begin = time.perf_counter()
    replay = program.timeline()
    wall = time.perf_counter() - begin
    moments = [moment for run in replay.runs for moment in (run.begin, run.end)]
    assert len(moments) == 10
    assert moments == sorted(moments)
    assert replay.begin <= moments[0]
    assert moments[-1] <= replay.end <= replay.begin + wall
    assert b.read()[0] == 5
    assert soft_cuda.counters()["launches"] == 5
