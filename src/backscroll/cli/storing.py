"""`backscroll import`: files are checked whole, then stored in batches, then embedded."""

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import click

from backscroll.cli.interrupting import noted_interrupts
from backscroll.cli.options import counted, db_option
from backscroll.cli.outcome import Failure, Interrupted
from backscroll.cli.screen import progress_bar
from backscroll.errors import EmbedderError, MessageError, ModelNotFoundError, StoreError
from backscroll.importing import Checked, ImportFile, Record, check_file, read_file
from backscroll.memory import Memory
from backscroll.protocols import MemoryStore
from backscroll.types import ThreadKey
from backscroll.wiring import open_lines, open_memory

BATCH_LINES = 500  # of a transaction; Ctrl-C waits for no more than this
_STDIN = "-"
_READ_POSITIONS = 5_000  # how many lines of a thread are looked at at once for the ids that are there
_MANY_BYTES = 4_000_000  # a file that is read for so long that a bar is worth showing


@dataclass(slots=True)
class _Tally:
    """What was done so far.

    Attributes:
        new, known: lines that were stored, and that were there already.
        embedded: lines that got vectors.
        ids: of the lines that each thread has.
    """

    new: int = 0
    known: int = 0
    embedded: int = 0
    ids: dict[ThreadKey, set[str]] = field(default_factory=dict)


@click.command("import", epilog="Example: backscroll import locomo.jsonl.gz --db chat.db")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@db_option
@click.option("--user", metavar="USER", help="Store all of it for this user, whatever the files say.")
@click.option("--thread", metavar="THREAD", help="Store all of it in this thread.")
@click.option("--embedder", metavar="NAME", help="local, hashing, remote:MODEL@URL, … [default: the store's, or local]")
@click.option("--no-embed", is_flag=True, help="Only store; `check --repair` or the next question embeds.")
def import_files(
    files: Sequence[str], db: str, user: str | None, thread: str | None, embedder: str | None, no_embed: bool
) -> None:
    """Store the chats of files; - reads stdin, gzip is read as it is.

    A file has lines {"conversation", "thread", "speaker", "role", "text", "time", "id"}, OpenAI-style messages or chats
    {"messages": […]}; one a line, or as a JSON document. All files are checked before the first line is stored.
    Importing a file again stores what is not there yet, so that what was interrupted goes on.
    """
    if no_embed and embedder:
        raise click.UsageError("--no-embed and --embedder cannot be given together")
    started = time.monotonic()
    tally = _Tally()
    with ExitStack() as stack:
        found = stack.enter_context(_readable(files, user, thread))
        checked = _check(found)
        is_interrupted = stack.enter_context(noted_interrupts())
        if no_embed:
            store = open_lines(db)
            stack.callback(store.close)
            stack.enter_context(_telling(tally))
            _store(store, checked, tally, is_interrupted)
        else:
            memory = stack.enter_context(_memory(db, embedder))
            stack.enter_context(_telling(tally))
            _store(memory.store, checked, tally, is_interrupted)
            _embed(memory, tally, is_interrupted)
    _conclude(tally, checked.values(), time.monotonic() - started)


@contextmanager
def _readable(names: Sequence[str], user: str | None, thread: str | None) -> Iterator[list[ImportFile]]:
    """The files, each on the disk: what comes through a pipe is kept there, since it is read twice."""
    with tempfile.TemporaryDirectory(prefix="backscroll-") as folder:
        found = []
        for number, name in enumerate(names):
            path = Path(name)
            called = "stdin" if name == _STDIN else name
            if name == _STDIN or (path.exists() and not path.is_file() and not path.is_dir()):
                kept = Path(folder, str(number))
                _keep(path, name, kept)
                path = kept
            found.append(ImportFile(path, called, user, thread))
        yield found


def _keep(path: Path, name: str, kept: Path) -> None:
    with ExitStack() as stack:
        source = sys.stdin.buffer if name == _STDIN else stack.enter_context(path.open("rb"))
        shutil.copyfileobj(source, stack.enter_context(kept.open("wb")))


def _check(files: Iterable[ImportFile]) -> dict[ImportFile, Checked]:
    """Read every file to its end before the first line is stored. Raises: ImportFileError."""
    checked = {}
    for file in files:
        size = file.path.stat().st_size if file.path.is_file() else 0
        with progress_bar(f"checking {file.name}", size, is_bytes=True, shown=size > _MANY_BYTES) as bar:
            checked[file] = check_file(file, bar.reach)
    return checked


@contextmanager
def _memory(db: str, embedder: str | None) -> Iterator[Memory]:
    try:
        memory = open_memory(db, embedder=embedder)
    except ModelNotFoundError as error:
        raise Failure(f"{error}; or store the lines without vectors by --no-embed") from error
    with memory:
        yield memory


@contextmanager
def _telling(tally: _Tally) -> Iterator[None]:
    """Where the store fails midway, say what it has by then."""
    try:
        yield
    except (MessageError, StoreError) as error:
        raise Failure(f"{error}; until then: {_told(tally)}; running the same command again goes on") from error


def _store(
    store: MemoryStore, files: dict[ImportFile, Checked], tally: _Tally, is_interrupted: Callable[[], bool]
) -> None:
    """Store what is not there yet, batch by batch. Raises: Interrupted, MessageError, StoreError."""
    with progress_bar("storing", sum(checked.messages for checked in files.values())) as bar:
        for file, checked in files.items():
            for records in _batches(read_file(file, checked.is_ordered)):
                _store_batch(store, records, tally)
                bar.advance(len(records))
                if is_interrupted():
                    raise Interrupted(f"{_told(tally)}; run the same command again to go on")


def _store_batch(store: MemoryStore, records: Sequence[Record], tally: _Tally) -> None:
    by_thread: dict[ThreadKey, list[Record]] = {}
    for record in records:
        by_thread.setdefault(record.key, []).append(record)
    for key, group in by_thread.items():
        if key not in tally.ids:
            tally.ids[key] = set(_stored_ids(store, key))
        there = tally.ids[key]
        fresh = [record for record in group if record.pinned or record.message.id not in there]
        lines = store.append(key, [record.message for record in fresh])
        for record, line in zip(fresh, lines, strict=True):
            if record.pinned and not line.pinned:
                store.pin(key, line.position, True)
        new = {line.id for line in lines} - there
        there |= new
        tally.new += len(new)
        tally.known += len(group) - len(new)


def _stored_ids(store: MemoryStore, key: ThreadKey) -> Iterator[str]:
    """The ids of a thread's lines: to look there is quicker than to prepare lines that the store then skips."""
    newest = store.tail(key, 1)
    for first in range(0, newest[-1].position + 1 if newest else 0, _READ_POSITIONS):
        for line in store.read(key, first, first + _READ_POSITIONS - 1):
            yield line.id


def _embed(memory: Memory, tally: _Tally, is_interrupted: Callable[[], bool]) -> None:
    """Embed all lines that have no vectors. Raises: Interrupted, Failure."""
    pending = memory.store.unembedded_count(None)
    if not pending:
        return
    with progress_bar("embedding", pending) as bar:

        def note(lines: int) -> None:
            tally.embedded += lines
            bar.advance(lines)
            if is_interrupted() and tally.embedded < pending:
                raise Interrupted(f"{_told(tally)}; run the same command again to go on")

        try:
            memory.embed(note)
        except EmbedderError as error:
            left = counted(memory.store.unembedded_count(None), "line")
            raise Failure(f"{error}; all lines are stored, {left} not embedded: `check --repair` goes on") from error


def _told(tally: _Tally) -> str:
    return f"{counted(tally.new, 'line')} new, {tally.known:,} already there, {tally.embedded:,} embedded"


def _conclude(tally: _Tally, checked: Iterable[Checked], seconds: float) -> None:
    keys = {key for one in checked for key in one.keys}
    users, threads = counted(len({key.user for key in keys}), "user"), counted(len(keys), "thread")
    click.echo(f"{_told(tally)}; {users}, {threads}; {seconds:.1f} s")


def _batches(records: Iterator[Record]) -> Iterator[list[Record]]:
    while batch := list(islice(records, BATCH_LINES)):
        yield batch
