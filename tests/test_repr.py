"""What objects show of themselves in a notebook: a short line that says which one it is."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from pyturbo.checkpoint import open_checkpoint
from pyturbo.conversation import Conversation
from pyturbo.model import default_model
from pyturbo.recording import Recorder, Tensor
from pyturbo.symbols import symbol
from pyturbo.text import StopStrings
from text.tiny_chat import write_model


@pytest.fixture(scope="module")
def model() -> pyturbo.Model:
    return pyturbo.load(device="cpu")


def test_models_and_replies(model: pyturbo.Model) -> None:
    assert repr(model) == ("Model('qwen3_5_moe', layers=8, vocab=4096, context=2048, kv='f16', device='cpu')")
    assert repr(model.network) == "Decoder(layers=8, vocab=4096, context=2048)"
    assert repr(model.network.layers[3]) == "Layer('model.layers.3', Attention, Moe)"
    assert repr(model.network.head) == "Affine([4096, 256], 8 bits in groups of 64)"
    assert repr(model.tokenizer) == "Tokenizer(vocab_size=4096, bos_id=None, eos_ids=(0,), no chat template)"
    session = model.session(context=64)
    reply = model.generate("Once upon a time", 3, session=session)
    assert repr(session) == f"Session(position=6, context=64, nbytes={session.nbytes})"
    assert repr(reply).startswith("Completion(text=', there was', finish_reason='length', stats=Stats(")
    assert re.fullmatch(r"Stats\(prompt_tokens=4, tokens=3, .*decode_speed=[0-9.]+\)", repr(reply.stats))
    profile = session.profile()
    assert repr(profile) == str(profile)
    header, *rows, total = repr(profile).splitlines()
    assert header.split() == ["kernel", "launches", "ms", "us", "a", "launch", "share"]
    assert [row.split()[0] for row in rows] == [row.kernel for row in profile.rows()]
    assert len({len(line) for line in (header, *rows)}) == 1  # columns of figures end below their names
    assert total.split()[:2] == ["all", str(sum(row.launches for row in profile.rows()))]
    with model.runner.program(64, 1, "last") as (_, graph):
        pass
    assert repr(graph).startswith(f"Graph({graph.program!r}, weight_bytes=")


def test_a_conversation(tmp_path: Path) -> None:
    model = pyturbo.load(write_model(tmp_path / "model"), device="cpu")
    conversation = Conversation(model, 256, system="Be brief.")
    assert repr(conversation) == "Conversation(messages=1, position=0, context=256)"


def test_devices_and_programs() -> None:
    device = pyturbo.Device("cpu")
    assert repr(device) == "Device('cpu')"
    rows = device.empty((8, 4))
    assert repr(rows) == "Buffer([8, 4], float32)"
    assert repr(device.kernel("add")) == "Kernel('add': a, b, y, count)"
    with Recorder(device, {"tokens": 8}) as recorder:
        x = Tensor(rows, (symbol("tokens"), 4), np.float32)
        pyturbo.ops.add(x, x)
    assert repr(x) == "Tensor([tokens, 4], float32)"
    assert repr(recorder.program) == "Program(launches=1, symbols=('tokens',), blocks=())"
    assert repr(recorder).startswith("Recorder(Program(launches=1, ")
    assert repr(2 * symbol("tokens") + 1) == "Linear(2 * tokens + 1)"
    device.close()
    assert repr(device) == "Device('cpu', closed)"


def test_sampling() -> None:
    assert repr(pyturbo.Sampler(seed=3)) == "Sampler(temperature=0, seed=3)"
    sampler = pyturbo.Sampler(0.7, top_k=40, repetition_penalty=1.1, seed=3)
    assert repr(sampler) == "Sampler(temperature=0.7, top_k=40, repetition_penalty=1.1, seed=3)"
    assert repr(StopStrings(["."])) == "StopStrings(['.'])"


def test_checkpoints() -> None:
    folder = default_model()
    with open_checkpoint(folder) as checkpoint:
        assert repr(checkpoint) == f"DirectoryCheckpoint({str(folder)!r}, tensors=354)"
        assert repr(checkpoint.weights()).startswith(f"DirectoryWeights({str(folder)!r}, tensors=")
        tensor = next(iter(checkpoint.values()))
        assert repr(tensor.file).startswith(f"TensorFile({str(folder / 'model.safetensors')!r}, size=")
