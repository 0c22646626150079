"""``pyturbo bench kv``: figures are there and possible. What quality should be, test_kv_quality.py says."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, BinaryIO
from unittest.mock import Mock

import numpy as np
import pytest

import pyturbo
from pyturbo.bench.kv import llama, plot, settings, timing
from pyturbo.bench.kv.quality import Comparison, Quality, Setting, Tally
from pyturbo.bench.kv.settings import Measurement, bytes_per_token, measurements
from pyturbo.cli import main
from pyturbo.cli._output import print_table
from pyturbo.cli.bench.kv import _measure, timing_table
from pyturbo.errors import FileError, FormatError, StateError
from pyturbo.layers.kv_cache import KV_FORMATS
from text.tiny_chat import write_model
from tiny_configs import MODELS
from tiny_models import write_hf

SETTINGS = ["f32", "f16", "turbo8", "turbo8v4", "turbo6v4", "turbo4", "turbo4v2"]


@pytest.mark.slow
def test_quality(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "WINDOW", 24)
    folder, text = str(write_model(tmp_path / "model")), tmp_path / "text.md"
    text.write_text("A story of a fox who went out to look for a friend. " * 9)
    command = ["bench", "kv", folder, "--text", str(text), "--windows", "2"]
    assert main([*command, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["kv"] for row in rows] == SETTINGS
    assert {row["tokens"] for row in rows} == {2 * 23}
    # 2 layers of 2 heads of 64 values, with a scale each; 16 rows of 64 float16 for every head, and the
    # numbers of their tokens for every layer, divided by 24 tokens.
    recent = (8 * 16 * 64 * 2 + 2 * 16 * 4) / 24
    compressed = [8 * (64 + 2), 4 * (64 + 32 + 4), 4 * (48 + 32 + 4), 8 * (32 + 2), 4 * (32 + 16 + 4)]
    sizes = [2048, 1024, *(round(size + recent) for size in compressed)]
    assert [row["bytes_per_token"] for row in rows] == sizes
    assert [row["bits"] for row in rows] == pytest.approx([size / 64 for size in sizes], abs=0.01)
    losses = [row["divergence"] for row in rows]
    assert losses[0] == 0 < losses[2] < losses[5] < losses[6]
    assert main([*command[:-1], "1"]) == 0
    shown = capsys.readouterr().out
    assert "turbo4v2" in shown
    assert "23 tokens predicted" in shown
    assert main([*command, "--only", "turbo2,turbo6v4", "--json"]) == 0
    few = json.loads(capsys.readouterr().out)
    assert [row["kv"] for row in few] == ["f32", "turbo2", "turbo6v4"]
    assert few[2] == rows[4]  # as with all of them
    for wrong, status, message in (
        (["--text", str(tmp_path / "absent")], 1, "text: cannot be read"),
        (["--text", str(text), "--windows", "0"], 2, "--windows: expected an integer from 1 on, got 0"),
        (["--plot", "a.png"], 2, "--plot: expected --text"),
        (["--windows", "3"], 2, "--windows: expected --text"),
        (["--peers"], 2, "--peers: expected --text"),
        (["--text", str(text), "--only", "q8_0"], 2, "--only: expected --peers with q8_0, a type of llama"),
        (["--text", str(text), "--only", "turbo5"], 2, "--only: kv: expected one of f32, "),
        ([], 2, "MODEL: expected --text"),
        (["--model", folder], 2, f"expected one model, got {folder} and --model {folder}"),
    ):
        assert main(["bench", "kv", folder, *wrong]) == status
        assert message in capsys.readouterr().err
    text.write_text("Too short.")
    assert main(command) == 1
    assert "bench kv: text: expected at least a window of" in capsys.readouterr().err


@pytest.mark.parametrize(("kv", "row"), [("f16", 2 * (128 + 16)), ("turbo4", 64 + 2 + 2 * 16 + 4 * (64 + 1))])
def test_bytes_of_latents(tmp_path: Path, kv: str, row: int) -> None:
    model = pyturbo.load(write_hf(MODELS["deepseek_v3"], tmp_path / "model"), "cpu")
    config = MODELS["deepseek_v3"].config
    assert (config["kv_lora_rank"], config["qk_rope_head_dim"]) == (128, 16)
    assert bytes_per_token(model, kv, 16) == config["num_hidden_layers"] * row  # 16 exact rows, for 16 tokens


class StandInLlama(ModuleType):
    """The C functions of llama.cpp that are used, for a vocabulary of five: logits tell the context apart."""

    GGML_TYPE_F32, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0 = 0, 2, 3, 6
    GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL = 7, 8, 20
    LLAMA_FLASH_ATTN_TYPE_ENABLED = 1

    def __init__(self) -> None:
        super().__init__("llama_cpp.llama_cpp")
        self.contexts: list[SimpleNamespace] = []
        self.freed: list[Any] = []
        self.llama_model_default_params = self.llama_context_default_params = SimpleNamespace
        self.llama_backend_init = lambda: None
        self.llama_model_load_from_file = lambda path, options: path
        self.llama_model_get_vocab = self.llama_get_memory = lambda given: given
        self.llama_vocab_n_tokens = lambda vocab: 5
        self.llama_model_free = self.llama_free = self.freed.append
        self.llama_log_callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self.loggers: list[Any] = []
        self.llama_batch_get_one = lambda tokens, count: list(tokens[:count])

    def llama_log_set(self, logger: Any, data: None) -> None:
        assert isinstance(logger, self.llama_log_callback)  # as ctypes has it, also for none
        self.loggers.append(logger)

    def llama_init_from_model(self, model: object, settings: SimpleNamespace) -> SimpleNamespace:
        self.contexts.append(settings)
        return settings

    def llama_memory_clear(self, context: SimpleNamespace, data: bool) -> None:
        context.read = []

    def llama_decode(self, context: SimpleNamespace, batch: list[int]) -> int:
        context.read += batch
        return int(len(context.read) > context.n_ctx)

    def llama_get_logits_ith(self, context: SimpleNamespace, i: int) -> Any:
        logits = (ctypes.c_float * 5)(*(0.01 * context.type_k * len(context.read) * j for j in range(5)))
        return ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandInLlama:
    found = StandInLlama()
    monkeypatch.setitem(sys.modules, "llama_cpp", ModuleType("llama_cpp"))
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_cpp", found)
    return found


def test_the_types_of_llama(tmp_path: Path, stand_in: StandInLlama, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is compared with llama.cpp's own float32, has its bits, and is opened when it is measured."""
    windows = np.array([[1, 2, 3, 4], [4, 3, 2, 1]], np.int32)
    monkeypatch.setattr(settings, "windows_of", lambda *given: windows)
    model, device = write_model(tmp_path / "model"), pyturbo.Device("cpu", threads=3)
    with measurements(model, device, [], 2, 4, [], llama.CACHES) as work:
        assert not stand_in.contexts
        plain, eight, mixed, *_, four = (each.run() for each in work)
        assert len(stand_in.contexts) == len(work) == 1 + len(llama.CACHES)
        assert all((c.n_ctx, c.flash_attn_type, c.n_threads) == (4, 1, 3) for c in stand_in.contexts)
        assert stand_in.contexts[2].type_v == stand_in.GGML_TYPE_Q4_0
        assert stand_in.freed == stand_in.contexts
    assert stand_in.freed[-1] == bytes(model)
    assert [bool(logger) for logger in stand_in.loggers] == [True, False]
    assert [plain.kv, mixed.kv] == ["llama.cpp f32", "llama.cpp q8_0+q4_0"]
    assert [row.bits for row in (plain, eight, mixed, four)] == [32, 8.5, 6.5, 4.5]
    assert eight.bytes_per_token == plain.bytes_per_token * 8.5 / 32
    assert (plain.divergence, plain.tokens) == (0, 6)
    # With logits c n j of token n, c is 0 for float32 and 0.02 for q4_0; every context begins empty.
    losses = []
    for n in (1, 2, 3):
        logs = 0.02 * n * np.arange(5)
        losses.append(-np.log(5) - (logs - np.log(np.exp(logs).sum())).mean())
    assert four.divergence == pytest.approx(np.mean(losses), rel=1e-5)


def test_what_llama_cannot_do(stand_in: StandInLlama, monkeypatch: pytest.MonkeyPatch) -> None:
    with llama.Llama(Path("model.gguf"), 1) as peer:
        with peer.opened(llama.EXACT, 1) as start:
            step = start(1)
            step(3)
            with pytest.raises(StateError, match="llama_decode: expected status 0, got 1"):
                step(3)
        stand_in.llama_init_from_model = lambda model, settings: None
        with (
            pytest.raises(StateError, match="model.gguf: llama.cpp has no cache of f32 for it"),
            peer.opened(llama.EXACT, 4),
        ):
            pass
    assert stand_in.freed[-1] == b"model.gguf"
    stand_in.llama_model_load_from_file = lambda path, options: None
    with pytest.raises(FormatError, match="model.gguf: llama.cpp cannot load it"):
        llama.Llama(Path("model.gguf"), 1)
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_cpp", None)
    with pytest.raises(StateError, match="--peers needs llama.cpp: pip install llama-cpp-python"):
        llama.Llama(Path("model.gguf"), 1)


def stand_in_setting(name: str, scale: float) -> Setting:
    """Logits [0, scale] after each token."""

    @contextmanager
    def opened() -> Iterator[Any]:
        yield lambda tokens: lambda token: np.array([0, scale], np.float32)

    return Setting(name, 32, 8, opened)


def test_rows_are_printed_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    with Comparison(np.array([[1, 0, 1]], np.int32)) as comparison:
        first, second = (
            Measurement(stand_in_setting(*each), comparison) for each in (("f32", 1), ("a long name", 2))
        )

        class Watched(Measurement):
            def run(self, tell: Any = None) -> Quality:
                shown.append(capsys.readouterr().out)
                return super().run(tell)

        _measure([first, Watched(second.setting, comparison)], shown=True)
    assert len(shown) == 1
    head, second_head, line = shown[0].splitlines()
    after, end = capsys.readouterr().out.splitlines()
    assert head.split() == ["bits", "per", "bytes", "per", "same"]
    assert line.split()[0] == "f32"
    assert after.startswith("a long name  ")
    assert second_head.split()[:4] == ["kv", "value", "token", "perplexity"]
    assert len(head) == len(second_head) == len(line) == len(after)
    assert end == "2 tokens predicted"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    with Comparison(np.array([[1, 0, 1]], np.int32)) as comparison:
        comparison._exact.close()
        with (
            Path("/dev/full").open("wb", buffering=0) as full,
            monkeypatch.context() as patch,
        ):
            patch.setattr(comparison, "_exact", full)
            with pytest.raises(
                FileError, match="bench kv: .*: cannot keep the logits of float32: .*No space"
            ):
                comparison.measure(stand_in_setting("f32", 1))


def test_a_tally_by_hand() -> None:
    tally = Tally()
    want, got = np.log([0.5, 0.25, 0.25]), np.log([0.25, 0.5, 0.25])
    tally.add(want, want, 0)
    tally.add(want, got, 0)
    assert tally.same == 1
    assert tally.perplexity == pytest.approx(8**0.5)  # of 1/2 and 1/4
    assert tally.divergence == pytest.approx(0.25 * np.log(2))


def test_timing(capsys: pytest.CaptureFixture[str]) -> None:
    timings = timing.measure(pyturbo.Device("cpu"), KV_FORMATS, contexts=(40,), repeats=1)
    assert [row.kv for row in timings] == SETTINGS * 3
    assert min(row.microseconds for row in timings) > 0
    print_table(timing_table(timings))
    table = capsys.readouterr().out
    assert "16 heads, 2 for keys, dim 256" in table
    assert "128 heads, latents of 512 and 64" in table


ROWS = [
    Quality("f32", 32.0, 100, 9, 7.0, 0.0, 0.0, 1.0),
    Quality("turbo4", 4.5, 20, 9, 7.1, 0.01, 0.02, 0.9),
]


def test_a_wrong_place_for_a_plot_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(settings, "measurements", lambda *arguments: pytest.fail("measured"))
    command = ["bench", "kv", "--text", "absent", "--plot"]
    assert main([*command, str(tmp_path / "plot.pdf")]) == 2
    assert "pyturbo: --plot: expected a name that ends in .png or .svg, got" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "matplotlib.figure", None)
        assert main([*command, str(tmp_path / "plot.svg")]) == 1
        assert "--plot needs matplotlib: pip install" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", ModuleType("matplotlib.figure"))
    os.mkfifo(tmp_path / "fifo.svg")
    (tmp_path / "drawing.svg").write_text("<?xml version='1.0'?><svg>a drawing of mine</svg>")
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\nmine")
    (tmp_path / "text.svg").write_text("about pyturbo bench kv")
    (tmp_path / "link.png").symlink_to("photo.png")
    (tmp_path / "folder.svg").mkdir()
    before = sorted(tmp_path.iterdir())
    for name, message in (
        ("drawing.svg", "drawing.svg: exists and is not a plot of this command; delete it"),
        ("photo.png", "photo.png: exists and is not a plot of this command"),
        ("link.png", "photo.png: exists and is not a plot of this command"),
        ("text.svg", "text.svg: exists and is not a plot of this command"),
        ("fifo.svg", "fifo.svg: expected a file to write to, got a pipe"),
        ("folder.svg", "folder.svg: expected a file to write to, got a folder"),
        ("absent/plot.svg", "absent: expected a folder to write to, found none"),
    ):
        assert main([*command, str(tmp_path / name)]) == 1
        assert message in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


class StandInFigure:
    """Draws what matplotlib would, as far as these tests look at it: the metadata in their places."""

    def __init__(self, **options: Any) -> None:
        pass

    def add_subplot(self) -> Mock:
        return Mock()

    def savefig(self, file: BinaryIO, **options: Any) -> None:
        heads = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml version='1.0'?><svg>"}
        file.write(heads[options["format"]] + "".join(filter(None, options["metadata"].values())).encode())


@pytest.mark.parametrize("ending", ["svg", "png"])
@pytest.mark.parametrize("matplotlib", ["real", "stand-in"])
def test_plot(tmp_path: Path, ending: str, matplotlib: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if matplotlib == "stand-in":
        module = ModuleType("matplotlib.figure")
        module.Figure = StandInFigure
        monkeypatch.setitem(sys.modules, "matplotlib", ModuleType("matplotlib"))
        monkeypatch.setitem(sys.modules, "matplotlib.figure", module)
    elif importlib.util.find_spec("matplotlib") is None:
        with pytest.raises(StateError, match="--plot needs matplotlib: pip install"):
            plot.draw(ROWS, tmp_path / f"plot.{ending}")
        return
    path = tmp_path / f"plot.{ending}"
    path.touch()
    plot.draw(ROWS, path)
    assert {"svg": b"<svg", "png": b"PNG"}[ending] in path.read_bytes()
    path.write_bytes(path.read_bytes() + b" ")
    before = path.read_bytes()
    plot.draw(ROWS, path)  # its own picture is replaced
    assert path.read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == [path.name]
