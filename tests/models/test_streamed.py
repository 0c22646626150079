"""Models whose experts are read from a packed checkpoint while they run: the same bits as with all in memory.

Where shaders run on the processor, a chunk of tokens takes long. There, experts that are not quantised are
run token by token: their kernels read each token by itself.

Does not catch: wrong records, which tests/pack compares with their source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyturbo
from packed_models import IN_PLACE, streamed
from pyturbo.model import Model
from pyturbo.streaming import MappedExperts, Policy
from tiny_configs import MODELS
from tiny_models import write_hf, write_mlx

WITH_EXPERTS = [
    name
    for name, model in MODELS.items()
    if {"num_experts", "num_local_experts", "n_routed_experts"} & model.text.keys()
]

#: Tokens of a prompt, more than a device reads one by one, and slots: all on the CPU, few where it is slow.
PROMPT = {"cpu": 40, "cpu:reference": 17, "cuda": 5, "metal": 5}
SLOTS = {"cpu": (1, 4, 1000), "cpu:reference": (2,), "cuda": (2,), "metal": (2,)}


def logits_of(model: Model, ids: np.ndarray, prompt: int) -> list[bytes]:
    """Return the logits after a prompt, and after each of some further tokens."""
    session = model.session(64)
    out = [session.prefill(ids[:prompt]).tobytes()]
    return out + [session.step(int(token)).tobytes() for token in ids[prompt : prompt + 3]]


@pytest.fixture(params=pyturbo.devices())
def device(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.spread
@pytest.mark.parametrize("name", WITH_EXPERTS)
@pytest.mark.parametrize("layout", ["hf", "mlx"])
def test_a_streamed_model_has_the_bits_of_a_resident_one(
    tmp_path: Path, device: str, name: str, layout: str
) -> None:
    tiny = MODELS[name]
    source = (write_hf if layout == "hf" else write_mlx)(tiny, tmp_path / "source")
    pyturbo.pack(source, tmp_path / "packed")
    ids, prompt = tiny.tokens(), PROMPT[device] if device == "cpu" or layout == "mlx" else 1
    with pyturbo.load(source, device) as model:
        wanted = logits_of(model, ids, prompt)
    with pyturbo.load(tmp_path / "packed", device) as model:
        assert logits_of(model, ids, prompt) == wanted, "mapped"
    for slots in SLOTS[device]:
        with streamed(tmp_path / "packed", device, slots, ahead=slots > 1) as model:
            assert logits_of(model, ids, prompt) == wanted, f"{slots} slots"
            stats = model.runner.budget.experts.stats()
            assert all(layer["misses"] > 0 and layer["bytes"] > 0 for layer in stats)


@pytest.mark.parametrize("device", IN_PLACE)
def test_a_mapped_expert_is_brought_once(tmp_path: Path, device: str) -> None:
    tiny = MODELS["qwen3_5_moe"]
    pyturbo.pack(write_mlx(tiny, tmp_path / "source"), tmp_path / "packed")
    with pyturbo.load(tmp_path / "packed", device, policy=Policy(mode="mapped")) as model:
        (experts,) = (watch for watch in model.runner.origin._watches if isinstance(watch, MappedExperts))

        def totals() -> tuple[int, ...]:
            stats = experts._stores[0].stats()
            return tuple(sum(layer[name] for layer in stats) for name in ("requests", "misses"))

        wanted = logits_of(model, tiny.tokens(), PROMPT[device])
        requests, misses = totals()
        assert 0 < misses < requests
        assert logits_of(model, tiny.tokens(), PROMPT[device]) == wanted
        assert totals() == (2 * requests, misses)


@pytest.mark.spread
@pytest.mark.parametrize(
    "form",
    [{"mode": mode} for mode in ("mxfp4", "mxfp8", "nvfp4")] + [{"bits": bits} for bits in (2, 3, 5, 6, 8)],
    ids=lambda form: "-".join(map(str, form.values())),
)
def test_every_format(tmp_path: Path, device: str, form: dict[str, Any]) -> None:
    tiny, prompt = MODELS["qwen3_moe"], PROMPT[device]
    pyturbo.convert(write_hf(tiny, tmp_path / "float"), tmp_path / "source", **form)
    pyturbo.pack(tmp_path / "source", tmp_path / "packed")
    with pyturbo.load(tmp_path / "source", device) as model:
        wanted = logits_of(model, tiny.tokens(), prompt)
    with streamed(tmp_path / "packed", device, 4) as model:
        assert logits_of(model, tiny.tokens(), prompt) == wanted
