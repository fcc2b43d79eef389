"""What is shown: text on stdout, bars on stderr. Both are plain where nobody looks at a terminal.

`NO_COLOR` is respected by rich.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

_PIPE_COLUMNS = 100_000  # a pipe has no width: nothing is wrapped or cut
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # a stored text must not steer the terminal
_MEGABYTE = 1_000_000

Advance = Callable[[int], None]


def screen() -> Console:
    """The console for stdout."""
    width = None if sys.stdout.isatty() else _PIPE_COLUMNS
    return Console(width=width, markup=False, highlight=False, emoji=False)


def shown(text: str) -> str:
    """A stored text without what would steer a terminal."""
    return _CONTROLS.sub("\ufffd", text.replace("\r\n", "\n"))


def one_line(text: str, max_characters: int | None = None) -> str:
    """A stored text in one line, cut where it is longer."""
    line = " ".join(shown(text).split())
    return line if max_characters is None or len(line) <= max_characters else line[: max_characters - 1] + "…"


def minute(moment: datetime | None) -> str:
    """Date and time as they were given, without the zone.

    >>> from datetime import UTC
    >>> minute(datetime(2025, 1, 14, 9, 12, tzinfo=UTC))
    '2025-01-14 09:12'
    """
    return f"{moment:%Y-%m-%d %H:%M}" if moment else ""


def print_table(rows: Table) -> None:
    """Print a table; in a pipe without the spaces that fill its last column."""
    console = screen()
    if console.is_terminal:
        console.print(rows)
        return
    with console.capture() as captured:
        console.print(rows)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def table(*headings: str | Column) -> Table:
    """A table without lines."""
    return Table(*headings, box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


def number_column(heading: str) -> Column:
    """A column of numbers."""
    return Column(heading, justify="right", no_wrap=True)


def indented(text: Text | str, columns: int, head: str = "") -> RenderableType:
    """A text that stays indented where it is wrapped; `head` stands in front of its first line."""
    if not head:
        return Padding(text, (0, 0, 0, columns), expand=False)
    rows = Table.grid(Column(width=columns, no_wrap=True), Column())
    rows.add_row(Text(head, "dim"), text)
    return rows


class _Done(ProgressColumn):
    """How much of how much."""

    def __init__(self, is_bytes: bool, nouns: str) -> None:
        super().__init__()
        self._is_bytes = is_bytes
        self._nouns = nouns

    def render(self, task: Task) -> Text:
        """The numbers of lines, or of what else is counted, or of megabytes."""
        counts = [task.completed, *([task.total] if task.total else [])]
        if self._is_bytes:
            return Text(" of ".join(f"{count / _MEGABYTE:.1f}" for count in counts) + " MB")
        return Text(" of ".join(f"{count:,.0f}" for count in counts) + f" {self._nouns}")


@contextmanager
def progress_bar(
    title: str, total: int | None, is_bytes: bool = False, shown: bool = True, nouns: str = "lines"
) -> Iterator["Bar"]:
    """A bar with counts and the remaining time, while it lasts; nothing where stderr is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), _Done(is_bytes, nouns), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as progress:
        yield Bar(progress, progress.add_task(title, total=total))


class Bar:
    """A bar that is being shown."""

    def __init__(self, progress: Progress, task: Any) -> None:
        """Take what rich shows it by."""
        self._progress = progress
        self._task = task

    def advance(self, count: int) -> None:
        """So much more is done."""
        self._progress.advance(self._task, count)

    def reach(self, done: int, total: int | None = None) -> None:
        """So much is done altogether, of so much."""
        self._progress.update(self._task, completed=done, total=total)
