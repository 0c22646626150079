"""What the documents say is what the package does: examples run, commands exist, links lead somewhere.

Blocks of one page share a scope and a folder. In it there are the checkpoints that pages speak of, as tiny
models of random weights: what is shown is how things are called, not what a model answers.
"""

from __future__ import annotations

import importlib.util
import io
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import pyturbo
from pyturbo.cli import main, make_parser
from pyturbo.model import default_model
from text.tiny_chat import write_model
from tiny_configs import MODELS
from tiny_models import write_hf

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
RUN = [
    ROOT / "README.md",
    ROOT / "docs/start.md",
    ROOT / "docs/streaming.md",
    *sorted(ROOT.glob("docs/guides/*.md")),
]

#: Commands that take long, need a network, or do not end by themselves: only their arguments are checked.
NOT_RUN = ("bench", "pull", "serve")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def module(script: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(script, ROOT / "docs" / f"{script}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def commands(page: Path) -> list[list[str]]:
    """The arguments of every pyturbo command on a page, in a block of shell or an indented one."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```|^ {4}(pyturbo [^\n]*\n)", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in "".join(block).splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("pyturbo ")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_model(tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf")
    tiny = MODELS["qwen3_moe"]
    write_hf(replace(tiny, config=tiny.config | {"vocab_size": 4096}), tmp_path / "Qwen3-30B-A3B")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(default_model() / file, tmp_path / "Qwen3-30B-A3B")
    downloaded = tmp_path / "hub" / "models--Qwen--Qwen3-30B-A3B" / "snapshots" / "0123456789abcdef"
    downloaded.parent.mkdir(parents=True)
    downloaded.symlink_to(tmp_path / "Qwen3-30B-A3B")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    return tmp_path


@pytest.mark.parametrize("script", ["make_kernels", "make_supported"])
def test_a_generated_page_is_current(script: str) -> None:
    maker = module(script)
    assert maker.PAGE.read_text(encoding="utf-8") == maker.page(), "run `make docs`"


def test_the_picture_of_a_terminal_shows_the_command_of_the_makefile() -> None:
    make_terminal = module("make_terminal")
    words = re.findall(r">([^<]+)</text>", make_terminal.PICTURE.read_text(encoding="utf-8"))
    shown = " ".join(" ".join(words).replace("&#160;", " ").replace("&quot;", '"').split())
    assert f".venv/bin/{make_terminal.command()}" in shown, "run docs/make_terminal.py"
    assert "written at" in shown


@pytest.mark.parametrize("page", RUN, ids=name)
def test_the_examples_of_a_page_run(page: Path, folder: Path) -> None:
    scope: dict[str, Any] = {}
    for block in re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    ):
        exec(compile(block, name(page), "exec"), scope)
    for arguments in commands(page):
        if arguments[0] not in NOT_RUN:
            assert main(arguments) == 0, arguments


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    for arguments in commands(page):
        make_parser(arguments).parse_args(arguments)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_example_of_a_model_is_that_model() -> None:
    page = (ROOT / "docs" / "adding-a-model.md").read_text()
    example = page.split("```python\n")[2].split("```")[0]
    source = (ROOT / "pyturbo" / "models" / "mixtral.py").read_text()
    assert "def build" in example
    assert [line for line in example.splitlines() if line not in source.splitlines()] == []


def test_the_example_of_a_device_is_compiled() -> None:
    page = (ROOT / "docs" / "adding-a-device.md").read_text()
    example = page.split("```cpp\n")[1].split("```")[0]
    assert "class SerialDevice" in example
    assert example in (ROOT / "tests" / "native" / "example_device.h").read_text()


def test_every_kernel_says_what_it_does_and_how_it_is_dispatched() -> None:
    for title, kernel in pyturbo.kernels().items():
        assert 0 < len(kernel["comment"]) <= 6, f"{title}: lines of formula, Layout and Numerics"
        assert kernel["contract"]["dispatch"], title
        for argument in kernel["arguments"]:
            if argument["kind"] == "buffer" and not kernel["function"].startswith("empty"):
                assert argument["shape"], f"{title}: {argument['name']}"
