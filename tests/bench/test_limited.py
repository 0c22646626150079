"""``pyturbo bench peers --only limited``: groups that limit memory, and the file for llama.cpp.

Does not catch: wrong times; a GGUF file that llama.cpp refuses.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from pyturbo.bench import memory_group
from pyturbo.bench.memory_group import MemoryGroup, drop_cached
from pyturbo.bench.peers import contender, limited, random_gguf, random_moe
from pyturbo.bench.peers.child import token_ids
from pyturbo.bench.peers.plan import LLAMA, Plan
from pyturbo.bench.peers.rows import Report
from pyturbo.bench.peers.run_llama import LlamaRunner
from pyturbo.bench.peers.run_pyturbo import PyturboRunner
from pyturbo.bench.stream import synthetic
from pyturbo.checkpoint import open_checkpoint
from pyturbo.errors import StateError
from pyturbo.model import load

SHAPE = random_moe.Shape(128, 4, 4096, 4, 2, 64, 2, 4, 64, 16, 2, 64, 64)

PLAN = Plan(threads=(1,), rounds=1, tokens=2, context=3, prompt=8)

#: Answers as child.py does: reads a token a millisecond.
FAKE = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["do"] == "load":
        assert request["path"].endswith(".gguf") and len(request["ids"]) == 24
    print(json.dumps({"facts": {}} if request["do"] == "load" else {"seconds": request["tokens"] / 1000}))
    sys.stdout.flush()
"""


def test_the_file_for_llama_has_every_tensor(tmp_path: Path) -> None:
    synthetic.write(tmp_path / "packed", SHAPE)
    with synthetic.stored(tmp_path / "packed") as arrays:
        assert arrays.keys() == random_moe.tensors(SHAPE).keys()
        random_gguf.write(tmp_path / "model.gguf", SHAPE, arrays)
        name = "language_model.model.layers.3.mlp.switch_mlp.up_proj"
        parts = [np.ascontiguousarray(arrays[f"{name}.{kind}"]) for kind in ("weight", "scales", "biases")]
    with open_checkpoint(tmp_path / "model.gguf") as made:
        experts = made["blk.3.ffn_up_exps.weight"]
        assert experts.dtype == "Q4_1"
        np.testing.assert_array_equal(experts[:], random_gguf._blocks(*parts))
        assert made["blk.0.ffn_gate_inp.weight"].shape == (SHAPE.experts, SHAPE.hidden)
        assert made["blk.0.ffn_gate_inp_shexp.weight"].shape == (SHAPE.hidden,)


def test_both_files_give_the_same_logits(tmp_path: Path) -> None:
    """The GGUF file is read by pyturbo too."""
    arrays = random_moe.tensors(SHAPE)
    random_moe.write(tmp_path / "mlx", SHAPE, arrays)
    random_gguf.write(tmp_path / "model.gguf", SHAPE, arrays)
    want, got = (load(tmp_path / name, kv="f32").logits(range(40)) for name in ("mlx", "model.gguf"))
    assert np.abs(got - want).max() <= 1e-3 * want.std()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system has no /proc")
def test_no_file_stays_mapped(tmp_path: Path) -> None:
    """Pages of mapped files stay in memory, and would count as nobody's in a group."""
    limited._write(tmp_path, SHAPE)
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_each_contender_has_its_memory_and_mode(tmp_path: Path) -> None:
    packed = str(tmp_path / "packed")
    assert limited._contenders(tmp_path, 5) == {
        "pyturbo default": ("pyturbo", {"path": packed, "precision": "default", "memory": 5}),
        "pyturbo fast": ("pyturbo", {"path": packed, "precision": "fast", "memory": 5}),
        "pyturbo mapped": ("pyturbo", {"path": packed, "precision": "default", "mode": "mapped"}),
        "llama.cpp": ("llama", {"path": str(tmp_path / "model.gguf")}),
    }


class Noting:
    """Takes the place of a contender, and keeps what it is told to read."""

    made: list[Noting]

    def __init__(self, name: str, *options: Any, **more: Any) -> None:
        self.name, self.failure, self.facts = name, "", {}
        self.ids: list[int] = []
        self.read: list[range] = []
        Noting.made.append(self)

    def __enter__(self) -> Noting:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def load(self, ids: list[int], room: int, **options: Any) -> None:
        self.ids = ids
        self.read.append(range(room))

    def portion(self, tokens: int) -> int:
        return tokens

    def seconds(self, do: str, first: int, tokens: int, context: int = 0) -> float:
        self.read.append(range(first, first + context + tokens))
        return 1.0


def test_no_tokens_are_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Caches would hold the experts that they need; all contenders read the same in a round."""
    monkeypatch.setattr(limited, "Contender", Noting)
    monkeypatch.setattr(limited, "MemoryGroup", lambda nbytes: nullcontext())
    monkeypatch.setattr(limited, "_require_disk", lambda folder, nbytes: None)
    monkeypatch.setattr(limited, "_write", lambda folder, shape: None)
    Noting.made = []
    limited.limited(replace(PLAN, rounds=3), Report(), lambda what: None, SHAPE)
    one, *others = Noting.made
    assert len(others) == 3
    assert all((other.ids, other.read) == (one.ids, one.read) for other in others)
    read = [token for stretch in one.read for token in stretch]
    assert len(one.read) == 1 + 2 * 3
    assert len(set(read)) == len(read)
    assert max(read) < len(one.ids)


def test_runners_begin_where_they_are_told() -> None:
    read: list[list[int]] = []
    session = SimpleNamespace(
        prefill=lambda ids: read.append(ids.tolist()), step=lambda token: read.append([token])
    )
    model = SimpleNamespace(network=SimpleNamespace(vocab=99), session=lambda room: session)
    ours = PyturboRunner(model, 4, range(10, 30))
    theirs = LlamaRunner(Mock(), None, token_ids(99, 4, range(10, 30)))
    theirs._read = lambda ids: read.append(ids.tolist())
    for runner in (ours, theirs):
        runner.prefill(first=5, tokens=3)
        runner.decode(first=8, context=2, tokens=2)
        assert read == [[15, 16, 17], [18, 19], [20], [21]]
        read.clear()


@pytest.mark.slow
def test_contenders_run_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, processes = [], []

    @contextmanager
    def group(nbytes: int) -> Iterator[SimpleNamespace]:
        limits.append(nbytes)
        yield SimpleNamespace(add=processes.append)

    ours = contender.command
    fake = [sys.executable, "-c", FAKE]
    monkeypatch.setattr(contender, "command", lambda kind: ours(kind) if kind == "pyturbo" else fake)
    monkeypatch.setattr(limited, "MemoryGroup", group)
    monkeypatch.setattr(limited, "_file_system", lambda folder: "ext4")
    monkeypatch.setattr(limited, "TIMES", 1e-3)
    report = Report()
    limited.limited(PLAN, report, lambda what: None, SHAPE)
    assert len(set(processes)) == 4
    assert len(set(limits)) == 1
    assert limits[0] == 1000 * SHAPE.layers * synthetic.expert_bytes(SHAPE)
    assert [row.peer for row in report.rows] == 2 * ([LLAMA] * 2 + [limited.MAPPED] * 2)
    for row in report.rows:
        assert (row.note, row.goal) == ("", 2.0)
        assert row.figure > 0
        assert row.ratio == pytest.approx(row.figure / row.peer_figure)


def test_without_groups_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory_group, "_OWN", tmp_path / "none")
    report = Report()
    limited.limited(PLAN, report, lambda what: None)
    assert len(report.rows) == 8
    for row in report.rows:
        assert row.met is None
        assert "pyturbo default: no limit of" in row.note or "pyturbo fast: no limit of" in row.note


@pytest.mark.parametrize(
    ("kind", "free", "wanted"),
    [("tmpfs", 1 << 60, "expected a folder on a disk, got tmpfs"), ("ext4", 10**9, "expected room for 8.")],
)
def test_without_a_disk_nothing_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, free: int, wanted: str
) -> None:
    device = tmp_path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    (tmp_path / "mounts").write_text(
        f"1 0 0:99999 / /other rw - ramfs none rw\n2 1 {number} / / rw shared:1 - {kind} /dev/a rw\n"
    )
    monkeypatch.setattr(limited, "_MOUNTS", tmp_path / "mounts")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
    monkeypatch.setattr(limited, "MemoryGroup", lambda nbytes: nullcontext())
    monkeypatch.setattr(limited, "_write", lambda *arguments: pytest.fail("written"))
    report = Report()
    limited.limited(PLAN, report, lambda what: None)
    assert len(report.rows) == 8
    for row in report.rows:
        assert row.met is None
        assert wanted in row.note


def test_the_file_system_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "_MOUNTS", tmp_path / "absent")
    assert limited._file_system(tmp_path) == ""


def test_a_contender_that_cannot_be_limited_is_ended() -> None:
    def refuse(process: int) -> None:
        raise PermissionError("not permitted")

    with contender.Contender("one", "pyturbo", 1, group=SimpleNamespace(add=refuse)) as one:
        one.load(path="")
        assert one.failure == "its memory cannot be limited: not permitted"
        assert one.seconds("prefill", tokens=5) is None
        assert one._process.poll() is not None


def test_a_group_limits_memory() -> None:
    """A process that takes more than its limit is stopped."""
    script = "input(); block = bytearray(200_000_000); block[::4096] = b'1' * len(block[::4096])"
    try:
        group = MemoryGroup(100_000_000)
    except StateError as error:
        pytest.skip(str(error))
    with group:
        for inside in (False, True):
            process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE)
            if inside:
                group.add(process.pid)
            process.communicate(b"\n")
            assert (process.returncode != 0) == inside
    assert not group.path.exists()


def test_a_refused_group_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder that is no control group has no file for the limit."""
    (tmp_path / "own").write_text("0::/a/b\n5:cpu:/c\n")
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.setattr(memory_group, "_OWN", tmp_path / "own")
    monkeypatch.setattr(memory_group, "_ROOT", tmp_path)
    with pytest.raises(StateError, match=r"no limit of 5 B: .*No such file.*memory\.max"):
        MemoryGroup(5)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "own"]


def test_files_are_synced_then_dropped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pages that are not on the disk yet cannot be dropped."""
    calls: list[tuple[Any, ...]] = []

    def sync(file: int) -> None:
        calls.append(("sync", os.fstat(file).st_ino))

    def advise(file: int, offset: int, length: int, advice: int) -> None:
        calls.append(("advise", os.fstat(file).st_ino, offset, length, advice))

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "posix_fadvise", advise, raising=False)
    monkeypatch.setattr(os, "POSIX_FADV_DONTNEED", 4, raising=False)
    files = [tmp_path / name for name in ("one", "two")]
    for path in files:
        path.write_bytes(b"12345")
    drop_cached(files)
    numbers = [path.stat().st_ino for path in files]
    assert calls == [call for i in numbers for call in (("sync", i), ("advise", i, 0, 0, 4))]
    assert [path.read_bytes() for path in files] == [b"12345"] * 2
