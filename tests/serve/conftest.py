"""Models whose replies are written by the tests, and a server for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pyturbo
from live_server import LiveServer
from pyturbo.engine.generation import Options
from pyturbo.serve import Settings, Shelf, Source, create_app
from scripted import Scripted
from text.dialects.published import TEMPLATES
from text.tiny_chat import write_model
from text.vocabularies import byte_level

#: Has the next replies of all models be texts, each token of it drawn in turn.
Script = Callable[[str], None]

KEY = "a-key"


def thinking_model(folder: Path) -> pyturbo.Model:
    """Return a model with thoughts and calls as Qwen's have them; its template begins the thoughts."""
    end = int(byte_level().token_to_id("<|im_end|>"))
    made = write_model(folder, 2, 1024, template=TEMPLATES["hermes think opened"], eos_token_id=[end])
    return pyturbo.load(made, "cpu", prefix_cache="64MB")


@pytest.fixture(scope="package")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> pyturbo.Model:
    return thinking_model(tmp_path_factory.mktemp("serve") / "model")


@pytest.fixture(scope="package")
def stories() -> pyturbo.Model:
    """The bundled model, which continues text."""
    return pyturbo.load(device="cpu", prefix_cache="64MB")


@pytest.fixture(scope="package")
def live(chat_model: pyturbo.Model, stories: pyturbo.Model) -> Iterator[LiveServer]:
    """A server of both models, which wants a key."""
    models = {"chat": chat_model, "stories": stories}
    shelf = Shelf([Source(name, lambda model=model: model) for name, model in models.items()], pyturbo.Engine)
    with LiveServer(create_app(shelf, Settings(keys=[KEY], quiet_seconds=0.05))) as server:
        yield server


@pytest.fixture
def script(chat_model: pyturbo.Model, monkeypatch: pytest.MonkeyPatch) -> Script:
    def write(text: str) -> None:
        tokens = chat_model.tokenizer.encode(f"{text}<|im_end|>", special=False)
        monkeypatch.setattr(Options, "sampler", lambda self, *more: Scripted(tokens))

    return write


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The prompts that the model is given from now on, as text."""
    seen: list[str] = []
    text = pyturbo.Model.prompt_text

    def noted(self: pyturbo.Model, *given: Any) -> Any:
        prompt = text(self, *given)
        seen.append(str(prompt))
        return prompt

    monkeypatch.setattr(pyturbo.Model, "prompt_text", noted)
    return seen
