"""The random models of `bench stream`, and the figures it takes of them.

Does not catch: wrong times.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO
from unittest.mock import Mock
from xml.etree.ElementTree import fromstring, parse

import numpy as np
import pytest
from numpy.typing import NDArray

import pyturbo
from packed_models import write_large
from pyturbo._machine import resident_memory
from pyturbo.bench.picture import Drawing
from pyturbo.bench.stream import synthetic
from pyturbo.bench.stream.hits import ExpertMap, draw
from pyturbo.bench.stream.measure import Details, Point, measure, needed_tokens
from pyturbo.bench.text import TEXT
from pyturbo.cli import main
from pyturbo.cli.bench import stream
from pyturbo.errors import FileError
from pyturbo.streaming import Policy
from pyturbo.streaming.disk_probe import probe_reads
from trace_events import read_trace

SVG = "{http://www.w3.org/2000/svg}"

SHAPE = replace(
    synthetic.SHAPE, hidden=256, layers=4, vocab=4096, heads=4, head_dim=64, key_heads=2, value_heads=4,
    experts=64, chosen=4, expert_inner=64, shared_inner=64, context=1024,
)  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stream") / "model"
    synthetic.write(folder, SHAPE)
    return folder


def test_a_random_model_is_a_valid_pack(model: Path) -> None:
    assert pyturbo.pack.verify(model).findings == ()
    layer = (model / "experts" / "layer-000.bin").stat().st_size
    assert layer == synthetic.expert_bytes(SHAPE)


def test_routers_choose_unevenly(model: Path) -> None:
    """A quarter of the experts of a layer, the ones used last, has most of what the next token needs."""
    with pyturbo.load(model, "cpu", policy=Policy(mode="stream")) as loaded:
        session, experts = loaded.session(512), loaded.runner.budget.experts
        before = experts.counts()
        recent: list[list[int]] = [[] for _ in before]
        hits = needed = 0
        for step, token in enumerate(synthetic.text(200)):
            session.step(int(token))
            now = experts.counts()
            for layer, (then, since) in enumerate(zip(before, now)):
                chosen = np.flatnonzero(then != since).tolist()
                if step >= 100:
                    needed += len(chosen)
                    hits += len(set(chosen) & set(recent[layer][-16:]))
                recent[layer] = [expert for expert in recent[layer] if expert not in chosen] + chosen
            before = now
    assert 0.45 < hits / needed < 0.85


def test_more_memory_has_more_hits(model: Path) -> None:
    ids = synthetic.text(192)
    few, many, every = (
        measure(model, share, ids, 128, 32, Policy(ahead=share < 0.5), pyturbo.Device("cpu"))
        for share in (0.1, 0.5, 1.0)
    )
    assert few.hit_rate < many.hit_rate < every.hit_rate
    assert few.token_bytes > many.token_bytes > every.token_bytes
    assert every.slot_bytes == 4 * synthetic.expert_bytes(SHAPE)
    # 128 tokens are one chunk: each expert is read once, and few that were expected in vain.
    assert 1.0 <= few.prefill_reads < 1.05
    for point in (few, many, every):
        assert point.decode > 0
        assert 0 <= point.busy <= 1


class StandInFigure:
    """Takes the place of matplotlib's, as far as these tests look at it."""

    def __init__(self, **options: Any) -> None:
        self.axes = (Mock(), Mock())

    def subplots(self, *shape: int, **options: Any) -> tuple[Mock, Mock]:
        return self.axes

    def savefig(self, file: BinaryIO, **options: Any) -> None:
        shares, speeds = self.axes[0].plot.call_args.args[:2]
        file.write(f"<?xml {options['metadata']['Creator']}: {shares} {speeds}".encode())


def test_the_command_measures_and_plots(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("matplotlib.figure")
    module.Figure = StandInFigure  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", module)
    open_device = Mock(side_effect=stream.open_device)
    monkeypatch.setattr(stream, "open_device", open_device)
    picture = tmp_path / "speeds.svg"
    small = ["--shares", "25,100", "--prompt", "16", "--tokens", "4"]
    assert main(["bench", "stream", str(model), *small, "--plot", str(picture), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert [point["share"] for point in facts["points"]] == [0.25, 1.0]
    assert facts["disk_bytes_per_second"] > 0
    open_device.assert_called_once()
    speeds = [point["decode"] for point in facts["points"]]
    assert picture.read_text() == f"<?xml pyturbo bench stream: [25.0, 100.0] {speeds}"


def test_a_model_with_a_tokenizer_reads_english(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    read: list[list[int]] = []

    def noted(path: Path, share: float, ids: NDArray[np.int64], *options: Any) -> Point:
        read.append(ids.tolist())
        return measure(path, share, ids, *options)

    monkeypatch.setattr(stream, "measure", noted)
    monkeypatch.setattr(stream, "probe_reads", lambda files, seconds: probe_reads(files, seconds=0.1))
    packed = write_large(tmp_path, megabytes=5)
    small = ["--shares", "50", "--prompt", "600", "--tokens", "2", "--json"]
    for folder in (packed, model):
        assert main(["bench", "stream", str(folder), *small]) == 0
    monkeypatch.setattr(synthetic, "SHAPE", SHAPE)
    assert main(["bench", "stream", "--folder", str(tmp_path), "--layers", "4", *small]) == 0
    text = pyturbo.load().tokenizer.encode(TEXT)
    assert len(text) < needed_tokens(600, 2) == 603
    assert read[0] == (2 * text)[:603]
    assert max(np.bincount(read[1])) < 5  # random tokens
    assert read[2] == synthetic.text(603).tolist()


def test_hits_by_expert_add_up(model: Path) -> None:
    ids, details = synthetic.text(needed_tokens(16, 8, 2)), Details(traced=2)
    point = measure(model, 0.2, ids, 16, 8, Policy(), pyturbo.Device("cpu"), details=details)
    use, layers = details.use, range(SHAPE.layers)
    assert use is not None
    assert use.layers == tuple(f"layers.{i}" for i in layers)
    assert [int(row.sum()) for row in use.uses] == [8 * SHAPE.chosen] * SHAPE.layers
    needed, hits = 8 * SHAPE.chosen * SHAPE.layers, sum(int(use.hits(i).sum()) for i in layers)
    assert 0 < hits / needed == pytest.approx(point.hit_rate)
    assert details.profile is not None
    assert [e.name for e in details.profile.timeline if e.kind == "replay"] == ["1 token"] * 2


def test_a_picture_of_hits() -> None:
    uses = (np.array([0, 4, 1, 7]), np.array([2, 2, 0, 8]))
    reads = (np.array([0, 4, 0, 0]), np.array([1, 2, 0, 0]))
    picture = fromstring(draw(ExpertMap(("layers.3", "layers.5"), uses, reads), tokens=6, share=0.25))
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert {"layers.3", "layers.5", "67%", "75%", "71% of 24 uses were hits"} <= set(texts)
    rows: dict[float, list[str]] = {}  # colours by y, from left to right
    cells = [
        (float(x), float(y), path.get("fill") or "")
        for path in picture.iter(f"{SVG}path")
        for x, y in re.findall(r"M([0-9.]+) ([0-9.]+)h", path.get("d") or "")
    ]
    for _, y, colour in sorted(cells):
        rows.setdefault(y, []).append(colour)
    often_hit, rarely_hit, missed, rarely_missed = "#185aa8", "#aec5e1", "#df8151", "#e8a684"
    half, unused = "#c3a9c0", "#f1f1f1"
    assert list(rows.values()) == [
        [often_hit, missed, rarely_hit, unused],
        [often_hit, half, rarely_missed, unused],
    ]


def test_only_drawings_of_the_command_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "hits.svg"
    for text in ("one", "another"):
        Drawing("bench stream", path, "hits").save(f"<svg>{text}</svg>")
    assert "<svg>another</svg>" in path.read_text()
    with pytest.raises(FileError, match="exists and is not a plot of this command"):
        Drawing("bench kv", path, "hits")


def test_the_command_draws_and_traces(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hits, timeline, trace = (tmp_path / name for name in ("hits.svg", "timeline.svg", "trace.json"))
    command = ["bench", "stream", str(model), "--shares", "25", "--prompt", "16", "--tokens", "4"]
    files = ["--hits", str(hits), "--timeline", str(timeline), "--trace", str(trace)]
    assert main([*command, *files]) == 0
    assert "Experts that 4 tokens chose, with room for 25% of them" in hits.read_text()
    titles = [title.text or "" for title in parse(timeline).iter(f"{SVG}title")]
    assert {"layers.0.mlp", "layers.3.self_attn", "embed", "head"} <= {text.split(",")[0] for text in titles}
    assert any("wait for reads" in text for text in titles)
    assert any(re.match(r"layers\.[0-3] expert \d+, ", text) for text in titles)
    replays = [entry for entry in read_trace(trace) if entry.get("cat") == "replay"]
    assert len(replays) == 4
    capsys.readouterr()
    for arguments, message in (
        (["--shares", "25,50", *files], "--hits: expected one share, as in --shares 10, got 2"),
        (["--shares", "25,50", "--trace", str(trace)], "--trace: expected one share"),
        (["--hits", str(hits), "--ahead"], "--hits: cannot be combined with --ahead"),
        (["--hits", str(hits), "--timeline", f"{tmp_path}/./hits.svg"], "--timeline: expected a file other"),
        (["--plot", str(hits), "--hits", str(hits)], "--hits: expected a file other than that of --plot"),
        (["--trace", str(hits), "--hits", str(hits)], "--trace: expected a file other than that of --hits"),
        (["--timeline", str(trace)], "--timeline: expected a name that ends in .svg, got"),
        (
            ["--trace", str(trace), "--prompt", "1016"],
            "before those that are measured and the 4 of the timeline",
        ),
    ):
        assert main([*command, *arguments]) == 2
        assert message in capsys.readouterr().err
    for arguments, message in (
        (["--trace", str(hits)], "exists and is not a trace of pyturbo"),
        (["--hits", str(tmp_path / "missing" / "hits.svg")], "expected a folder to write to, found none"),
    ):
        assert main([*command, *arguments]) == 1
        assert message in capsys.readouterr().err


def test_only_a_probe_changes_what_is_known_of_a_disk(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTURBO_CACHE", str(tmp_path / "cache"))
    assert main(["bench", "stream", str(model), "--shares", "50", "--prompt", "8", "--tokens", "2"]) == 0
    assert not (tmp_path / "cache").exists()
    out = " ".join(capsys.readouterr().out.split())
    for column in ("reads per", "read per", "of disk", "busy,"):
        assert column in out


def test_each_shape_has_its_own_fingerprint() -> None:
    shapes = (SHAPE, replace(SHAPE, layers=5), replace(SHAPE, experts=32))
    assert len({synthetic.fingerprint(shape) for shape in shapes}) == 3
    assert synthetic.fingerprint(SHAPE) == synthetic.fingerprint(replace(SHAPE))


def test_the_fingerprint_is_in_the_manifest(model: Path) -> None:
    manifest = json.loads((model / "packed.json").read_text())
    assert manifest["source"] == {"fingerprint": synthetic.fingerprint(SHAPE)}


@pytest.mark.skipif(resident_memory() is None, reason="this system does not say how much memory is in use")
def test_memory_is_that_of_the_moment(model: Path) -> None:
    ids = synthetic.text(needed_tokens(8, 2))
    memory = np.ones(100 << 20, np.uint8)
    with_memory = measure(model, 0.5, ids, 8, 2, Policy(), pyturbo.Device("cpu")).memory
    del memory
    without = measure(model, 0.5, ids, 8, 2, Policy(), pyturbo.Device("cpu")).memory
    assert without < with_memory - (50 << 20)


@pytest.mark.parametrize("named", [True, False])
def test_what_cannot_be_measured_is_found_at_once(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    named: bool,
) -> None:
    def unexpected(*arguments: object, **options: object) -> None:
        raise AssertionError("expected an error before any work")

    monkeypatch.setattr("pyturbo.cli.bench.stream.probe_reads", unexpected)
    monkeypatch.setattr("pyturbo.bench.stream.synthetic.write", unexpected)
    target = [str(model)] if named else []
    context = 1024 if named else 32768
    assert main(["bench", "stream", *target, "--prompt", str(context - 2), "--tokens", "2"]) == 2
    wanted = f"expected up to {context} tokens, the context of the model, got {context + 1} with the 1 before"
    assert wanted in capsys.readouterr().err
    assert main(["bench", "stream", *target, "--folder", str(tmp_path / "missing")]) == 2
    wanted = "are only valid without MODEL" if named else "--folder: expected a folder that exists, got"
    assert wanted in capsys.readouterr().err
    for wrong in (["--device", "abacus"], ["--threads", "0"]):
        assert main(["bench", "stream", *target, *wrong]) == 2
        assert f"{wrong[0]}: expected" in capsys.readouterr().err


def test_a_model_that_is_not_packed_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "stream", str(pyturbo.model.default_model())]) == 2
    assert "expected a packed model" in capsys.readouterr().err


def test_shares_above_all_are_wrong_usage(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "stream", str(model), "--shares", "50,101"]) == 2
    assert "--shares: expected 1 to 100 percent, got 101" in capsys.readouterr().err
