"""`backscroll export`: lines to a file that can be imported again."""

import gzip
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import click

from backscroll.cli.options import counted, db_option, existing_lines, need_thread, only_user, thread_option
from backscroll.cli.outcome import Failure
from backscroll.errors import BackscrollError
from backscroll.exporting import common_line, openai_chat
from backscroll.protocols import MemoryStore
from backscroll.types import FACTS_THREAD, Line, ThreadInfo, ThreadKey

_READ_POSITIONS = 1_000  # at once


@click.command(epilog="Example: backscroll export --db chat.db --user alice -o alice.jsonl.gz")
@db_option
@click.option("--user", metavar="USER", help="Only this user's.")
@thread_option
@click.option(
    "--format",
    "form",
    type=click.Choice(("lines", "openai")),
    default="lines",
    show_default=True,
    help="A line a message with all there is, or a line a chat without ids and times.",
)
@click.option("-o", "--output", metavar="FILE", help="Written whole or not at all; .gz is packed. [default: stdout]")
def export(db: str, user: str | None, thread: str | None, form: str, output: str | None) -> None:
    """Write lines as JSONL that can be imported again.

    A thread's current path is exported under its name. Lines that a branch left behind are told of on stderr; --thread
    with the name of a branch exports its path.
    """
    store = existing_lines(db)
    try:
        found, left = _chosen(store, user, thread)
        chosen = [info for info in found if form == "lines" or info.thread != FACTS_THREAD]  # facts are no chat
        with _written(output) as file:
            lines = sum(_EXPORTED[form](store, ThreadKey(info.user, info.thread), file) for info in chosen)
    finally:
        store.close()
    users = len({info.user for info in chosen})
    click.echo(
        f"{counted(lines, 'line')} of {counted(len(chosen), 'thread')} of {counted(users, 'user')} exported", err=True
    )
    if left:
        names = ", ".join(f"{info.user}/{info.thread}" for info in left)
        click.echo(f"not exported, since they are not current: the lines that are only in {names}", err=True)


def _chosen(store: MemoryStore, user: str | None, thread: str | None) -> tuple[list[ThreadInfo], list[ThreadInfo]]:
    """The threads that are exported, and those of their families that have lines which are not."""
    if thread is not None:
        named = only_user(store, user)
        return [need_thread(store, named, thread)], []
    infos = store.threads(user if user is None else only_user(store, user))
    roots = [info for info in infos if info.parent is None]
    heads = {(info.user, info.head or info.thread) for info in roots}
    return roots, [info for info in infos if (info.user, info.thread) not in heads and info.lines]


def _lines(store: MemoryStore, key: ThreadKey) -> Iterator[Line]:
    """A thread's lines, a part at a time."""
    newest = store.tail(key, 1)
    for first in range(0, newest[-1].position + 1 if newest else 0, _READ_POSITIONS):
        yield from store.read(key, first, first + _READ_POSITIONS - 1)


def _export_lines(store: MemoryStore, key: ThreadKey, file: IO[str]) -> int:
    count = 0
    for index, line in enumerate(_lines(store, key)):
        file.write(json.dumps(common_line(line, key, index), ensure_ascii=False) + "\n")
        count += 1
    return count


def _export_chat(store: MemoryStore, key: ThreadKey, file: IO[str]) -> int:
    lines = list(_lines(store, key))
    if lines:
        file.write(json.dumps(openai_chat(lines, key), ensure_ascii=False) + "\n")
    return len(lines)


_EXPORTED: dict[str, Callable[[MemoryStore, ThreadKey, IO[str]], int]] = {
    "lines": _export_lines,
    "openai": _export_chat,
}


@contextmanager
def _written(output: str | None) -> Iterator[IO[str]]:
    """stdout, or a file that gets its name when it is whole. Raises: Failure."""
    if output is None:
        yield sys.stdout
        return
    target = Path(output)
    if target.exists() and not target.is_file():
        raise Failure(f"{output} is not a file: name one, or leave it out for stdout")
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with _opened(partial, is_packed=target.suffix == ".gz") as file:
            yield file
        partial.replace(target)
    except OSError as error:
        if isinstance(error, BackscrollError):
            raise
        raise Failure(f"{output} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _opened(path: Path, is_packed: bool) -> Iterator[IO[str]]:
    """A new file for text; what is written to it is on the disk at the end."""
    with ExitStack() as stack:
        raw = stack.enter_context(path.open("wb"))
        packed = stack.enter_context(gzip.GzipFile("", "wb", fileobj=raw, mtime=0)) if is_packed else raw
        text = stack.enter_context(io.TextIOWrapper(packed, encoding="utf-8", newline="\n"))
        yield text
        text.flush()
