"""``pyturbo pull`` without a network: what it asks of huggingface_hub, and what it says when that fails."""

from __future__ import annotations

import json
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

    def __init__(self) -> None:
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
        self.path = "/cache/model"

    def snapshot_download(self, name: str, **options: Any) -> str:
        if self.failure:
            raise self.failure
        self.asked = options | {"name": name}
        return options["local_dir"] or self.path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    module = Hub()
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", module.errors)
    monkeypatch.setitem(sys.modules, "huggingface_hub.utils.tqdm", module.bars)
    return module


def test_pull(hub: Hub, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "someone/model"]) == 0
    assert capsys.readouterr() == ("/cache/model\n", "next:\n  pyturbo chat someone/model\n")
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
    (tmp_path / "a-Q4.gguf").touch()
    for words, names in (
        (["someone/model"], ["someone/model"]),
        (["someone/model", "--revision", "v2"], ["someone/model@v2"]),
        (["someone/model", "--to", str(tmp_path)], [str(tmp_path / "a-Q4.gguf")]),
    ):
        assert main(["pull", "--json", *words]) == 0
        assert json.loads(capsys.readouterr().out)["models"] == names
    (tmp_path / "b-Q8.gguf").touch()
    assert main(["pull", "someone/model"]) == 0
    expected = "next:\n  pyturbo chat someone/model:a-Q4.gguf\n  pyturbo chat someone/model:b-Q8.gguf\n"
    assert capsys.readouterr().err == expected


def test_an_id_may_name_a_revision_and_a_file(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pull", "someone/model@v2:x-Q4.gguf"]) == 0
    assert (hub.asked["name"], hub.asked["revision"]) == ("someone/model", "v2")
    assert "x-Q4.gguf" in hub.asked["allow_patterns"]
    assert "*.gguf" not in hub.asked["allow_patterns"]
    assert capsys.readouterr().err == "next:\n  pyturbo chat someone/model@v2:x-Q4.gguf\n"
    assert main(["pull", "someone/model@v2", "--revision", "v3"]) == 2
    assert "--revision: expected it once, the id names 'v2'; see" in capsys.readouterr().err


def test_failures_are_one_line(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    for failure, message in (
        (
            hub.NotFoundError("cannot reach\nanything"),
            "the hub cannot be reached, and it is not in the cache",
        ),
        (hub.NoRepositoryError("404"), "there is no such model, or it asks for a login"),
        (hub.HubError("404 Client Error.\n\nRepository Not Found"), "404 Client Error."),
        (ValueError("Repo id must be\nin the form"), "Repo id must be"),
        (OSError("disk full"), "disk full"),
    ):
        hub.failure = failure
        assert main(["pull", "someone/model"]) == 1
        assert capsys.readouterr().err == f"pyturbo: pull: someone/model: {message}\n"


def test_a_missing_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert main(["pull", "someone/model"]) == 1
    expected = 'pyturbo: pull: needs huggingface_hub: pip install "pyturbo-llm[pull]"\n'
    assert capsys.readouterr().err == expected
