"""Session files: what is written where, what goes on after reading, what is refused.

tests/test_killed_writers.py has writers that die. Windows are in tests/models/test_windows.py.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyturbo
from pyturbo.engine import session_file
from pyturbo.errors import ArgumentError, FileError, FormatError
from pyturbo.layers.kv_cache import KV_FORMATS
from pyturbo.model import Model, load
from session_files import change, encoded, parts
from tiny_configs import MODELS
from tiny_gguf import write_gguf
from tiny_models import write_hf, write_mlx


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def model_of(folder: Path, name: str, device: Any = "cpu", kv: str = "f16") -> Model:
    path = folder / name
    if not path.exists():
        write_mlx(MODELS[name], path)
    return load(path, device, kv=kv)


@pytest.mark.spread
@pytest.mark.slow
@pytest.mark.parametrize("kv", [form.name for form in KV_FORMATS])
def test_every_device_goes_on_with_the_same_bits(
    folder: Path, tmp_path: Path, device: pyturbo.Device, kv: str
) -> None:
    model = model_of(folder, "qwen3_5_moe", device, kv)
    session = model.session(24)
    session.prefill([5, 6, 7, 8, 9])
    session.save(tmp_path / "chat.session")
    others = [
        model.load_session(tmp_path / "chat.session"),
        model.load_session(tmp_path / "chat.session", 31),
    ]
    want = [session.step(token).tobytes() for token in (11, 12)]
    for other in others:
        assert [other.step(token).tobytes() for token in (11, 12)] == want
        assert other.tokens.tolist() == [5, 6, 7, 8, 9, 11, 12]
    assert [other.context for other in others] == [24, 31]


@pytest.mark.parametrize("kv", ["f16", "turbo4v2"])
@pytest.mark.parametrize("name", ["qwen2_windows", "deepseek_v3", "qwen3_next"])
def test_a_file_has_the_rows_in_use(folder: Path, tmp_path: Path, name: str, kv: str) -> None:
    model = model_of(folder, name, kv=kv)
    sizes = {}
    for context in (11, 400):
        session = model.session(context)
        session.prefill([5, 6, 7, 8])
        session.save(tmp_path / f"{context}.session")
        header, state = parts(tmp_path / f"{context}.session")
        sizes[context] = header["state_bytes"]
        tokens = np.frombuffer(state[:16], np.int32)
        assert (header["position"], tokens.tolist()) == (4, [5, 6, 7, 8])
    used = 0
    for piece, array in model.session(
        11
    ).state.items():  # only rows are 11, or 16 where they are exact copies
        rows = 16 if "recent" in piece else 11 if 11 in array.shape else 4
        used += array.nbytes * 4 // rows
    assert sizes[11] == used
    assert sizes[400] == sizes[11]


def test_another_context(folder: Path, tmp_path: Path) -> None:
    model, path = model_of(folder, "qwen3"), tmp_path / "chat.session"
    session = model.session(16)
    session.prefill([3, 1, 4, 1, 5, 9, 2])
    session.save(path)
    for context in (7, 8, 500):
        other = model.load_session(path, context=context)
        assert (other.context, other.position) == (context, 7)
        assert other.logits.tobytes() == session.logits.tobytes()
    assert model.load_session(path, context=8).step(6).tobytes() == session.fork().step(6).tobytes()
    with pytest.raises(ArgumentError, match="context: expected 7, the tokens that .* has, to 512, got 6"):
        model.load_session(path, context=6)
    with pytest.raises(ArgumentError, match="context: expected 7, the tokens that .* has, to 512, got 513"):
        model.load_session(path, context=513)
    with pytest.raises(ArgumentError, match="load_session: context: expected"):
        model.load_session(path, context="8")


@pytest.mark.parametrize("kv", ["f16", "turbo4"])
def test_a_gguf_model_saves_the_rows_in_use(tmp_path: Path, kv: str) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    model = load(path, "cpu", kv=kv)
    session = model.session(512)
    session.prefill([1, 2, 3])
    session.save(tmp_path / "chat.session")
    assert (tmp_path / "chat.session").stat().st_size < session.nbytes / 10
    want = session.step(2).tobytes()
    assert load(path, "cpu", kv=kv).load_session(tmp_path / "chat.session").step(2).tobytes() == want


def test_wrong_files(folder: Path, tmp_path: Path) -> None:
    model, path = model_of(folder, "qwen2"), tmp_path / "chat.session"
    model.session(8).save(path)
    whole, (header, state) = path.read_bytes(), parts(path)

    def changed(**entries: object) -> bytes:
        return encoded(json.dumps(header | entries).encode(), state)

    with pytest.raises(FormatError, match=r"expected a session of 'qwen3', got one of 'qwen2'$"):
        model_of(folder, "qwen3").load_session(path)
    with pytest.raises(FormatError, match="kv: expected 'f32', got 'f16'"):
        model_of(folder, "qwen2", kv="f32").load_session(path)
    for damaged, message in (
        (whole[:-1], "the file is damaged"),
        (whole + b"\0", "the file is damaged"),
        (whole[:100] + bytes([whole[100] ^ 1]) + whole[101:], "the file is damaged"),
        (whole[:-40] + bytes([whole[-40] ^ 1]) + whole[-39:], "the file is damaged"),
        (
            whole[:16] + b"\1" + whole[17:],
            "expected version 2 .*, got 1: it was saved by an earlier pyturbo$",
        ),
        (whole[:16] + b"\3" + whole[17:], "expected version 2 of session files, got 3$"),
        (
            whole[:20] + b"\xff\xff\xff\xff" + whole[24:],
            "header: expected at most [0-9]+ bytes, got 4294967295",
        ),
        (b"", "expected a pyturbo session"),
        (b"GGUF" * 40, "expected a pyturbo session"),
        (encoded(b"[1]"), "expected a JSON object"),
        (encoded(b"{"), "not valid JSON"),
        (encoded(b"[" * 50000), "nested too deeply"),
        (changed(model="0" * 64), r"expected a session of this model, [0-9a-f]{8}, got one of .*'00000000'$"),
        (changed(model=None), "got one of another qwen2, 'None'$"),
        (changed(model_type="x" * 9999), "expected a session of 'qwen2', got one of 'xxx.{,130}$"),
        (changed(context=513), "context: expected 1 to 512, got 513"),
        (changed(position=9), "position: expected 0 to 8, got 9"),
        (changed(position=1), "state_bytes: expected [0-9]+, got [0-9]+"),
        (changed(pending=[1, 2]), "pending: expected one token or none"),
        (changed(pending=[193]), "pending: expected one token or none"),
        (changed(notes=[]), "notes: expected an object"),
        (changed(state_bytes=2**62), "the file is damaged"),
        (changed(state_bytes="8"), "the file is damaged"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=message):
            model.load_session(path)
    session = model.session(8)
    session.prefill([1, 2])
    session.save(path)
    header, state = parts(path)
    for token in (-1, 193, 2**31 - 1):
        path.write_bytes(
            encoded(json.dumps(header).encode(), state[:4] + struct.pack("<i", token) + state[8:])
        )
        with pytest.raises(FormatError, match=f"tokens: expected 0 to 192, got {token}$"):
            model.load_session(path)
    path.write_bytes(changed(context=9))
    assert model.load_session(path).context == 9
    with pytest.raises(FileError, match="cannot be opened: .*No such file"):
        model.load_session(tmp_path / "absent")


def test_what_is_no_file_is_refused_at_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(folder, "qwen2")
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
    for path, kind in (
        (tmp_path / "fifo", "a pipe"),
        (tmp_path / "socket", "a socket"),
        (Path("/dev/zero"), "a device"),
        (tmp_path, "a folder"),
    ):
        with pytest.raises(FileError, match="expected a regular file|cannot be opened"):
            model.load_session(path)
        with pytest.raises(FileError, match=f"expected a file to write to, got {kind}$"):
            model.session(8).save(path)
    for wrong in (3, b"chat", None):
        with pytest.raises(ArgumentError, match=f"load_session: expected a path, got {type(wrong).__name__}"):
            model.load_session(wrong)
        with pytest.raises(ArgumentError, match=f"save: expected a path, got {type(wrong).__name__}"):
            model.session(8).save(wrong)
    for call in (model.load_session, model.session(8).save):
        with pytest.raises(FileError, match="null"):
            call("a\0b")


def test_only_sessions_and_empty_files_are_replaced(folder: Path, tmp_path: Path) -> None:
    model, path = model_of(folder, "qwen2"), tmp_path / "notes.txt"
    session = model.session(8)
    for data in (b"dear diary", session_file.MAGIC[:-1], b"\0"):
        path.write_bytes(data)
        with pytest.raises(FileError, match=r"notes.txt: exists and is not a pyturbo session"):
            session.save(path)
        assert path.read_bytes() == data
    path.write_bytes(b"")
    session.save(path)
    path.chmod(0o640)
    session.notes["title"] = "again"
    session.save(path)
    assert model.load_session(path).notes == {"title": "again"}
    assert path.stat().st_mode & 0o777 == 0o640
    path.write_bytes(session_file.MAGIC + b"\1\0\0\0 of another version")
    session.save(path)
    session.save(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    session.save(tmp_path / ("ü" * 127))
    with pytest.raises(FileError, match="cannot be written: File name too long"):
        session.save(tmp_path / ("ü" * 128))
    with pytest.raises(FileError, match="absent/chat: cannot be written: No such file or directory"):
        session.save(tmp_path / "absent" / "chat")
    with pytest.raises(FileError, match="expected another name: .pyturbo-partial"):
        session.save(tmp_path / "a.pyturbo-partial")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "new", path, tmp_path / ("ü" * 127)]


def test_a_failure_leaves_the_file_that_was_there(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, path = model_of(folder, "qwen2").session(8), tmp_path / "chat.session"
    session.save(path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    session.notes["title"] = "again"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(FileError, match="chat.session: cannot be written: No space left on device"):
            session.save(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *arguments: False)  # a superuser may write to all
        with pytest.raises(FileError, match="chat.session: cannot be written: it is read-only"):
            session.save(path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("chat.session", before)]


def test_links_stay_and_lead_to_the_file(folder: Path, tmp_path: Path) -> None:
    session = model_of(folder, "qwen2").session(8)
    (tmp_path / "there").mkdir()
    link, loop = tmp_path / "link", tmp_path / "loop"
    link.symlink_to(Path("there") / "chat.session")  # nothing is there yet
    for _ in range(2):
        session.save(link)
        assert link.is_symlink()
        assert [path.name for path in (tmp_path / "there").iterdir()] == ["chat.session"]
    loop.symlink_to(loop)
    with pytest.raises(FileError, match="loop: expected a file or folder, got a symbolic link"):
        session.save(loop)


def test_notes_are_what_json_can_hold(folder: Path, tmp_path: Path) -> None:
    model, path = model_of(folder, "qwen2"), tmp_path / "chat.session"
    session = model.session(8)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for notes, message in (
        ({"a": object()}, "notes: expected what JSON can hold: Object of type object"),
        ({"a": {1, 2}}, "notes: expected what JSON can hold"),
        ({"a": float("nan")}, "notes: expected what JSON can hold"),
        ({"a": deep}, "notes: expected what JSON can hold"),
        ({"1": 0, 1: 0}, "notes: expected what JSON can hold"),
        ({(1, 2): 0}, "notes: expected what JSON can hold"),
        ([1], "notes: expected a dict, got list"),
        (None, "notes: expected a dict, got NoneType"),
    ):
        session.notes = notes
        with pytest.raises(ArgumentError, match=message):
            session.save(path)
    assert list(tmp_path.iterdir()) == []
    session.notes = {"a": [1, 2.5, None, "\ud800", {"b": True}]}
    session.save(path)
    assert model.load_session(path).notes == session.notes


def test_a_large_state_is_not_copied(folder: Path, tmp_path: Path) -> None:
    model, path = (
        load(write_hf(MODELS["llama"], folder / "llama"), "cpu", kv="f32"),
        tmp_path / "chat.session",
    )
    session = model.session(512)
    session.prefill([token % 200 for token in range(500)])
    tracemalloc.start()
    session.save(path)
    model.load_session(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < session.nbytes / 2


def test_a_file_that_shrinks_is_an_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path = model_of(folder, "qwen2"), tmp_path / "chat.session"
    model.session(8).save(path)

    fill = session_file.Reader.fill

    def shrink(reader: session_file.Reader, *arguments: Any) -> None:
        os.truncate(path, path.stat().st_size - 50)
        fill(reader, *arguments)

    monkeypatch.setattr(session_file.Reader, "fill", shrink)
    with pytest.raises(FormatError, match="chat.session: ends at byte"):
        model.load_session(path)


def test_changing_the_header_is_seen(folder: Path, tmp_path: Path) -> None:
    """The helper of these tests changes what it says, so that refusals are not of its own making."""
    model, path = model_of(folder, "qwen2"), tmp_path / "chat.session"
    model.session(8).save(path)
    change(path, notes={"a": 1})
    assert model.load_session(path).notes == {"a": 1}
