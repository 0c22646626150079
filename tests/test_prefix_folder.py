"""Files of a prefix store: found again, bounded, and left out with a warning where they are damaged."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prefix_clients import Client, anew, with_chunks
from pyturbo.engine import prefix_file
from pyturbo.engine.prefix_store import PrefixStore
from pyturbo.engine.prefix_writer import later, wait
from pyturbo.errors import FileError
from pyturbo.model import Model, load
from tiny_configs import MODELS
from tiny_models import write_hf, write_mlx

CONTEXT = 120
TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, 180, CONTEXT)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("models")
    return {
        name: with_chunks(load(write_mlx(MODELS[name], folder / name), "cpu", kv="f32"), 16)
        for name in ("qwen3", "qwen3_next")
    }


def client_of(model: Model, folder: Path, **limits: Any) -> Client:
    store = PrefixStore(model.runner, limits.pop("memory", 1 << 30), folder, **limits)
    return Client(model, store, CONTEXT, cut="next" not in model.config["model_type"])


def files(folder: Path) -> list[Path]:
    """Return the files in a folder, when all are written."""
    wait()
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["qwen3", "qwen3_next"])
def test_the_next_process_goes_on(models: dict[str, Model], tmp_path: Path, name: str) -> None:
    model = models[name]
    client = client_of(model, tmp_path)
    ids = TOKENS[:50]
    ids = [*ids, *client.reply(ids, 4)]
    branch = [*TOKENS[:30], 1, 2, 3]
    client.reply(branch, 3)
    for memory in (1 << 30, 1):  # what a store has no memory for is read from the file each time
        other = client_of(model, tmp_path, memory=memory)
        other._seen = client._seen
        for prompt, least in (([*ids, 5, 6], 53), ([*branch, 9], 33), ([*TOKENS[:30], 7], 30)):
            assert other.reply(prompt, 4) == anew(model, CONTEXT, prompt, 4)
            assert other.cached >= least - 1


def test_headers_are_read_first_and_states_when_they_are_needed(
    models: dict[str, Model], tmp_path: Path
) -> None:
    client_of(models["qwen3"], tmp_path).reply(TOKENS[:50], 4)
    client = client_of(models["qwen3"], tmp_path)
    assert client.store.nbytes == 0
    client.store.restore(models["qwen3"].session(CONTEXT), TOKENS[:50])
    assert client.store.nbytes > 0


def test_what_memory_gave_up_comes_back_from_disk(models: dict[str, Model], tmp_path: Path) -> None:
    for name, model in models.items():
        probe = client_of(model, tmp_path / "probe")
        probe.reply(TOKENS[:40], 3)
        client = client_of(model, tmp_path / name, memory=probe.store.nbytes)
        for first in range(3):
            client.reply([first, *TOKENS[:40]], 3)
        client.reply([0, *TOKENS[:40], 7], 3)
        assert client.cached >= 40


def test_files_are_bounded_and_the_oldest_go_first(models: dict[str, Model], tmp_path: Path) -> None:
    model = models["qwen3_next"]
    client_of(model, tmp_path / "probe").reply(TOKENS[:40], 3)
    one = sum(path.stat().st_size for path in files(tmp_path / "probe"))
    client = client_of(model, tmp_path / "store", max_disk_bytes=2 * one + 20000)
    for first in range(5):
        client.reply([first, *TOKENS[:40]], 3)
        assert sum(path.stat().st_size for path in files(tmp_path / "store")) <= 2 * one + 20000
    cached = []
    for first in range(5):
        other = client_of(model, tmp_path / "store", max_disk_bytes=2 * one + 20000)
        cached.append(other.store.restore(model.session(CONTEXT), [first, *TOKENS[:40], 7]))
    assert cached[0] == 0
    assert cached[4] >= 40


def test_other_models_have_their_own_files_within_one_bound(models: dict[str, Model], tmp_path: Path) -> None:
    for model in models.values():
        client_of(model, tmp_path).reply(TOKENS[:40], 3)
    assert len({path.parent for path in files(tmp_path)}) == 2
    least = max(path.stat().st_size for path in files(tmp_path))
    client_of(models["qwen3"], tmp_path, max_disk_bytes=least + 5000).reply([1, *TOKENS[:40]], 3)
    assert sum(path.stat().st_size for path in files(tmp_path)) <= least + 5000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen3", "qwen3_next"])
def test_damage_is_a_warning_and_the_tokens_are_read(
    models: dict[str, Model], tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    model, first = models[name], client_of(models[name], tmp_path / "whole")
    prompt = [*TOKENS[:40], *first.reply(TOKENS[:40], 3), 9]
    want = anew(model, CONTEXT, prompt, 3)
    rng = np.random.default_rng(2)
    for number, path in enumerate(files(tmp_path / "whole")):
        whole = path.read_bytes()
        places = [*range(0, 24, 5), *rng.integers(24, len(whole), 8), len(whole) - 1]
        damaged = [whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :] for at in map(int, places)]
        damaged += [b"", whole[:10], whole[:-1], whole + b"x", bytes(len(whole))]
        for kind, data in enumerate(damaged):
            place = tmp_path / f"{number}-{kind}"
            shutil.copytree(tmp_path / "whole", place)
            (place / path.relative_to(tmp_path / "whole")).write_bytes(data)
            caplog.clear()
            client = client_of(model, place)
            client._seen = list(first._seen)
            assert client.reply(prompt, 3) == want
            if name == "qwen3":  # all of its files are needed
                assert path.name in caplog.text
            if kind % 4 == 0:
                assert_is_whole(client, place, prompt)


def assert_is_whole(client: Client, folder: Path, prompt: list[int]) -> None:
    """What a client has read is found by the next process, whatever was there before."""
    client.store.flush()
    other = client_of(client.model, folder)
    other._seen = client._seen
    other.reply([*prompt, 8], 2)
    assert other.cached >= len(prompt)


def parts(path: Path) -> tuple[dict[str, Any], bytes, bytes]:
    """Header, tokens, and what follows the checksum."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<I", data, 20)
    header = json.loads(data[24 : 24 + length])
    end = 24 + length + 4 * header["count"]
    return header, data[24 + length : end], data[end + 32 :]


def change(path: Path, tokens: bytes | None = None, **entries: Any) -> None:
    """Write a file with other entries whose checksum is right."""
    header, old, rest = parts(path)
    text = json.dumps(header | entries).encode()
    head = prefix_file.MAGIC + struct.pack("<II", prefix_file.VERSION, len(text)) + text
    head += old if tokens is None else tokens
    path.write_bytes(head + hashlib.sha256(head).digest() + rest)


WRONG = {
    "model": ("ab", None, 7),
    "kv": ("f16", None),
    "codec": (3,),
    "layout": ("0" * 64, None),
    "start": (-1, "0", None, 3, 2**70, 1.0, True),
    "count": (-1, None, 10**6, 0, True),
    "parent": (7, "x"),
    "rows_bytes": (0, None, 2**70),
    "rest_bytes": (1, None, -1),
    "rows_sha256": (None, 3),
    "rest_sha256": (None, 3),
}


@pytest.mark.parametrize("entry", WRONG)
def test_wrong_entries_are_a_warning(
    models: dict[str, Model], tmp_path: Path, caplog: pytest.LogCaptureFixture, entry: str
) -> None:
    model = models["qwen3"]
    client_of(model, tmp_path).reply(TOKENS[:20], 1)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    for wrong in WRONG[entry]:
        caplog.clear()
        change(path, **{entry: wrong})
        client = client_of(model, tmp_path)
        assert client.store.restore(model.session(CONTEXT), TOKENS[:30]) == 0, wrong
        assert str(path) in caplog.text
        path.write_bytes(whole)
    assert client_of(model, tmp_path).store.restore(model.session(CONTEXT), TOKENS[:30]) == 20


def test_tokens_that_the_model_does_not_have(
    models: dict[str, Model], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client_of(models["qwen3"], tmp_path).reply(TOKENS[:20], 1)
    (path,) = files(tmp_path)
    for token in (-1, 10**6):
        change(path, tokens=np.full(20, token, "<i4").tobytes())
        client_of(models["qwen3"], tmp_path)
        assert f"tokens: expected 0 to 198, got {token}" in caplog.text


def test_foreign_files_stay(
    models: dict[str, Model], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = models["qwen3"]
    client_of(model, tmp_path).reply(TOKENS[:20], 1)
    (path,) = files(tmp_path)
    foreign = path.with_name("notes.txt")
    foreign.write_text("mine")
    (tmp_path / "photo.prefix").write_text("mine too")
    path.with_name("folder").mkdir()
    client = client_of(model, tmp_path, max_disk_bytes=1)
    assert "notes.txt: expected a file of a prefix store" in caplog.text
    client.reply([5, *TOKENS[:20]], 1)
    assert foreign.read_text() == "mine"
    assert (tmp_path / "photo.prefix").exists()


def test_a_folder_that_cannot_be_made_is_an_error(models: dict[str, Model], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot be made"):
        PrefixStore(models["qwen3"].runner, 1000, tmp_path / "file")


def test_a_folder_that_disappears_is_a_warning(
    models: dict[str, Model], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = models["qwen3"]
    client = client_of(model, tmp_path / "store")
    client.reply(TOKENS[:20], 1)
    for path in files(tmp_path):
        path.unlink()
    next((tmp_path / "store").iterdir()).rmdir()
    client.reply([*TOKENS[:25]], 1)
    client.store.flush()
    assert "not written to the prefix store" in caplog.text
    os.rmdir(tmp_path / "store")  # noqa: PTH106
    assert client.reply(TOKENS[:30], 2) == anew(model, CONTEXT, TOKENS[:30], 2)


def test_files_that_others_delete_are_no_warning(
    models: dict[str, Model], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, model in models.items():
        client_of(model, tmp_path / name).reply(TOKENS[:40], 3)
        client = client_of(model, tmp_path / name)
        for path in files(tmp_path / name):
            path.unlink()
        assert client.reply(TOKENS[:40], 3) == anew(model, CONTEXT, TOKENS[:40], 3)
    assert not caplog.records


def test_two_stores_share_a_folder(models: dict[str, Model], tmp_path: Path) -> None:
    """Each deletes files that the other one knows."""
    model = models["qwen3_next"]
    client_of(model, tmp_path / "probe").reply(TOKENS[:40], 3)
    one = sum(path.stat().st_size for path in files(tmp_path / "probe"))
    limits = {"memory": 2 * one, "max_disk_bytes": 2 * one}
    clients = [client_of(model, tmp_path / "store", **limits) for _ in range(2)]
    clients[0]._seen = clients[1]._seen
    for turn in range(8):
        ids = [turn % 3, *TOKENS[: 30 + turn]]
        assert clients[turn % 2].reply(ids, 2) == anew(model, CONTEXT, ids, 2)
    assert files(tmp_path / "store")


def test_a_file_that_is_being_deleted_is_not_missed(
    models: dict[str, Model],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A conversation is asked for while its file is being deleted: it is read anew, without a warning."""
    model = models["qwen3_next"]
    probe = client_of(model, tmp_path / "probe")
    probe.reply(TOKENS[:40], 1)
    client = client_of(model, tmp_path / "store", memory=probe.store.nbytes // 2)
    client.reply(TOKENS[:40], 1)
    (one,) = files(tmp_path / "store")
    assert client.store._folder is not None
    client.store._folder.max_bytes = one.stat().st_size * 3 // 2
    deleted, asked, unlink = threading.Event(), threading.Event(), Path.unlink

    def unlink_slowly(path: Path, **options: Any) -> None:
        unlink(path, **options)
        deleted.set()
        asked.wait(60)

    monkeypatch.setattr(Path, "unlink", unlink_slowly)
    client.reply([5, *TOKENS[:40]], 1)  # there is room for one, in memory and on disk
    try:
        assert deleted.wait(60)
        assert client.reply(TOKENS[:40], 2) == anew(model, CONTEXT, TOKENS[:40], 2)
    finally:
        asked.set()
    wait()
    assert not caplog.records


def test_a_file_that_cannot_be_deleted_goes_on_serving(
    models: dict[str, Model],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = models["qwen3"]
    client = client_of(model, tmp_path)
    client.reply(TOKENS[:40], 1)
    (one,) = files(tmp_path)

    def refuse(path: Path, **options: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert client.store._folder is not None
    client.store._folder.max_bytes = one.stat().st_size * 3 // 2
    client.reply([5, *TOKENS[:40]], 1)
    wait()
    assert "cannot be deleted from the prefix store: [Errno 13] Permission denied" in caplog.text
    assert files(tmp_path) == [one]
    assert not client.store._folder._known[one].gone


def test_nobody_waits_for_the_disk(models: dict[str, Model], tmp_path: Path) -> None:
    """What is not written yet is read from memory, also after the store gave it up."""
    for name, model in models.items():
        probe = client_of(model, tmp_path / "probe")
        probe.reply(TOKENS[:40], 3)
        client = client_of(model, tmp_path / name, memory=probe.store.nbytes)
        disk = threading.Event()
        later(disk.wait, 60)
        for first in range(2):
            client.reply([first, *TOKENS[:40]], 3)
        client.reply([0, *TOKENS[:40], 7], 3)
        assert client.cached >= 40
        assert not list((tmp_path / name).rglob("*.prefix"))
        disk.set()
        assert files(tmp_path / name)
        client.use(PrefixStore(model.runner, 1, tmp_path / name))
        client.reply([0, *TOKENS[:40], 7], 3)
        assert client.cached >= 40


def test_a_disk_that_is_too_slow_is_left_alone(models: dict[str, Model], tmp_path: Path) -> None:
    model, disk = models["qwen3"], threading.Event()
    client = client_of(model, tmp_path, memory=1 << 20)
    later(disk.wait, 60)
    for first in range(20):
        client.reply([first, *TOKENS[:100]], 3)
    disk.set()
    written = sum(path.stat().st_size for path in files(tmp_path))
    most = 1 << 18
    assert most < written < 2 * most
    client.reply([19, *TOKENS[:100]], 3)  # caught up
    assert sum(path.stat().st_size for path in files(tmp_path)) > written


def test_a_process_that_ends_writes_what_waits(tmp_path: Path) -> None:
    script = """
import sys, time, pyturbo
from pyturbo.engine.prefix_writer import later
model = pyturbo.load(prefix_cache=pyturbo.PrefixCache(folder=sys.argv[1]))
later(time.sleep, 0.5)
model.generate("Once upon a time", 3)
"""
    subprocess.run([sys.executable, "-c", script, "store"], cwd=tmp_path, check=True, timeout=120)
    assert files(tmp_path / "store")


@pytest.mark.slow
def test_stores_that_are_killed_leave_whole_files(tmp_path: Path) -> None:
    write_hf(MODELS["qwen3_next"], tmp_path / "model")
    script = Path(__file__).parent / "killed_prefix_writers.py"
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        cwd=tmp_path.parent,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    seen = json.loads(done.stdout)
    assert seen["died"] > 20
    assert seen["found"] == [0, 1, 2]
    assert seen["last"] == 2
    assert set(seen["names"]) == {".prefix"}  # leftovers were removed
