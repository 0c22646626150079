"""Models by their id, from a cache of huggingface_hub that the test lays out; that package is not needed."""

from __future__ import annotations

import os
from pathlib import Path

import huggingface_hub
import pytest

import pyturbo
from pyturbo.checkpoint import hub_cache, locate, open_checkpoint
from pyturbo.cli import main
from pyturbo.errors import FileError
from text.tiny_chat import write_model

OLD, NEW = "0123456789abcdef" * 2, "fedcba9876543210" * 2


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HF_HOME", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


def snapshot(cache: Path, repository: str, commit: str = NEW, **refs: str) -> Path:
    """An empty copy of a repository, and its branches and tags."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True, exist_ok=True)
    for name, target in refs.items():
        (folder / "refs" / name).write_text(target)
    copy = folder / "snapshots" / commit
    copy.mkdir(parents=True)
    return copy


def path_of(text: str) -> Path | None:
    wanted = hub_cache.model_id(text)
    assert wanted is not None
    assert str(wanted) == text
    return hub_cache.find(wanted)


def test_a_model_is_loaded_by_its_id(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = snapshot(cache, "someone/Tiny-Model", main=NEW)
    files = write_model(cache / "blobs", layers=2)
    for file in files.iterdir():
        (copy / file.name).symlink_to(file)
    assert huggingface_hub.snapshot_download(
        "someone/Tiny-Model", local_files_only=True, cache_dir=cache
    ) == str(copy)
    expected = pyturbo.load(files).generate("Hello", max_tokens=3)
    assert pyturbo.load("someone/Tiny-Model").generate("Hello", max_tokens=3).tokens == expected.tokens
    words = ["Hello", "--raw", "--max-tokens", "3", "--model", f"someone/Tiny-Model@{NEW[:7]}"]
    assert main(["generate", *words]) == 0
    assert capsys.readouterr().out == expected.text + "\n"
    with pytest.raises(
        FileError, match="the cache has 'someone/Tiny-Model'; if it is the name of a model on"
    ):
        pyturbo.load("someone/Tiny-Modell")


def test_a_file_with_the_name_of_an_owner_is_no_path_to_a_model(cache: Path, tmp_path: Path) -> None:
    snapshot(cache, "someone/model").joinpath("model.gguf").touch()
    (tmp_path / "someone").touch()
    assert locate("someone/model").name == "model.gguf"


def test_an_id_may_end_in_a_slash(cache: Path) -> None:
    snapshot(cache, "someone/model").joinpath("model.gguf").touch()
    assert locate("someone/model/").name == "model.gguf"


def test_a_path_wins(cache: Path, tmp_path: Path) -> None:
    snapshot(cache, "here/model")
    write_model(tmp_path / "here" / "model", layers=2)
    with open_checkpoint("here/model") as checkpoint:
        assert checkpoint.path == Path("here/model")


@pytest.mark.parametrize("text", ["./a/b", "../a", "a", "/a/b", "a/b/c", "a//b", "a/b:c.bin", "-a/b", "a/b@"])
def test_what_is_no_id(text: str) -> None:
    assert hub_cache.model_id(text) is None


def test_revisions(cache: Path) -> None:
    """The branch main, or what was named; where main was never downloaded, the newest copy."""
    old = snapshot(cache, "a/b", OLD, v1=OLD)
    new = snapshot(cache, "a/b", NEW, v2=NEW, gone="5" * 32)
    for copy, seconds in ((old, 10), (new, 20)):
        (copy / "x.gguf").touch()
        os.utime(copy, (seconds, seconds))
    assert path_of("a/b") == new / "x.gguf"
    (cache / "models--a--b" / "refs" / "main").write_text(OLD + "\n")
    for name in ("a/b", "a/b@main", "a/b@v1", f"a/b@{OLD}", f"a/b@{OLD[:8]}", "a/b@v1:x.gguf"):
        assert path_of(name) == old / "x.gguf"
    assert path_of("a/b@v2") == new / "x.gguf"
    for revision in ("v3", "gone", OLD[:4]):
        with pytest.raises(FileError, match=f"to get it: pyturbo pull a/b --revision {revision}$"):
            path_of(f"a/b@{revision}")


def test_gguf_files(cache: Path) -> None:
    """The only one, or the one that is named; else the error lists them."""
    copy = snapshot(cache, "a/b", main=NEW)
    (copy / "config.json").write_text("{}")
    with pytest.raises(FileError, match="found no weights; to get it: pyturbo pull a/b$"):
        path_of("a/b")
    (copy / "m-Q4.gguf").touch()
    assert path_of("a/b") == copy / "m-Q4.gguf"
    (copy / "more").mkdir()
    (copy / "more" / "m-Q8.gguf").touch()
    with pytest.raises(FileError, match="found 2: say which: a/b:m-Q4.gguf, a/b:more/m-Q8.gguf$"):
        path_of("a/b")
    assert path_of("a/b:more/m-Q8.gguf") == copy / "more" / "m-Q8.gguf"
    with pytest.raises(
        FileError, match="found GGUF files m-Q4.gguf, more/m-Q8.gguf; to get it: pyturbo pull a/b "
    ):
        path_of("a/b:m-Q5.gguf")
    (copy / "model.safetensors").touch()
    assert path_of("a/b") == copy


def test_files_in_several_parts(cache: Path) -> None:
    """All parts are one file, which the first that is there stands for."""
    copy = snapshot(cache, "a/b", main=NEW)
    parts = [copy / f"m-Q4-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    for part in parts[1:]:
        part.touch()
    assert path_of("a/b") == parts[1]
    parts[0].touch()
    assert path_of("a/b") == parts[0]
    assert path_of("a/b:m-Q4-00003-of-00003.gguf") == parts[2]
    (copy / "m-Q8.gguf").touch()
    with pytest.raises(FileError, match="found 2: say which: a/b:m-Q4-00001-of-00003.gguf, a/b:m-Q8.gguf$"):
        path_of("a/b")
    with pytest.raises(FileError, match=r"pyturbo pull a/b --include 'm-Q5-\*-of-00002.gguf'$"):
        path_of("a/b:m-Q5-00001-of-00002.gguf")


def test_what_the_cache_holds(cache: Path) -> None:
    assert hub_cache.models() == {}
    assert path_of("a/b") is None
    snapshot(cache, "b/config-only").joinpath("config.json").touch()
    snapshot(cache, "b/quantised").joinpath("m.gguf").touch()
    whole = snapshot(cache, "a/model-in-parts")
    (whole / "config.json").touch()
    (whole / "model-00001-of-00002.safetensors").touch()
    (cache / "datasets--a--b" / "snapshots" / NEW).mkdir(parents=True)
    (cache / "models--a--never-finished").mkdir()
    assert list(hub_cache.models()) == ["a/model-in-parts", "b/quantised"]
    assert hub_cache.models()["a/model-in-parts"] == whole


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As huggingface_hub has it, where the first variable that is set counts."""
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = {
        "HF_HUB_CACHE": tmp_path / "hub",
        "HUGGINGFACE_HUB_CACHE": Path("/old"),
        "HF_HOME": tmp_path / "hf" / "hub",
        "XDG_CACHE_HOME": Path("/xdg/huggingface/hub"),
    }
    monkeypatch.setenv("HUGGINGFACE_HUB_CACHE", "/old")
    monkeypatch.setenv("HF_HOME", "~/hf")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    for variable, folder in expected.items():
        assert hub_cache.cache_folder() == folder
        monkeypatch.delenv(variable)
    assert hub_cache.cache_folder() == tmp_path / ".cache" / "huggingface" / "hub"
