"""What the documents say is what the package does."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyturbo
from text.tiny_chat import write_model

ROOT = Path(__file__).parent.parent


def test_the_kernel_reference_is_current() -> None:
    spec = importlib.util.spec_from_file_location("make_kernels", ROOT / "docs" / "make_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run `make docs`"


def test_the_examples_of_the_readme_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf")  # any model will do
    np.arange(64, dtype=np.uint32).tofile("weights.bin")
    scope: dict[str, Any] = {}
    for block in blocks:
        exec(block, scope)
    assert scope["y"].shape == (1, 1000)
    assert scope["table"].shape == (64,)
    assert (tmp_path / "story.session").is_file()


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("docs/*.md")), ids=lambda p: p.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_kernel_says_what_it_does_and_how_it_is_dispatched() -> None:
    for name, kernel in pyturbo.kernels().items():
        assert kernel["comment"], name
        assert kernel["contract"]["dispatch"], name
        for argument in kernel["arguments"]:
            if argument["kind"] == "buffer" and not kernel["function"].startswith("empty"):
                assert argument["shape"], f"{name}: {argument['name']}"
