"""The scripts under examples/ run and say what they are there to say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from text.tiny_chat import write_model

EXAMPLES = Path(__file__).parent.parent / "examples"
DOCUMENT = EXAMPLES.parent / "docs" / "examples.md"


def run(script: str, *arguments: str, folder: Path, typed: str = "") -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        cwd=folder,
        input=typed,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short_and_listed(script: Path) -> None:
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 60
    assert f"](../examples/{script.name})" in DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.slow
def test_fill_in_a_form(tmp_path: Path) -> None:
    lines = run("fill_in_a_form.py", folder=tmp_path).splitlines()
    assert len(lines) == 3
    for line in lines:
        assert re.fullmatch(r"[A-Z][a-z]+, a (friendly|shy) (cat|dog|bird|fox) with [234] legs", line)


@pytest.mark.slow
def test_stream_a_story(tmp_path: Path) -> None:
    story = run("stream_a_story.py", "Tom had a dog.", folder=tmp_path)
    assert story.startswith("Tom had a dog. ")
    assert "tokens at" in story.splitlines()[-1]


@pytest.mark.slow
def test_fork_a_story(tmp_path: Path) -> None:
    said = run("fork_a_story.py", folder=tmp_path)
    assert said.count("Anna found a small door") == 2
    assert "position 15" in said.splitlines()[-1]


@pytest.mark.slow
def test_chat_with_memory(tmp_path: Path) -> None:
    model = str(write_model(tmp_path / "model"))
    first = run("chat_with_memory.py", model, "chat.session", folder=tmp_path, typed="Hello\nAgain\n")
    assert "going on" not in first
    second = run("chat_with_memory.py", model, "chat.session", folder=tmp_path, typed="And again\n")
    assert second.startswith("going on after 5 messages")


@pytest.mark.slow
def test_call_a_function(tmp_path: Path) -> None:
    model = str(write_model(tmp_path / "model"))
    assert "answer: " in run("call_a_function.py", model, "What is 17 * 23?", folder=tmp_path)


@pytest.mark.slow
def test_how_surprised(tmp_path: Path) -> None:
    said = run("how_surprised.py", "Once upon a time", folder=tmp_path)
    assert "' upon'" in said
    assert "over 3 tokens" in said.splitlines()[-1]


@pytest.mark.slow
def test_record_a_program(tmp_path: Path) -> None:
    said = run("record_a_program.py", folder=tmp_path)
    assert "Program(launches=2, symbols=('tokens',), blocks=())" in said
    assert "512 rows" in said


@pytest.mark.slow
def test_matrix_product(tmp_path: Path) -> None:
    said = run("matrix_product.py", folder=tmp_path)
    assert "affine_matvec_b4_f32: y: expected at least 1000 elements" in said
