"""The columns of the users searched last, kept in RAM and brought up to what the file holds before each search.

What is new is told by the file itself (row numbers, vector numbers, two counters of the user), so that what other
processes stored, embedded, forked or deleted is seen as well. The columns of a user with many lines begin as a snapshot
that stands beside the store, where there is one that fits.
"""

from collections import OrderedDict
from itertools import islice

import apsw

from backscroll.stores.columns import Columns, ThreadRow
from backscroll.stores.snapshots import Held, Snapshots

_LINES_A_TIME = _VECTORS_A_TIME = 8_192  # bounds the RAM beside the columns while they are filled


class ColumnsCache:
    """Columns by user, the least recently searched ones let go first.

    Args:
        max_bytes: of all columns together; one user's are kept even where they alone take more.
        snapshots: where columns are kept for other processes; None keeps them nowhere.
    """

    def __init__(self, max_bytes: int, snapshots: Snapshots | None) -> None:
        self._max_bytes = max_bytes
        self._snapshots = snapshots
        self._held: OrderedDict[int, Held] = OrderedDict()
        self._bytes: dict[int, int] = {}  # by user: counting all of them at each search took 40 us a user
        self._current: dict[
            str, tuple[tuple[int, int], Held]
        ] = {}  # the user searched last, at which state of the file

    def columns_of(self, database: apsw.Connection, user: str) -> Columns | None:
        """The user's columns as the file is now, in a read transaction; None where there is no such user."""
        state = (database.execute("PRAGMA data_version").get, database.total_changes())  # by others, by this connection
        known = self._current.get(user)
        if known is not None and known[0] == state and not known[1].is_written:
            return known[1].columns
        found = database.execute(
            "SELECT user_id, deletions, forks, next_vector FROM users WHERE name = ?", (user,)
        ).fetchone()
        if found is None:
            return None
        user_id, deletions, forks, next_vector = found
        held = self._held.get(user_id)
        if held is None or held.deletions != deletions or held.is_written:
            begun = self._snapshots.begun(database, user_id, user, deletions) if self._snapshots else None
            held = begun or Held(Columns(user_id, user), deletions)
        _read_threads(database, held, forks)
        _read_lines(database, held)
        if held.next_vector < next_vector:
            _read_vectors(database, held, next_vector)
        self._keep(user_id, held)
        if self._snapshots:
            self._snapshots.keep(database, held)
        self._current = {user: (state, held)}
        return held.columns

    def forget(self) -> None:
        """Let go of everything."""
        self._held.clear()
        self._bytes.clear()
        self._current.clear()

    def _keep(self, user_id: int, held: Held) -> None:
        self._held[user_id] = held
        self._held.move_to_end(user_id)
        self._bytes[user_id] = held.columns.nbytes
        taken = sum(self._bytes.values())
        while taken > self._max_bytes and len(self._held) > 1:
            oldest, _ = self._held.popitem(last=False)
            taken -= self._bytes.pop(oldest)


def _read_threads(database: apsw.Connection, held: Held, forks: int) -> None:
    after = held.thread_id if held.forks == forks else 0
    newest = database.execute("SELECT max(thread_id) FROM threads").get or 0
    if after < newest:
        by_number = "+" if after else ""  # the index of the user's threads would read all of them to find the new ones
        threads = database.execute(
            "SELECT thread_id, name, family_id, parent_id, fork_position, head_id FROM threads "
            f"WHERE {by_number}user_id = ? AND thread_id > ? ORDER BY thread_id",
            (held.columns.user_id, after),
        )
        held.columns.set_threads([ThreadRow(*row) for row in threads])
    held.thread_id, held.forks = newest, forks


def _read_lines(database: apsw.Connection, held: Held) -> None:
    cursor = database.execute(
        "SELECT row, thread_id, position, tokens, length, role, coalesce(speaker, role), created_at, terms "
        "FROM lines WHERE user_id = ? AND row > ? ORDER BY row",
        (held.columns.user_id, held.row),
    )
    while lines := list(islice(cursor, _LINES_A_TIME)):
        held.columns.add_lines(lines)
        held.row = lines[-1][0]


def _read_vectors(database: apsw.Connection, held: Held, next_vector: int) -> None:
    cursor = database.execute(
        "SELECT row, vector FROM vectors WHERE user_id = ? AND number >= ? ORDER BY number",
        (held.columns.user_id, held.next_vector),
    )
    expected = next_vector - held.next_vector
    while batch := list(islice(cursor, _VECTORS_A_TIME)):
        rows, stored = zip(*batch, strict=True)
        held.columns.add_vectors(rows, list(stored), expected)
    held.next_vector = next_vector
