"""``pyturbo pull`` without a network: what it asks of huggingface_hub, and what it says when that fails.

A stand-in for huggingface_hub answers, but for the test of a hub that cannot be reached.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pyturbo.cli import main


class Hub(ModuleType):
    """Stands in for huggingface_hub."""

    class HubError(Exception):
        pass

    class NoRepositoryError(HubError):
        pass

    class NotFoundError(HubError, FileNotFoundError):
        pass

    def __init__(self, path: str) -> None:
        super().__init__("huggingface_hub")
        self.errors = ModuleType("huggingface_hub.errors")
        self.errors.HfHubHTTPError = self.HubError
        self.errors.HFValidationError = ValueError
        self.errors.LocalEntryNotFoundError = self.NotFoundError
        self.errors.RepositoryNotFoundError = self.NoRepositoryError
        self.bars = ModuleType("huggingface_hub.utils.tqdm")
        self.bars.disable_progress_bars = lambda: None
        self.failure: Exception | None = None
        self.asked: dict[str, Any] = {}
        self.path = path
        self.files: list[str] = ["config.json", "model.safetensors"]

    def snapshot_download(self, name: str, **options: Any) -> str:
        for file in self.files:
            (Path(options["local_dir"] or self.path) / file).write_text(name)
        if self.failure:
            raise self.failure
        self.asked = options | {"name": name}
        return options["local_dir"] or self.path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Hub:
    module = Hub(str(tmp_path_factory.mktemp("cache")))
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", module.errors)
    monkeypatch.setitem(sys.modules, "huggingface_hub.utils.tqdm", module.bars)
    return module


def test_pull(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "someone/model"]) == 0
    assert capsys.readouterr() == (f"{hub.path}\n", "next:\n  pyturbo chat someone/model\n")
    assert hub.asked["name"] == "someone/model"
    assert "*.safetensors" in hub.asked["allow_patterns"]
    assert not any(pattern.endswith((".bin", ".py", ".pth")) for pattern in hub.asked["allow_patterns"])
    options = ["--revision", "v2", "--to", str(tmp_path), "--include", "*Q4_1.gguf", "--json"]
    assert main(["pull", "someone/model", *options]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(tmp_path), "models": [str(tmp_path)]}
    assert (hub.asked["revision"], hub.asked["local_dir"]) == ("v2", str(tmp_path))
    assert "*Q4_1.gguf" in hub.asked["allow_patterns"]
    assert "*.safetensors" not in hub.asked["allow_patterns"]


def test_it_says_how_the_model_is_called(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The id; one of its files where it has several; a path where it is not in the cache."""
    hub.path = str(tmp_path)
    hub.files = ["a-Q4.gguf"]
    for words, names in (
        (["someone/model"], ["someone/model"]),
        (["someone/model", "--revision", "v2"], ["someone/model@v2"]),
        (["someone/model", "--to", str(tmp_path / "to")], [str(tmp_path / "to" / "a-Q4.gguf")]),
    ):
        assert main(["pull", "--json", *words]) == 0
        assert json.loads(capsys.readouterr().out)["models"] == names
    hub.files = ["a-Q4.gguf", "b-Q8.gguf"]
    (tmp_path / "to" / "a-Q4.gguf").unlink()
    assert main(["pull", "someone/model"]) == 0
    expected = "next:\n  pyturbo chat someone/model:a-Q4.gguf\n  pyturbo chat someone/model:b-Q8.gguf\n"
    assert capsys.readouterr().err == expected


def test_an_id_may_name_a_revision_and_a_file(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.files = ["x-Q4.gguf"]
    assert main(["pull", "someone/model@v2:x-Q4.gguf"]) == 0
    assert (hub.asked["name"], hub.asked["revision"]) == ("someone/model", "v2")
    assert "x-Q4.gguf" in hub.asked["allow_patterns"]
    assert "*.gguf" not in hub.asked["allow_patterns"]
    assert capsys.readouterr().err == "next:\n  pyturbo chat someone/model@v2:x-Q4.gguf\n"
    hub.files = [f"y-0000{i}-of-00002.gguf" for i in (1, 2)]
    Path(hub.path, "x-Q4.gguf").unlink()
    assert main(["pull", "someone/model:y-00002-of-00002.gguf"]) == 0
    assert "y-*-of-00002.gguf" in hub.asked["allow_patterns"]
    assert capsys.readouterr().err == "next:\n  pyturbo chat someone/model:y-00002-of-00002.gguf\n"
    assert main(["pull", "someone/model@v2", "--revision", "v3"]) == 2
    assert "--revision: expected it only once, the id already names 'v2'; see" in capsys.readouterr().err


def test_a_folder_with_other_things_is_refused(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    docs, model = tmp_path / "docs", tmp_path / "new" / "model"
    docs.mkdir()
    (docs / "config.json").write_text("mine")
    expected = "expected an empty folder or an earlier pull of someone/model, got"
    assert main(["pull", "someone/model", "--to", str(docs)]) == 1
    assert capsys.readouterr().err == f"pyturbo: pull: {docs}: {expected} other files; name another folder\n"
    assert [path.name for path in docs.iterdir()] == ["config.json"]
    assert (docs / "config.json").read_text() == "mine"
    assert main(["pull", "someone/model", "--to", str(docs / "config.json")]) == 1
    assert "config.json: expected a folder, got a file" in capsys.readouterr().err
    for _ in range(2):  # again: it goes on where it was, or gets what is new
        assert main(["pull", "someone/model@v2", "--to", str(model)]) == 0
    assert (model / "config.json").read_text() == "someone/model"
    capsys.readouterr()
    assert main(["pull", "someone/other", "--to", str(model)]) == 1
    assert (
        "an earlier pull of someone/other, got the files of 'someone/model'; name" in capsys.readouterr().err
    )
    assert (model / "config.json").read_text() == "someone/model"
    mark = model / ".cache" / "pyturbo" / "pull.json"
    mark.write_text("[")
    assert main(["pull", "someone/model", "--to", str(model)]) == 1
    capsys.readouterr()
    mark.write_text(json.dumps({"repository": "\x1b[2Jowned"}))
    assert main(["pull", "someone/model", "--to", str(model)]) == 1
    assert "got the files of '\\x1b[2Jowned'; name another folder" in capsys.readouterr().err


@pytest.mark.slow
def test_a_hub_that_cannot_be_reached(tmp_path: Path) -> None:
    """As huggingface_hub itself has it: that returns a folder that is there, whatever it holds."""
    code = "import sys; from pyturbo.cli import main; sys.exit(main())"
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nothing listens
        endpoint = f"http://127.0.0.1:{bound.getsockname()[1]}"
        environment = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
        for words in (["a/b", "--to", "to"], ["a/b"]):
            done = subprocess.run(
                [sys.executable, "-c", code, "pull", *words],
                cwd=tmp_path,
                env=environment | {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "home")},
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert (done.returncode, done.stdout) == (1, "")
            assert done.stderr.splitlines()[-1].startswith(f"pyturbo: pull: {words[0]}: ")
            assert "the hub cannot be reached" in done.stderr
            assert not (tmp_path / "to").exists()


def test_what_cannot_be_loaded_is_an_error(
    hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a download that was cut, when the hub can no longer be reached."""
    model, other = ["pull", "someone/model"], ["pull", "someone/model", "--to", str(tmp_path / "to")]
    weights = "expected config.json with model*.safetensors, or a GGUF file that was asked for, found none"
    for files, words, message in (
        (["config.json"], model, weights),
        (["config.json"], other, weights),
        (["model.safetensors"], [*other[:-1], str(tmp_path / "bare")], weights),
        (["config.json", "model-00002-of-00002.safetensors"], other, "expected all shards 1 to 2"),
        (["a-Q4.gguf"], [*other[:-1], str(tmp_path / "gguf"), "--include", "*Q8*"], weights),
        (["a-Q4.gguf"], ["pull", "someone/model:b.gguf"], "expected b.gguf, found none"),
    ):
        hub.files = files
        assert main(words) == 1
        shown = capsys.readouterr()
        assert shown.out == ""
        assert message in shown.err
        assert shown.err.endswith(": the hub cannot be reached, or does not have it\n")
    hub.files = ["model-00001-of-00002.safetensors"]  # what was missing
    assert main(other) == 0


def test_a_killed_pull_can_be_repeated(hub: Hub, tmp_path: Path) -> None:
    """After a kill before the first file, and failures then."""
    to = tmp_path / "to"
    (to / ".cache" / "pyturbo").mkdir(parents=True)
    (to / ".cache" / "pyturbo" / "pull.json").write_text('{"repository": "someone/model"}')
    hub.files, hub.failure = [], hub.NoRepositoryError("404")
    assert main(["pull", "someone/model", "--to", str(to)]) == 1
    assert list(to.iterdir()) == []
    (to / ".cache" / "pyturbo").mkdir(parents=True)  # killed before the mark had its name
    (to / ".cache" / "pyturbo" / ".pull.json.0123456789abcdef.pyturbo-partial").touch()
    assert main(["pull", "someone/model", "--to", str(to)]) == 1
    assert list(to.iterdir()) == []
    (to / ".cache").mkdir()
    hub.files, hub.failure = ["a.gguf"], None
    assert main(["pull", "someone/model", "--to", str(to)]) == 0
    (tmp_path / "mine" / ".cache").mkdir(parents=True)
    (tmp_path / "mine" / ".cache" / "notes").touch()
    assert main(["pull", "someone/model", "--to", str(tmp_path / "mine")]) == 1


def test_a_failure_leaves_what_was_downloaded_or_nothing(hub: Hub, tmp_path: Path) -> None:
    hub.files = []
    hub.failure = hub.NoRepositoryError("404")
    to = tmp_path / "a" / "b"
    assert main(["pull", "someone/model", "--to", str(to)]) == 1
    assert list(tmp_path.iterdir()) == []
    to.mkdir(parents=True)
    assert main(["pull", "someone/model", "--to", str(to)]) == 1
    assert list(to.iterdir()) == []
    hub.files = ["config.json", "model.safetensors"]
    assert main(["pull", "someone/model", "--to", str(to)]) == 1
    hub.failure = None
    assert main(["pull", "someone/model", "--to", str(to)]) == 0


def test_failures_are_one_line(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    for failure, message in (
        (
            hub.NotFoundError("cannot reach\nanything"),
            "the hub cannot be reached, and the model is not in the cache",
        ),
        (hub.NoRepositoryError("404"), "there is no such model, or it needs a login"),
        (hub.HubError("404 Client Error.\n\nRepository Not Found"), "404 Client Error."),
        (OSError("disk full"), "disk full"),
    ):
        hub.failure = failure
        assert main(["pull", "someone/model"]) == 1
        assert capsys.readouterr().err == f"pyturbo: pull: someone/model: {message}\n"


def test_an_id_that_the_hub_does_not_take_is_wrong_usage(
    hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull", ""]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("pyturbo: expected the id of a model, such as ")
    assert shown.endswith(", got an empty one; see pyturbo pull --help\n")
    hub.failure = ValueError("Repo id must be\nin the form")
    assert main(["pull", "a b"]) == 2
    assert capsys.readouterr().err == "pyturbo: a b: Repo id must be; see pyturbo pull --help\n"


def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["pull", "someone/model"]) == 1
    expected = 'pyturbo: pull: needs huggingface_hub: pip install "pyturbo-llm[pull]"\n'
    assert capsys.readouterr().err == expected
