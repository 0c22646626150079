"""Output of commands: tables or JSON on standard output, progress bars and notes on standard error."""

from __future__ import annotations

import argparse
import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import ProgressColumn
    from rich.table import Table

from pyturbo._messages import size as size
from pyturbo.checkpoint.tensors import Progress

#: Seconds before a progress bar appears.
_PATIENCE = 2.0


def table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    """Return an empty table; the columns named in `right` are aligned to the right."""
    from rich.table import Table

    out = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        out.add_column(column, justify="right" if column in right else "left")
    return out


def show(arguments: argparse.Namespace, data: Any, make_table: Callable[[], Table]) -> None:
    """Print `data` as JSON if --json was given, else the table."""
    if arguments.json:
        print_json(data, indent=2)
    else:
        print_table(make_table())


def print_json(data: Any, indent: int | None = None) -> None:
    """Print data for a script and flush it; characters outside ASCII are not escaped."""
    print(json.dumps(data, indent=indent, ensure_ascii=False), flush=True)


def print_table(rows: Table) -> None:
    """Print a table; lines are not wrapped if the output is not a terminal."""
    from rich.console import Console

    class PipedConsole(Console):
        """Raises BrokenPipeError; rich by itself would end the process."""

        def on_broken_pipe(self) -> None:
            raise  # the BrokenPipeError that rich is handling

    console = PipedConsole()
    console.print(rows) if console.is_terminal else PipedConsole(width=1000).print(rows)


class Lines:
    """A table whose lines are printed one by one: columns of names and of figures, each with its width."""

    def __init__(self, names: str, width: int, figures: Mapping[str, int]) -> None:
        self._widths = {names: width, **figures}
        self._right = tuple(figures)
        self._begun = False

    def print(self, *cells: str) -> None:
        """Print a line; before the first one, the heads of the columns."""
        rows = table(*self._widths, right=self._right)
        for column, width in zip(rows.columns, self._widths.values()):
            column.width = width
        rows.show_header = not self._begun
        rows.add_row(*cells)
        print_table(rows)
        self._begun = True


def table_text(rows: Table) -> str:
    """Return a table as text, without wrapped lines."""
    from rich.console import Console

    console = Console(width=1000, file=io.StringIO())
    with console.capture() as captured:
        console.print(rows)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def dim_note(text: str) -> None:
    """Print a note, dimmed on a terminal."""
    note(f"\x1b[2m{text}\x1b[0m" if sys.stderr.isatty() else text)


@contextmanager
def telling() -> Iterator[Callable[[str], None]]:
    """Show progress: one line that changes on a terminal, elsewhere a line for each step."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield note
        return
    with console.status("") as status:
        yield status.update


def byte_bar(what: str) -> AbstractContextManager[Progress]:
    """Show a progress bar of bytes on a terminal if the work takes longer than a moment."""
    from rich.progress import DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

    return _bar(what, DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())


def count_bar(what: str) -> AbstractContextManager[Progress]:
    """Show a progress bar of things that are counted."""
    from rich.progress import MofNCompleteColumn

    return _bar(what, MofNCompleteColumn())


@contextmanager
def _bar(what: str, *columns: ProgressColumn) -> Iterator[Progress]:
    """Show a bar on a terminal if the work takes longer than a moment, until it is done."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    bars = Bars(TextColumn("{task.description}"), BarColumn(), *columns, console=console, transient=True)
    task, begin = bars.add_task(what, total=None), time.monotonic()

    def progress(done: int, total: int) -> None:
        bars.update(task, completed=done, total=total)
        if done < total and console.is_terminal and time.monotonic() - begin > _PATIENCE / 4:
            bars.start()  # once; later calls do nothing
        elif done == total and bars.live.is_started:
            bars.stop()

    try:
        yield progress
    finally:
        if bars.live.is_started:
            bars.stop()


class Waiting:
    """Shows a bar if `position` takes long to reach `total`, until it is closed or its `with` block ends."""

    def __init__(self, what: str, total: int, position: Callable[[], int]) -> None:
        self._what, self._total, self._position = what, total, position
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if sys.stderr.isatty():
            self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def __enter__(self) -> Waiting:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _watch(self) -> None:
        if self._over.wait(_PATIENCE):
            return
        from rich.console import Console
        from rich.progress import Progress as Bars

        with Bars(console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task(self._what, total=self._total)
            while not self._over.wait(0.2):
                bars.update(task, completed=min(self._position(), self._total))
