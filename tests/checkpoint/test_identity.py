"""What tells checkpoints apart: every tensor counts, and nothing but the bytes in the files does."""

from __future__ import annotations

import os
import resource
import threading
from pathlib import Path

import numpy as np
import pytest

import pyturbo
from pyturbo.checkpoint import identity, open_checkpoint
from pyturbo.checkpoint.identity import Identity
from pyturbo.errors import FormatError
from tiny_configs import MODELS
from tiny_gguf import write_gguf
from tiny_models import mlx_tensors, write_hf, write_mlx
from write_safetensors import write_shards


def checkpoint_of(kind: str, folder: Path) -> Path:
    if kind == "gguf":
        return write_gguf(folder / "tiny.gguf")
    return (write_hf if kind == "hf" else write_mlx)(MODELS["qwen3_moe"], folder / kind)


def digest(path: Path) -> bytes:
    with open_checkpoint(path) as checkpoint:
        return Identity(checkpoint).digest()


def flip(path: Path, offset: int, count: int = 1) -> None:
    """Flip the lowest bit of `count` bytes from `offset` on."""
    with path.open("r+b") as file:
        file.seek(offset)
        data = file.read(count)
        file.seek(offset)
        file.write(bytes(byte ^ 1 for byte in data))


@pytest.mark.parametrize("kind", ["hf", "mlx", "gguf"])
def test_a_session_of_other_weights_is_refused_whichever_tensor_differs(kind: str, tmp_path: Path) -> None:
    path = checkpoint_of(kind, tmp_path)
    session = pyturbo.load(path, "cpu").session(8)
    session.prefill([1, 2, 3])
    session.save(tmp_path / "chat.session")
    with open_checkpoint(path) as checkpoint:
        infos = list(checkpoint.values())
    rng = np.random.default_rng(4)
    for info in infos:
        if kind == "hf" and ".experts." in info.name and ".experts.1." not in info.name:
            continue  # of many alike, some
        offset = info.offset + int(rng.integers(info.nbytes))
        flip(info.file.path, offset)
        with pytest.raises(
            FormatError, match="expected a session of this model, [0-9a-f]{8}, got one of another"
        ):
            pyturbo.load(path, "cpu").load_session(tmp_path / "chat.session")
        flip(info.file.path, offset)
    assert pyturbo.load(path, "cpu").load_session(tmp_path / "chat.session").position == 3


def test_samples_reach_every_tensor_and_every_expert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "WHOLE", 0)
    monkeypatch.setattr(identity, "SMALL", 1024)
    monkeypatch.setattr(identity, "SAMPLE", 64)
    monkeypatch.setattr(identity, "SAMPLES", 100)
    path = checkpoint_of("mlx", tmp_path)
    want = digest(path)
    with open_checkpoint(path) as checkpoint:
        infos, total = list(checkpoint.values()), sum(info.nbytes for info in checkpoint.values())
    stacks = 0
    for info in infos:
        places = list(identity._places(info, total))
        assert all(info.offset <= at and at + n <= info.offset + info.nbytes for at, n in places)
        assert len(places) == 1 or sum(n for _, n in places) < info.nbytes
        parts = 1
        if len(info.shape) == 3 and info.name.endswith(".weight"):
            parts, stacks = info.shape[0], stacks + 1
        for i in range(parts):
            at, count = info.offset + i * info.nbytes // parts, info.nbytes // parts
            flip(info.file.path, at, count)
            assert digest(path) != want, (info.name, i)
            flip(info.file.path, at, count)
    assert stacks == 3 * 2  # layers with experts
    assert digest(path) == want


def test_reads_are_bounded() -> None:
    """One for each expert, and a share of a budget by size."""
    sizes = {
        "down_proj.weight": (256, 7168, 256),
        "down_proj.scales": (256, 7168, 32),
        "o_proj.weight": (7168, 2048),
    }
    infos = []
    for layer in range(58):
        for name, shape in sizes.items():
            nbytes = int(np.prod(shape)) * 4
            infos.append(
                pyturbo.checkpoint.TensorInfo(
                    f"{layer}.{name}", "U32", shape, None, 0, nbytes, np.dtype(np.uint32), shape
                )
            )
    total = 2 * sum(info.nbytes for info in infos)
    reads = sum(1 for info in infos for _ in identity._places(info, total))
    assert 58 * 256 < reads < 58 * 256 + identity.SAMPLES


def pad(path: Path, rest: int) -> None:
    """Lengthen the header so that data begins at a multiple of 64 bytes, and `rest` more."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    head = data[8:end] + b" " * ((rest - end) % 64)
    path.write_bytes(len(head).to_bytes(8, "little") + head + data[end:])


def test_shards_devices_and_mapping_do_not_matter(tmp_path: Path) -> None:
    model = MODELS["qwen3_moe"]
    path = write_mlx(model, tmp_path / "one")
    again = write_mlx(model, tmp_path / "two")
    for file in again.glob("model*"):
        file.unlink()
    tensors, _ = mlx_tensors(model)
    write_shards(again, dict(reversed(tensors.items())), "mlx", 3)
    assert digest(again) == digest(path)
    for folder, rest in ((path, 0), (again, 1)):
        for file in folder.glob("*.safetensors"):
            pad(file, rest)
    with open_checkpoint(path) as mapped, open_checkpoint(again) as copied:
        assert any(info.mapped for info in mapped.values())
        assert not any(info.mapped for info in copied.values())
    prints = {pyturbo.load(again, name).fingerprint for name in ("cpu", "cpu:reference")}
    assert prints == {pyturbo.load(path, "cpu", kv="turbo4").fingerprint}


def test_it_is_known_when_the_files_are_gone(tmp_path: Path) -> None:
    path = checkpoint_of("gguf", tmp_path)
    want = pyturbo.load(path, "cpu").fingerprint
    model = pyturbo.load(path, "cpu")
    path.unlink()
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(model.fingerprint)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [want] * 4


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    path = checkpoint_of("mlx", tmp_path)
    before = open_files()
    model = pyturbo.load(path, "cpu")
    assert open_files() == before + len(list(path.glob("*.safetensors")))
    assert model.fingerprint
    assert open_files() == before
    model = pyturbo.load(path, "cpu")
    del model
    assert open_files() == before


def test_without_descriptors_it_is_computed_at_once(tmp_path: Path) -> None:
    path = checkpoint_of("mlx", tmp_path)
    want, (soft, hard) = digest(path), resource.getrlimit(resource.RLIMIT_NOFILE)
    with open_checkpoint(path) as checkpoint:
        lowest = os.open(path, os.O_RDONLY)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
        try:
            found = Identity(checkpoint)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found.digest() == want
