"""One SQLite file opened as a store: its transactions, and its errors as ours.

Several threads take turns on one connection; several processes may have the file open. Knows nothing about lines.
"""

import json
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apsw

from backscroll.errors import MessageError, NotAStoreError, StoreBusyError, StoreError
from backscroll.stores.migrations import VERSION, identify, migrate

MEMORY = ":memory:"
_NESTED = ("SAVEPOINT nested", "RELEASE nested", "ROLLBACK TO nested; RELEASE nested")
_BESIDE = ("", "-wal", "-shm", "-journal")  # what SQLite may keep for one database

_ERRORS: tuple[tuple[type[apsw.Error], type[StoreError], str], ...] = (
    (apsw.BusyError, StoreBusyError, "another process has kept {path} for too long: try again, or see what holds it"),
    (apsw.LockedError, StoreBusyError, "{path} is being read by this connection: try again"),
    (apsw.NotADBError, NotAStoreError, "{path} is not a store of Backscroll's: name another file"),
    (apsw.FullError, StoreError, "no space left for {path}: this call stored nothing; free some and do it again"),
    (apsw.ReadOnlyError, StoreError, "{path} can only be read: give it and its folder write permission"),
    (apsw.CantOpenError, StoreError, "{path} cannot be opened: look at the permissions of it and its folder"),
    (apsw.PermissionsError, StoreError, "{path} cannot be opened: look at the permissions of it and its folder"),
    (
        apsw.CorruptError,
        StoreError,
        "{path} is damaged: restore a copy, or save what is readable with `sqlite3 .recover`",
    ),
    (apsw.IOError, StoreError, "{path} cannot be read or written: look at the disk and at limits on file sizes"),
    (apsw.TooBigError, StoreError, "a message is too big for {path}: SQLite keeps up to 1 GB in one"),
    (apsw.ConnectionClosedError, StoreError, "{path} was closed: open it again"),
)


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Turn SQLite's errors about the file into ours, with the cause; let errors of our own making through."""
    try:
        yield
    except apsw.Error as error:
        for kind, ours, text in _ERRORS:
            if isinstance(error, kind):
                raise ours(f"{text.format(path=path)} (SQLite: {error})") from error
        raise
    except UnicodeEncodeError as error:
        raise MessageError(f"half of a surrogate pair is no text and cannot be stored: {error}") from error


def rows(database: apsw.Connection, query: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows of a query; the columns' types are those of the schema."""
    return database.execute(query, tuple(bindings)).fetchall()


def listed(values: Iterable[int | str]) -> str:
    """Values as one binding of ``IN (SELECT value FROM json_each(?))``: a statement is compiled once for any number."""
    return json.dumps(list(values), ensure_ascii=False)


class Connection:
    """A store's file, opened.

    Attributes:
        path: the file, or ``:memory:``.
        is_closed: whether it was closed.
        is_exclusive: whether the transactions of now are parts of one.
        known: what was looked up in the state that is held, for those who look again; None where none is held.
    """

    def __init__(self, path: str, busy_timeout_seconds: float) -> None:
        """Open the file, or make it.

        Args:
            busy_timeout_seconds: how long to wait for another process's transaction.

        Raises: StoreError, NotAStoreError, StoreBusyError; then no new file was left behind.
        """
        self.path = path
        self._lock = threading.RLock()
        self.is_closed = False
        self.is_exclusive = False
        self.known: dict[Any, Any] | None = None
        _check_place(path)
        is_new = path != MEMORY and not os.path.lexists(path)
        with store_errors(path):
            self._connection = _connect(path)
            self._connection.set_busy_timeout(int(busy_timeout_seconds * 1000))
            try:
                self._prepare()
            except (apsw.Error, StoreError) as error:
                self._connection.close()
                if is_new and not isinstance(error, (apsw.BusyError, StoreBusyError)):
                    _remove_unfinished(path)
                raise

    def _prepare(self) -> None:
        connection = self._connection
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else many a statement is compiled at each execution
        with self.reading() as database:  # one state: another process may be making the file
            version = identify(database, self.path)  # before anything is written to what may not be ours
        connection.execute("PRAGMA foreign_keys = ON").fetchall()
        connection.execute("PRAGMA secure_delete = ON").fetchall()
        connection.execute("PRAGMA synchronous = FULL").fetchall()  # what was acknowledged outlives a power cut
        if version < VERSION:
            with self.writing() as database:
                migrate(database, self.path)
        if not connection.readonly("main") and connection.pragma("journal_mode") == "delete":
            connection.execute("PRAGMA journal_mode = WAL").fetchall()

    @contextmanager
    def reading(self) -> Iterator[apsw.Connection]:
        """One state of the file for as long as it lasts, whatever others write."""
        with self._lock:
            if self.known is not None:
                with store_errors(self.path):
                    yield self._connection
            else:
                with self._transaction("BEGIN") as connection:
                    yield connection

    @contextmanager
    def one_state(self) -> Iterator[None]:
        """What is read inside is of one state of the file, until something is written inside.

        Other threads wait for its end: nothing slow belongs inside.
        """
        with self._lock:
            if self.known is not None or self._connection.in_transaction:
                yield
                return
            self._hold()
            try:
                yield
            finally:
                self._let_go()

    def _hold(self) -> None:
        with store_errors(self.path):
            self._connection.execute("BEGIN")
        self.known = {}

    def _let_go(self) -> None:
        self.known = None
        with store_errors(self.path):
            if self._connection.in_transaction:
                self._connection.execute("COMMIT")

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """All of it is on disk when this ends, or nothing of it."""
        with self._lock:
            held = self.known is not None
            if held:
                self._let_go()
            try:
                with self._transaction("BEGIN IMMEDIATE") as connection:
                    yield connection
            finally:
                if held:
                    self._hold()

    @contextmanager
    def writing_derived(self) -> Iterator[apsw.Connection]:
        """All of it or nothing, without waiting for the disk: after a power cut it may be gone."""
        with self._lock:
            self._synchronize("NORMAL")
            try:
                with self.writing() as connection:
                    yield connection
            finally:
                self._synchronize("FULL")

    def _synchronize(self, level: str) -> None:
        """Say how a commit waits for the disk; inside a transaction that stays as it is."""
        with store_errors(self.path):
            if not self._connection.in_transaction:
                self._connection.execute(f"PRAGMA synchronous = {level}").fetchall()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """The transactions inside are one, of writing; those of other threads and processes wait for its end."""
        with self.writing():
            was_exclusive, self.is_exclusive = self.is_exclusive, True
            try:
                yield
            finally:
                self.is_exclusive = was_exclusive

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[apsw.Connection]:
        with self._lock, store_errors(self.path):
            first, commit, roll_back = _NESTED if self.is_exclusive else (begin, "COMMIT", "ROLLBACK")
            self._connection.execute(first)
            try:
                yield self._connection
                self._connection.execute(commit)
            except BaseException:
                if self._connection.in_transaction:  # a full disk has ended it already
                    self._connection.execute(roll_back)
                raise

    @property
    def is_writable_file(self) -> bool:
        """Whether there is a file, and it can be written."""
        return self.path != MEMORY and not self._connection.readonly("main")

    def wipe(self) -> None:
        """Leave no byte of what was deleted in any of the files.

        ``secure_delete`` alone does not: a page that SQLite split or merged keeps stale copies of the cells it
        moved (1 to 13 of 1,000 deleted index entries were still readable: docs/LOG.md), so the file is written anew.

        Raises: StoreBusyError where another process's read kept the old pages in the -wal.
        """
        if self.path == MEMORY:
            return
        with self._lock, store_errors(self.path):
            self._connection.execute("VACUUM").fetchall()
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def close(self) -> None:
        """Close the file; closing twice is closing once."""
        with self._lock, store_errors(self.path):
            if not self.is_closed:
                self.is_closed = True
                self._connection.close()


def _check_place(path: str) -> None:
    if path == MEMORY:
        return
    place = Path(path)
    if not path or place.is_dir():
        raise NotAStoreError(f"{path or 'the empty path'} is a folder: name a file in it, such as {place / 'chat.db'}")
    if not place.parent.is_dir():
        raise StoreError(f"{path} cannot be made: there is no folder {place.parent}; make it first")


def _connect(path: str) -> apsw.Connection:
    """For reading and writing; for reading alone where the file or its folder allows no more."""
    if path == MEMORY or not Path(path).exists():
        return apsw.Connection(path)
    if os.access(path, os.W_OK) and os.access(Path(path).resolve().parent, os.W_OK):
        return apsw.Connection(path)
    # Without a -wal nobody is writing, and SQLite need not make one in a folder where it cannot.
    immutable = "" if Path(path + "-wal").exists() else "&immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return apsw.Connection(f"file:{quote(path)}?mode=ro{immutable}", flags=flags)


def _remove_unfinished(path: str) -> None:
    """Remove the file that a failed opening made, unless another process has finished it meanwhile."""
    if not Path(path).exists():
        return
    with Path(path).open("rb") as file:
        if len(file.read(100)) == 100:  # a whole header: the transaction that made the tables reached the file
            return
    for ending in _BESIDE:
        Path(path + ending).unlink(missing_ok=True)
