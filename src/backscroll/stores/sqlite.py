"""A store in one SQLite file: lines and everything derived from them, in one transaction.

Every method is one transaction on the file; the work is done by the modules beside this one. Several threads may use
one store, and several processes one file.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

import apsw

from backscroll.errors import NotFoundError, StoreBusyError, StoreError
from backscroll.fingerprint import fingerprint
from backscroll.stores import branches, checks, deletion, derived, embedding, lines, ranking
from backscroll.stores.branches import Branch
from backscroll.stores.cache import ColumnsCache
from backscroll.stores.columns import Columns
from backscroll.stores.connection import Connection, rows
from backscroll.stores.snapshots import Snapshots
from backscroll.stores.threads import list_threads
from backscroll.terms import VERSION
from backscroll.types import (
    Candidates,
    Finding,
    Line,
    Mark,
    Message,
    Scope,
    Span,
    Summary,
    ThreadInfo,
    ThreadKey,
    Vector,
    Vectors,
)

_DEFAULT_MAX_CACHED_BYTES = 2 * 2**30  # a million lines of 384 numbers
_DEFAULT_BUSY_TIMEOUT_SECONDS = 30.0
_DEFAULT_MIN_SNAPSHOT_LINES = 10_000  # reading fewer takes a tenth of a second


class SQLiteStore:
    """Fulfils `backscroll.protocols.MemoryStore`.

    Args:
        path: the file; made on first use.
        count_message: tokens of a message, kept with its line (o200k_base).
        busy_timeout_seconds: how long to wait for another process's transaction before StoreBusyError.
        max_cached_bytes: RAM for the columns that are searched; the users searched last stay in it.
        min_snapshot_lines: how many lines and vectors more than the last snapshot of a user the next one has.

    Raises: StoreError, NotAStoreError, StoreBusyError.

        >>> store = SQLiteStore(":memory:", lambda message: len(message.text) // 4 + 3)
        >>> said = Message("user", {"role": "user", "content": "Hi!"}, "Hi!")
        >>> [line.position for line in store.append(ThreadKey("alice", "boat"), [said, said])]
        [0, 1]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        count_message: Callable[[Message], int],
        *,
        busy_timeout_seconds: float = _DEFAULT_BUSY_TIMEOUT_SECONDS,
        max_cached_bytes: int = _DEFAULT_MAX_CACHED_BYTES,
        min_snapshot_lines: int = _DEFAULT_MIN_SNAPSHOT_LINES,
    ) -> None:
        self.path = os.fspath(path)
        self._count_message = count_message
        self._connection = Connection(self.path, busy_timeout_seconds)
        is_kept = self._connection.is_writable_file
        self._snapshots = Snapshots(self._connection, min_snapshot_lines) if is_kept else None
        self._cache = ColumnsCache(max_cached_bytes, self._snapshots)
        self._appended: Counter[str] = Counter()

    # lines

    def append(self, key: ThreadKey, messages: Sequence[Message]) -> list[Line]:
        """Store messages at the end of the thread, all or none."""
        drafts = lines.drafts(messages, self._count_message)
        if not drafts:
            return []
        with self._connection.writing() as database:
            _note_terms(database)
            stored = lines.append(database, key, branches.growing_branch(database, key), drafts)
        self._appended[key.user] += len(stored)
        return stored

    def put(self, key: ThreadKey, message: Message, pinned: bool) -> Line:
        """Store a message in place of the line that has its id, and its bytes."""
        [draft] = lines.drafts([message], self._count_message)
        with self._connection.writing() as database:
            _note_terms(database)
            branch = branches.growing_branch(database, key)
            held = lines.find(database, branch, [str(draft.message.id)]).get(str(draft.message.id))
            if held is not None:
                deletion.delete_lines(database, key, [held.position])
                _put_setting(database, checks.WIPE_SETTING, "needed")
            [line] = lines.append(database, key, branch, [draft])
            database.execute("UPDATE lines SET pinned = ? WHERE row = ?", (pinned, line.row))
        if held is not None:
            self._cache.forget()
            with suppress(StoreError):  # the new one is stored; noted: the next deletion or repair takes the bytes
                self._wipe()
        return line._replace(pinned=pinned)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """What is read and stored inside is one transaction."""
        try:
            with self._connection.exclusive():
                yield
        except BaseException:
            self._cache.forget()  # it may hold what was taken back
            raise

    def one_state(self) -> AbstractContextManager[None]:
        """What is read inside is of one state of the file."""
        return self._connection.one_state()

    def fork(self, key: ThreadKey, position: int) -> ThreadKey:
        """Let the thread go on from `position` as a branch, and its name stand for it."""
        with self._connection.writing() as database:
            return ThreadKey(key.user, branches.fork(database, branches.need_branch(database, key), position))

    def switch(self, key: ThreadKey, branch: str) -> None:
        """Let the thread's name stand for another branch, or for the root itself."""
        with self._connection.writing() as database:
            branches.switch(database, branches.need_branch(database, key), branch)

    def tail(self, key: ThreadKey, tokens: int) -> list[Line]:
        """The newest lines, oldest first, that have `tokens` tokens together."""
        with self._connection.reading() as database:
            branch = self._branch(database, key)
            return lines.tail(database, branch, tokens) if branch else []

    def read(self, key: ThreadKey, first: int, last: int) -> list[Line]:
        """The lines from position `first` to `last`, both included."""
        with self._connection.reading() as database:
            branch = self._branch(database, key)
            return lines.read(database, branch, first, last) if branch else []

    def marks(self, key: ThreadKey) -> list[Mark]:
        """What all the current lines say, in order, without reading it."""
        with self._connection.reading() as database:
            branch = self._branch(database, key)
            return lines.marks(database, branch) if branch else []

    def fetch(self, rows: Sequence[int]) -> list[Line]:
        """Lines by their rows, in the order asked."""
        with self._connection.reading() as database:
            return lines.fetch(database, rows)

    def find(self, key: ThreadKey, line_id: str) -> Line | None:
        """The line of the current path that has an id."""
        with self._connection.reading() as database:
            branch = self._branch(database, key)
            return lines.find(database, branch, [line_id]).get(line_id) if branch else None

    def said(self, user: str, message: Message, max_lines: int) -> list[Line]:
        """A user's lines that say the same as a message, newest first, in whatever branch."""
        with self._connection.reading() as database:
            user_id = branches.find_user(database, user)
            return [] if user_id is None else lines.said(database, user_id, fingerprint(message.payload), max_lines)

    def threads(self, user: str | None = None, family: str | None = None) -> list[ThreadInfo]:
        """All threads, or those of one user, or one of them with its branches."""
        with self._connection.reading() as database:
            return list_threads(database, user, family)

    def pinned(self, key: ThreadKey) -> list[Line]:
        """The pinned lines of the thread, in order."""
        with self._connection.reading() as database:
            branch = self._branch(database, key)
            return lines.pinned(database, branch) if branch else []

    def pin(self, key: ThreadKey, position: int, pinned: bool) -> Line:
        """Pin or unpin a line. Raises: NotFoundError."""
        with self._connection.writing() as database:
            branch = branches.need_branch(database, key)
            rows = lines.rows_of(database, branch, position)
            if not rows:
                raise NotFoundError(f"thread {key.thread!r} of user {key.user!r} has no line at position {position}")
            database.execute("UPDATE lines SET pinned = ? WHERE row = ?", (pinned, rows[0]))
            return lines.fetch(database, rows)[0]

    def delete(self, user: str, thread: str | None = None, position: int | Iterable[int] | None = None) -> int:
        """Delete a user, a thread with its branches, or lines, and their bytes in the files.

        Raises: NotFoundError; StoreBusyError where they are deleted and their bytes are not yet gone.
        """
        with self._connection.writing() as database:
            if thread is None and position is not None:
                raise NotFoundError(f"a position is a place in a thread: name the thread of user {user!r}")
            if thread is None:
                count = deletion.delete_user(database, user)
            elif position is None:
                count = deletion.delete_thread(database, ThreadKey(user, thread))
            else:
                positions = [position] if isinstance(position, int) else position
                count = deletion.delete_lines(database, ThreadKey(user, thread), positions)
            _put_setting(database, checks.WIPE_SETTING, "needed")
        self._cache.forget()
        self._wipe()
        return count

    def close(self) -> None:
        """Close the file; what was taken in in bulk is made ready for the next process, but not on the way out of an
        error or of Ctrl-C, which nobody waits behind.
        """
        if self._snapshots and not self._connection.is_closed and sys.exception() is None:
            for user, count in self._appended.items():
                if count >= self._snapshots.min_lines:
                    with self._connection.reading() as database:
                        self._cache.columns_of(database, user)
                    self._snapshots.wait()
            self._snapshots.wait()
        self._cache.forget()
        self._connection.close()

    # index

    def unembedded(self, user: str | None, max_lines: int) -> list[Line]:
        """Lines without vectors, oldest first."""
        with self._connection.reading() as database:
            user_id = None if user is None else branches.find_user(database, user)
            return lines.unembedded(database, user_id, max_lines) if user is None or user_id is not None else []

    def unembedded_count(self, user: str | None) -> int:
        """How many lines have no vectors."""
        with self._connection.reading() as database:
            user_id = None if user is None else branches.find_user(database, user)
            return embedding.count_unembedded(database, user_id) if user is None or user_id is not None else 0

    def add_vectors(self, rows: Sequence[int], passages: Sequence[Sequence[tuple[int, int]]], vectors: Vectors) -> None:
        """Store the vectors of lines; one that is gone, or has vectors already, is skipped."""
        with self._connection.writing_derived() as database:
            embedding.add(database, rows, passages, vectors)

    def search(
        self, scope: Scope, vector: Vector | None, terms: Sequence[str], max_lines: int, reach: int
    ) -> Candidates:
        """The best lines of the scope by cosine and by BM25, and the lines around them."""
        with self._connection.reading() as database:
            found = [
                ranking.search(columns, scope, vector, terms, max_lines, reach)
                for columns in self._columns(database, scope)
            ]
            beside = [
                ranking.search(columns, Scope(*key), vector, terms, max_lines, 0)
                for key in scope.also
                for columns in self._columns(database, Scope(*key))
            ]
        return ranking.merge([*found, *(ranking.apart(one) for one in beside if len(one.row))], max_lines, reach)

    def speakers(self, scope: Scope) -> tuple[str, ...]:
        """Who speaks in the scope's lines, in the order of their first ones."""
        with self._connection.reading() as database:
            spoken = [
                speaker for columns in self._columns(database, scope) for speaker in ranking.speakers(columns, scope)
            ]
        return tuple(dict.fromkeys(spoken))

    def passage(self, row: int, passage: int) -> tuple[int, int]:
        """The (start, end) characters of a line's text that a vector stands for. Raises: NotFoundError."""
        with self._connection.reading() as database:
            return embedding.passage_of(database, row, passage)

    def summaries(self, key: ThreadKey) -> list[Summary]:
        """The summaries of the thread's path, by first position, then longest first."""
        with self._connection.reading() as database:
            branch = self._branch(database, key)
            return derived.summaries(database, key, branch) if branch else []

    def deletions(self, user: str) -> str:
        """What is another text after any deletion of the user's lines; a user made anew has another number."""
        with self._connection.reading() as database:
            return _deletions(database, user)

    def add_summary(self, summary: Summary, deletions: str | None = None) -> bool:
        """Keep a summary, unless lines went since. Raises: NotFoundError where there is no such thread."""
        with self._connection.writing() as database:
            if deletions not in (None, _deletions(database, summary.user)):
                return False
            key = ThreadKey(summary.user, summary.thread)
            derived.add_summary(database, branches.need_branch(database, key), summary)
            return True

    def blocks(self, key: ThreadKey, before: int) -> list[Span]:
        """What was recalled when the thread was asked at positions below `before`, oldest first."""
        with self._connection.reading() as database:
            branch = self._branch(database, key)
            return derived.blocks(database, key.user, branch, before) if branch else []

    def put_blocks(self, key: ThreadKey, asked_at: int, spans: Sequence[Span], max_blocks: int) -> None:
        """Replace what was recalled at `asked_at`."""
        with self._connection.writing_derived() as database:
            branch = branches.make_branch(database, key)
            derived.put_blocks(database, key.user, branch, asked_at, spans, max_blocks)

    def setting(self, name: str) -> str | None:
        """A value kept with the store, or None."""
        with self._connection.reading() as database:
            return _setting(database, name)

    def put_setting(self, name: str, value: str) -> None:
        """Keep a value with the store."""
        with self._connection.writing() as database:
            _put_setting(database, name, value)

    def drop_vectors(self) -> None:
        """Forget all vectors."""
        with self._connection.writing() as database:
            embedding.forget_all(database)

    def check(self, repair: bool = False) -> list[Finding]:
        """Compare what is derived with the lines; with `repair`, rebuild it where that needs no embedder."""
        transaction = self._connection.writing if repair else self._connection.reading
        with transaction() as database:
            findings = checks.check(database, repair)
            is_wiped = _setting(database, checks.WIPE_SETTING) is None
        if not is_wiped:
            if repair:
                self._wipe()
            findings.append(
                Finding("lines", 1, "bytes of deleted lines may be in the file", derived=True, repaired=repair)
            )
        return findings

    def _branch(self, database: apsw.Connection, key: ThreadKey) -> Branch | None:
        """The branch that a name stands for, looked up once in a state that is held."""
        known = self._connection.known
        if known is None:
            return branches.find_branch(database, key)
        if key not in known:
            known[key] = branches.find_branch(database, key)
        branch: Branch | None = known[key]
        return branch

    def _columns(self, database: apsw.Connection, scope: Scope) -> Iterator[Columns]:
        """The columns of the scope's user, or one user's after the other's where it names none."""
        for user in _users(database) if scope.user is None else [scope.user]:
            columns = self._cache.columns_of(database, user)
            if columns is not None:
                yield columns

    def _wipe(self) -> None:
        """Take the deleted bytes out of the files, and note that it is done."""
        if self._snapshots:  # first: it takes no space, and makes some
            with self._connection.reading() as database:
                self._snapshots.forget_stale(database)
        try:
            self._connection.wipe()
        except StoreBusyError as error:
            raise StoreBusyError(
                f"the lines are deleted, but their bytes stay in {self.path}-wal while another process reads: "
                "run `backscroll check --repair` when it has finished"
            ) from error
        with self._connection.writing() as database:
            database.execute("DELETE FROM settings WHERE name = ?", (checks.WIPE_SETTING,))


def _users(database: apsw.Connection) -> list[str]:
    return [name for (name,) in rows(database, "SELECT name FROM users ORDER BY user_id")]


def _deletions(database: apsw.Connection, user: str) -> str:
    found = rows(database, "SELECT user_id, deletions FROM users WHERE name = ?", (user,))
    return ":".join(map(str, found[0])) if found else ""


def _setting(database: apsw.Connection, name: str) -> str | None:
    value: str | None = database.execute("SELECT value FROM settings WHERE name = ?", (name,)).get
    return value


def _put_setting(database: apsw.Connection, name: str, value: str) -> None:
    database.execute("INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", (name, value))


def _note_terms(database: apsw.Connection) -> None:
    """Note by which rules the first line's terms were made; later lines of other rules are found by `check`."""
    database.execute("INSERT OR IGNORE INTO settings (name, value) VALUES (?, ?)", (checks.TERMS_SETTING, VERSION))
