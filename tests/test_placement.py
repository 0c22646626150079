"""What `memory` promises: the process never takes more, and an error says how much is needed.

The peak of a process is that of Linux; elsewhere only the accounts are checked.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import pyturbo
from packed_models import least_memory, write_large, write_packed
from processes import require_clean, run_script
from pyturbo import models, placement
from pyturbo._arguments import byte_count
from pyturbo._machine import used_memory
from pyturbo.checkpoint import open_checkpoint
from pyturbo.checkpoint.packed import PackedCheckpoint
from pyturbo.engine.budget import HEADROOM, Budget
from pyturbo.engine.runner import conversation_bytes
from pyturbo.errors import AllocationError, ArgumentError
from pyturbo.forecast import forecast
from pyturbo.model import Model, default_model
from pyturbo.streaming import Policy, RecordFile, StreamedExperts
from tiny_configs import MODELS
from tiny_gguf import write_gguf
from tiny_models import write_hf

MB = 10**6


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint and its packed copy."""
    return write_packed(tmp_path_factory.mktemp("tiny"))


# Slow tests come first: a fixture of the module would be made again for the others.
@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed checkpoint whose experts have many times the memory of its other weights."""
    return write_large(tmp_path_factory.mktemp("large"))


@pytest.mark.parametrize("text", ["4GB", "4 gb", "4000MB", "3.9GiB", " 4000000000 ", 4 * 10**9])
def test_memory_as_people_write_it(tiny: tuple[Path, Path], text: object) -> None:
    with pyturbo.load(tiny[1], "cpu", memory=text) as model:
        assert 4 * 10**9 <= model.runner.budget.total < 4.2 * 10**9


@pytest.mark.parametrize(
    "text", ["", "much", "-4GB", "4 GB more", "GB", "0", 0, -1, 1.5, True, b"4GB", "nan", "1e3", [4]]
)
@pytest.mark.parametrize("packed", [False, True])
def test_nonsense_is_refused(tiny: tuple[Path, Path], text: object, packed: bool) -> None:
    with pytest.raises(ArgumentError, match="load: memory: expected"):
        pyturbo.load(tiny[packed], "cpu", memory=text)


@pytest.mark.parametrize("text", [True, "99999999TB", "0.1", "0 GB", 2**63, 1.5])
def test_what_is_refused_is_shown(text: object) -> None:
    with pytest.raises(ArgumentError) as error:
        byte_count("memory", text)
    assert str(error.value).endswith(f"got {text!r}")


@pytest.mark.parametrize("policy", ["stream", {"mode": "stream"}, Policy])
def test_a_policy_is_one(tiny: tuple[Path, Path], policy: object) -> None:
    with pytest.raises(ArgumentError, match="load: policy: expected a Policy"):
        pyturbo.load(tiny[1], "cpu", policy=policy)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("mode", ["disk", None, 3, ["auto"]]),
        ("threads", [0, 257, 1.5, "8", None]),
        ("direct", [1, "yes", None]),
        ("ahead", [1, "yes", None]),
        ("split", [-4096, 100, "1MB", None]),
        ("half_life", [0, -1, math.inf, math.nan, "32", None]),
        ("staging", [-1, 2.5, "none", 2**40]),
    ],
)
def test_nonsense_in_a_policy_is_refused(name: str, values: list[object]) -> None:
    for value in values:
        with pytest.raises(ArgumentError, match=f"Policy: {name}: expected"):
            Policy(**{name: value})


def test_only_packed_experts_are_streamed(tiny: tuple[Path, Path]) -> None:
    with pytest.raises(ArgumentError, match="source is not packed.*`pyturbo pack` writes a packed copy"):
        pyturbo.load(tiny[0], "cpu", policy=Policy(mode="stream"))


def test_too_little_memory(tiny: tuple[Path, Path], tmp_path: Path) -> None:
    dense = write_hf(MODELS["qwen3"], tmp_path / "dense")
    message = (
        r"memory: expected at least \d+ MB for this process, weights{} and a conversation, got 1.0 MB{}$"
    )
    for path, part, hint in (
        (dense, "", ""),
        (tiny[0], "", "; `pyturbo pack` writes a copy that needs less"),
        (tiny[1], " without experts", ""),
    ):
        with pytest.raises(AllocationError, match=message.format(part, hint)):
            pyturbo.load(path, "cpu", memory="1MB")
    message = message.format("", '; mode "stream" needs less')
    with pytest.raises(AllocationError, match=message):
        pyturbo.load(tiny[1], "cpu", memory="1MB", policy=Policy(mode="mapped"))


def test_too_little_free_memory(tiny: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "available_memory", lambda: 0)
    message = "a conversation, but .* [MG]B may be used: this process and 80 % of free memory$"
    with pytest.raises(AllocationError, match=message):
        pyturbo.load(tiny[1], "cpu")


@pytest.mark.parametrize("mode", ["auto", "mapped"])
def test_a_mapped_model_keeps_to_its_memory(tiny: tuple[Path, Path], mode: str) -> None:
    memory = used_memory() + HEADROOM + 200 * MB
    for path in tiny:
        with pyturbo.load(path, "cpu", memory=memory, policy=Policy(mode=mode)) as model:
            budget = model.runner.budget
            assert budget.experts is None
            sessions = [model.session(32)]
            before = budget.left
            model.session(32).close()
            assert budget.left == before
            message = r"context: expected at most .* it takes a memory of"
            with pytest.raises(AllocationError, match=message):  # noqa: PT012
                for _ in range(10_000):
                    sessions.append(model.session(512))
            assert len(sessions) > 3
            del sessions[1:]
            assert budget.left >= before  # programs were given up for them
            model.session(512).prefill([1, 2, 3])


def test_without_memory_only_what_does_not_fit_is_streamed(
    tiny: tuple[Path, Path], large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pyturbo.load(large, "cpu") as model:
        assert model.runner.budget is None
        tokens = model.generate([1, 2, 3], 8).tokens
    monkeypatch.setattr(placement, "available_memory", lambda: (HEADROOM + 80 * MB) * 5 // 4)
    with pyturbo.load(large, "cpu") as model:
        assert model.runner.budget.experts.nbytes < 80 * MB
        assert model.generate([1, 2, 3], 8).tokens == tokens
    with pyturbo.load(tiny[0], "cpu") as model:  # not packed: as ever
        assert model.runner.budget is None


def test_the_least_memory_is_enough(large: Path) -> None:
    least = least_memory(large)
    with pyturbo.load(large, "cpu", memory=least) as model, model.session(512) as session:
        session.prefill(range(40))
        experts = model.runner.budget.experts
        assert experts.least <= experts.nbytes < 20 * MB


@pytest.mark.parametrize("mode", ["mapped", "stream"])
def test_the_memory_that_an_error_names_is_enough(tiny: tuple[Path, Path], mode: str) -> None:
    policy = Policy(mode=mode)
    for path in tiny if mode == "mapped" else tiny[1:]:
        pyturbo.load(path, "cpu", memory=least_memory(path, policy), policy=policy).close()


def test_the_memory_that_info_names_is_enough(large: Path) -> None:
    with open_checkpoint(large) as checkpoint:
        least = forecast(checkpoint).least_memory
    with pyturbo.load(large, "cpu", memory=least) as model, model.session(512) as session:
        session.prefill(range(40))
        assert model.runner.experts.nbytes < 20 * MB


@pytest.mark.spread
@pytest.mark.parametrize("device", pyturbo.devices())
@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if "experts" in str(model.config)])
def test_programs_have_the_size_that_was_expected(tmp_path: Path, name: str, device: str) -> None:
    _, path = write_packed(tmp_path, name)
    for mode in ("mapped", "stream"):
        require_expected_size(path, pyturbo.load(path, device, memory="8GB", policy=Policy(mode=mode)))


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8", "nvfp4"])
@pytest.mark.parametrize("name", ["qwen3", "qwen3_moe"])
def test_programs_of_other_formats_have_that_size(tmp_path: Path, name: str, mode: str) -> None:
    pyturbo.convert(write_hf(MODELS[name], tmp_path / "source"), tmp_path / "small", mode=mode)
    require_expected_size(tmp_path / "small", pyturbo.load(tmp_path / "small", "cpu", memory="8GB"))


@pytest.mark.parametrize("kv", ["f32", "turbo4", "turbo4v2"])
def test_programs_of_compressed_keys_have_that_size(kv: str) -> None:
    require_expected_size(default_model(), pyturbo.load(None, "cpu", kv, memory="8GB"))


def test_programs_of_gguf_have_that_size(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "a.gguf")
    require_expected_size(path, pyturbo.load(path, "cpu", memory="8GB"))


def require_expected_size(path: Path, model: Model) -> None:
    """Require that the memory of a conversation is the one found without weights."""
    with model, open_checkpoint(path) as checkpoint:
        runner, context = model.runner, min(placement.SHORT, model.max_context)
        streamed = runner.experts is not None
        if isinstance(checkpoint, PackedCheckpoint):
            checkpoint.experts = runner.expert_memory
        network, _ = models.outline(checkpoint)
        found = conversation_bytes(network, model.device, runner.kv, context, streamed=streamed)
        assert found == runner.layout(context).nbytes + runner.scratch_bytes


def test_closed_sessions_give_memory_to_experts(large: Path) -> None:
    memory = used_memory() + HEADROOM + 80 * MB
    with pyturbo.load(large, "cpu", memory=memory) as model:
        budget = model.runner.budget
        with model.session(512) as session:
            session.prefill(range(40))
        alone = budget.experts.nbytes
        session = model.session(4096)
        forks = [session.fork()]
        shared = budget.experts.nbytes
        assert shared <= alone - 2 * session.nbytes + 2 * budget.experts.least
        assert shared % budget.experts.least == 0
        forks.clear()
        session.close()
        model.session(512).prefill(range(40))
        assert budget.experts.nbytes == alone


def test_programs_are_given_up_for_others(large: Path) -> None:
    """Each context has programs of its own; there is memory for those of one only."""
    least = least_memory(large)
    with pyturbo.load(large, "cpu", memory=least) as model:
        for context in (128, 200, 300, 400):
            with model.session(context) as session:
                session.prefill(range(40))
                session.step(1)
            assert sum(tokens > 1 for _, tokens, _ in model.runner._graphs) == 1


def test_results_need_memory_too(large: Path) -> None:
    with pyturbo.load(large, "cpu", memory=used_memory() + HEADROOM + 80 * MB) as model:
        budget = model.runner.budget
        before = budget.left
        with pytest.raises(AllocationError, match=r"logits: expected at most .* got 134\.2 MB; it takes"):
            model.logits([1] * 4096)
        assert budget.left >= before
        assert model.logits([1] * 20).shape == (20, 4096)
        with pytest.raises(AllocationError, match=r"outputs of layers: expected at most .*; it takes"):
            model.layer_outputs([1] * 8192)
        assert budget.left >= before
        assert model.layer_outputs([1] * 20).shape == (len(model.network.layers), 20, 384)


def test_what_nobody_announced_is_taken_from_experts(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pyturbo.load(large, "cpu", memory=used_memory() + HEADROOM + 130 * MB) as model:
        budget, session = model.runner.budget, model.session(64)
        session.step(1)
        before, more = budget.experts.nbytes, 30 * MB

        def used() -> int:
            return budget._announced() + budget.experts.filled_bytes + more

        monkeypatch.setattr("pyturbo.engine.budget.resident_memory", used)
        session.step(2)
        assert budget.experts.nbytes <= max(before - 28 * MB, budget.experts.least)
        monkeypatch.setattr("pyturbo.engine.budget.resident_memory", lambda: None)  # not known
        session.step(3)
        assert budget.experts.nbytes <= max(before - 28 * MB, budget.experts.least)
        monkeypatch.setattr("pyturbo.engine.budget.resident_memory", used)
        more = 0
        session.step(4)
        assert budget.experts.nbytes == before
        more = 1 << 40
        session.step(5)  # more than there is: one slot is left, and that works
        assert budget.experts.nbytes == budget.experts.least


def test_memory_that_is_free_again_can_be_taken(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pyturbo.load(large, "cpu", memory=used_memory() + HEADROOM + 130 * MB) as model:
        budget, more = model.runner.budget, 1 << 40

        def used() -> int:
            return budget._announced() + budget.experts.filled_bytes + more

        with model.session(64) as session:
            session.step(1)
            monkeypatch.setattr("pyturbo.engine.budget.resident_memory", used)
            session.step(2)
        with pytest.raises(AllocationError, match="context: expected at most 0 B"):
            model.session(64)
        more = 0
        with model.session(64) as session:
            session.step(1)


def test_records_of_several_sizes_share_the_memory(tmp_path: Path) -> None:
    files = []
    for number, (experts, stride) in enumerate([(5, 16384), (7, 65536), (5, 16384), (3, 1 << 20)]):
        path = tmp_path / str(number)
        path.write_bytes(bytes(experts * stride))
        files.append(RecordFile(path, experts, stride))
    total = sum(file.experts * file.stride for file in files)
    device = pyturbo.Device("cpu", threads=1)
    for nbytes in (0, StreamedExperts.least_bytes(files), 1_300_000, 2_000_000, total - 1, total, 10 * total):
        experts = StreamedExperts(device, files, nbytes, Policy(staging=4))
        assert experts.nbytes <= max(nbytes, experts.least)
        assert experts.nbytes == total or nbytes < total
        experts.close()


def test_a_budget_forgets_its_owners() -> None:
    class Owner:
        pass

    budget, first, second = Budget(HEADROOM + 100, 10), Owner(), Owner()
    budget.take("a", 30, first)
    budget.take("b", 60, second)
    assert budget.left == 0
    with pytest.raises(AllocationError, match="c: expected at most 0 B, .* got 1 B; it takes a memory of"):
        budget.take("c", 1, Owner())
    del first
    assert budget.left == 30
    del second
    assert budget.left == 90


WATCHED = """
import re, sys
from pathlib import Path
import pyturbo
from pyturbo.errors import AllocationError

def peak():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) * 1024

path, memory = sys.argv[1:] if len(sys.argv) > 2 else (PATH, MEMORY)
with pyturbo.load(path, "cpu", memory=memory) as model:
    kept = []
    for context in (64, 512, 2048):
        try:
            session = model.session(context)
            session.prefill([i % 4000 for i in range(context - 20)])
            kept.append(session.fork())
            for token in range(5):
                session.step(token)
                kept[-1].step(token + 1)
        except AllocationError:
            kept.clear()
    kept.clear()
    assert model.generate("Once upon a time", 12).tokens
    experts = model.runner.budget.experts
    assert experts is not None
    assert experts.filled_bytes <= experts.nbytes
    assert sum(layer["misses"] for layer in experts.stats()) > 100
    total = model.runner.budget.total
    del session, experts
assert peak() <= total, (peak(), total)
assert peak() > total - 70_000_000, (peak(), total)  # what is there is used
"""


def test_the_least_memory_is_enough_once_libraries_are_cached(
    large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = used_memory()
    monkeypatch.setattr(placement, "used_memory", lambda: used - 12 * MB)
    memory = least_memory(large)
    monkeypatch.setattr(placement, "used_memory", lambda: used)
    monkeypatch.setattr("pyturbo.engine.budget.resident_memory", lambda: used)
    pyturbo.load(large, "cpu", memory=memory).close()


#: Prints the least memory of a fresh process.
FRESH = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from packed_models import least_memory
print(least_memory(PATH))
"""


@pytest.fixture(scope="module")
def least_of_a_process(large: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    found = run_script(FRESH.replace("PATH", repr(str(large))), tmp_path_factory.mktemp("fresh"))
    require_clean(found)
    return int(found.stdout)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc")
@pytest.mark.parametrize("more", [0, 70])
def test_a_process_never_takes_more(large: Path, least_of_a_process: int, tmp_path: Path, more: int) -> None:
    script = WATCHED.replace("PATH,", f"{str(large)!r},")
    script = script.replace("MEMORY", str(least_of_a_process + more * MB))
    require_clean(run_script(script, tmp_path))
