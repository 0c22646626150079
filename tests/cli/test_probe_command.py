"""``pyturbo probe``, and what ``pyturbo info`` expects after it.

How exact the expected speed is cannot be told from models this small: their tokens take about as long as the
calls that measure them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pyturbo
from pyturbo.bench import model_probe
from pyturbo.cli import main
from pyturbo.streaming import Policy
from text.tiny_chat import write_model
from tiny_configs import MODELS
from tiny_models import write_hf


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTURBO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed model, which no test changes."""
    return pyturbo.pack(pyturbo.model.default_model(), tmp_path_factory.mktemp("packed") / "model").path


def shown(capsys: pytest.CaptureFixture[str], *command: object) -> dict:
    assert main([*map(str, command), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def streaming(capsys: pytest.CaptureFixture[str], path: Path, *more: str) -> dict:
    return shown(capsys, "info", path, *more)["streaming"]


def test_a_model(packed: Path, capsys: pytest.CaptureFixture[str], own_cache: Path) -> None:
    before = streaming(capsys, packed)
    assert before["basis"] is None
    assert all(row["tokens_per_second"] is None for row in before["outlooks"])
    found = shown(capsys, "probe", packed, "--seconds", "0.3", "--threads", "2")
    assert len(list(own_cache.iterdir())) == 2
    best = found["disk"]["best"]
    assert best in found["disk"]["speeds"]
    assert Policy.of(packed) == Policy(threads=best["threads"], direct=best["direct"], split=best["split"])
    model = found["model"]
    assert (model["device"], model["threads"]) == ("cpu", 2)
    assert model["expert_bytes"] == before["expert_bytes"]
    sizes = [one["slot_bytes"] for one in model["measured"]]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) == 3
    reads = [one["read_bytes"] for one in model["measured"]]
    assert reads == sorted(reads)
    assert all(one["wait_seconds"] < one["seconds"] for one in model["measured"])
    assert all(one["wait_seconds"] > 0 for one in model["measured"] if one["read_bytes"])
    assert reads[-1] > 0
    after = streaming(capsys, packed)
    assert (after["basis"], after["device"]) == ("probe", "cpu")
    pyturbo.load(packed, memory=after["least_memory"], policy=Policy(mode="stream")).close()
    rows = after["outlooks"]
    assert rows[-1]["share"] == 1
    assert rows[-1]["read_bytes"] == 0
    speeds = [row["tokens_per_second"] for row in rows]
    assert speeds == sorted(speeds)
    measured = [1 / one["seconds"] for one in model["measured"]]
    assert 0.2 * min(measured) < speeds[0] <= speeds[-1] < 5 * max(measured)


def test_info_with_a_given_memory(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = streaming(capsys, packed, "--memory", "100GB")["outlooks"]
    assert rows[-1] == {"memory": 100 * 10**9, "share": 1, "read_bytes": 0, "tokens_per_second": None}
    rows = streaming(capsys, packed, "--memory", "1MB")["outlooks"]
    assert rows[0] == {"memory": 10**6, "share": None, "read_bytes": None, "tokens_per_second": None}
    assert main(["info", str(packed), "--memory", "1MB"]) == 0
    assert "does not fit" in capsys.readouterr().out
    assert main(["info", "--memory", "1MB"]) == 2
    assert "--memory: expected a packed model" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["packed", "bundled"])
def test_only_weights_that_must_be_in_memory_can_be_too_large(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("pyturbo.describe.machine_memory", lambda: 10**6)
    path = packed if name == "packed" else pyturbo.model.default_model()
    assert main(["info", str(path)]) == 0
    assert (" MB !" in capsys.readouterr().out) == (name == "bundled")


def test_a_disk_alone_gives_an_estimate(
    packed: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyturbo.forecast.GROWTH", 0)  # all experts of this model are smaller
    found = shown(capsys, "probe", packed, "--seconds", "0.1")
    for saved in Path(pyturbo.files.cache.cache_folder()).glob("model-*"):
        saved.unlink()
    told = streaming(capsys, packed)
    assert told["basis"] == "disk"
    row = next(row for row in told["outlooks"] if row["share"] == pytest.approx(0.5, abs=0.01))
    speed = found["disk"]["best"]["bandwidth"] / row["read_bytes"]
    assert row["tokens_per_second"] == pytest.approx(speed)
    assert main(["info", str(packed)]) == 0
    out = capsys.readouterr().out
    assert "tokens/s, estimate" in out
    assert "An estimate: the disk alone" in out


def test_what_people_see(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(packed)]) == 0
    out = capsys.readouterr().out
    assert "tokens/s" not in out
    assert "`pyturbo probe MODEL` measures the speed" in out
    assert main(["probe", str(packed), "--seconds", "0.1"]) == 0
    out = capsys.readouterr().out
    for text in ("through the page cache", "used", "overlap", "experts in memory", "measured on cpu"):
        assert text in out
    assert main(["info", str(packed)]) == 0
    assert "tokens/s" in capsys.readouterr().out


def test_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyturbo.streaming.disk_probe._MOST", 8 << 20)
    monkeypatch.setattr("pyturbo.streaming.disk_probe._LEAST", 2 << 20)
    (tmp_path / "folder").mkdir()
    found = shown(capsys, "probe", tmp_path / "folder", "--seconds", "0.3")
    assert found["model"] is None
    assert {one["split"] for one in found["disk"]["speeds"]} == {0, 1 << 18, 1 << 20}
    assert not list((tmp_path / "folder").iterdir())
    assert Policy.of(tmp_path).threads == found["disk"]["best"]["threads"]


def test_a_model_that_is_not_packed_is_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyturbo.streaming.disk_probe._MOST", 4 << 20)
    monkeypatch.setattr("pyturbo.streaming.disk_probe._LEAST", 2 << 20)
    path = write_model(tmp_path / "model")
    before = sorted(path.iterdir())
    assert shown(capsys, "probe", path, "--seconds", "0.1")["model"] is None
    assert sorted(path.iterdir()) == before


def test_too_little_memory_is_found_first(
    packed: Path, capsys: pytest.CaptureFixture[str], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unexpected(*arguments: object) -> None:
        raise AssertionError("expected an error before anything is measured")

    monkeypatch.setattr("pyturbo.cli.probe.probe_reads", unexpected)
    assert main(["probe", str(packed), "--memory", "1MB"]) == 1
    assert "memory: expected at least" in capsys.readouterr().err
    assert not own_cache.exists()


@pytest.mark.slow
def test_a_signal_leaves_no_file(tmp_path: Path) -> None:
    """A probe that is asked to end removes its file first."""
    command = [sys.executable, "-m", "pyturbo", "probe", str(tmp_path), "--seconds", "60"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL) as process:
        while not list(tmp_path.glob(".pyturbo-probe-*")):
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert not list(tmp_path.glob(".pyturbo-probe-*"))


def test_wrong_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["probe", str(tmp_path), "--seconds", "0"]) == 2
    assert "--seconds: expected" in capsys.readouterr().err
    assert main(["probe", str(tmp_path), "--memory", "much"]) == 2
    assert "--memory: expected" in capsys.readouterr().err
    assert main(["probe", str(tmp_path / "nothing")]) == 1


@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v3", "gpt_oss"])
def test_models_without_a_tokenizer(tmp_path: Path, name: str) -> None:
    pyturbo.pack(write_hf(MODELS[name], tmp_path / "source"), tmp_path / "packed")
    speed, fingerprint = model_probe.probe_model(tmp_path / "packed", pyturbo.Device("cpu"))
    assert speed.measured
    assert len(fingerprint) == 64
    assert speed.read_bytes(0.1) >= speed.read_bytes(0.5) >= speed.read_bytes(1.0) == 0


@pytest.mark.parametrize("seconds", [0.9, 1.2])
def test_reading_ahead_is_used_if_it_is_faster(
    packed: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    measure = model_probe._measure

    def timed(model: pyturbo.Model, *arguments: object) -> tuple:
        speed, _ = measure(model, *arguments)
        return speed, 1.0 if speed.ahead else seconds

    monkeypatch.setattr(model_probe, "_measure", timed)
    speed, fingerprint = model_probe.probe_model(packed, pyturbo.Device("cpu"))
    assert speed.ahead == (seconds > 1)
    speed.save(packed, fingerprint)
    monkeypatch.setattr(Policy, "of", staticmethod(lambda path: Policy(mode="stream")))
    more = pyturbo.Device("cpu", threads=speed.threads + 1)
    for device, ahead in (("cpu", speed.ahead), ("cpu:reference", False), (more, False)):
        with pyturbo.load(packed, device) as model:
            assert model.runner.experts is not None
            assert model.runner.experts.policy.ahead == ahead


def test_a_model_that_is_not_packed_has_no_experts_to_read() -> None:
    with pytest.raises(pyturbo.errors.ArgumentError, match="is not packed"):
        model_probe.probe_model(pyturbo.model.default_model(), pyturbo.Device("cpu"))


def test_the_choices_that_were_recorded_are_all(packed: Path) -> None:
    """Every token chooses as many experts as the model says, in every layer."""
    with pyturbo.load(packed, memory="1GB", policy=Policy(mode="stream")) as model:
        budget = model.runner.budget
        assert budget is not None
        assert budget.experts is not None
        run = model_probe._Run(model, budget, budget.experts, (), None)
        run.measure()
    prompt, *tokens = run.replays
    assert [int(counts.sum()) for counts in prompt] == [model_probe.PROMPT * 4] * len(prompt)
    assert all(int(counts.sum()) == 4 for uses in tokens for counts in uses)
