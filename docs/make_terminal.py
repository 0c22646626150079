"""Writes docs/terminal.svg, the picture of `make run`, from a real run: ``python docs/make_terminal.py``."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).parent / "terminal.svg"
MAKEFILE = Path(__file__).parent.parent / "Makefile"
WIDTH = 92  # columns

#: Fonts of the reader's machine: the picture refers to nothing outside itself.
FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"


def command() -> str:
    """What `make run` runs after the build."""
    found = re.search(r"^run:.*\n\t\$\(BIN\)/(pyturbo .*)$", MAKEFILE.read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{MAKEFILE}: expected a rule `run` that starts pyturbo, found none")
    return found[1]


def picture(story: str, stats: str) -> str:
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, highlight=False)
    console.print(Text("$ ", "bold green") + Text("make run", "bold"))
    console.print(Text(f".venv/bin/{command()}", "dim"))
    console.print(Text(story.strip("\n")))
    console.print(Text(stats.strip("\n"), "cyan"))
    svg = console.export_svg(title="make run", unique_id="terminal")
    svg = re.sub(r"\s*@font-face \{.*?\}|\s*<!--.*?-->", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", FONTS)


def main() -> None:
    arguments = shlex.split(command())[1:]
    done = subprocess.run(
        [sys.executable, "-m", "pyturbo", *arguments], capture_output=True, text=True, check=True
    )
    PICTURE.write_text(picture(done.stdout, done.stderr), encoding="utf-8")


if __name__ == "__main__":
    main()
