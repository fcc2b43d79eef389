"""Which users' columns are kept beside the store, for the next process: when they are written, mapped and let go.

A snapshot is written in the background when a user with many lines has an eighth more of them than the last one
holds, by whoever searches; of two processes that write the same one, the later takes its place. It is put there inside
a write transaction, in which no line can be deleted, and only while no line was since it was read.
"""

import json
import logging
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import apsw

from backscroll.errors import StoreBusyError, StoreError
from backscroll.stores import snapshot
from backscroll.stores.column import Column
from backscroll.stores.columns import Columns
from backscroll.stores.connection import Connection

_ENDING, _UNFINISHED = ".columns", ".part"
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Held:
    """One user's columns, and up to where the file was read into them.

    Attributes:
        kept: lines and vectors in the snapshot that there is.
        is_written: a newer snapshot is there than these columns began with.
    """

    columns: Columns
    deletions: int
    forks: int = -1
    thread_id: int = 0
    row: int = 0
    next_vector: int = 0
    kept: int = 0
    is_written: bool = False


class Snapshots:
    """The snapshots of a store.

    Args:
        connection: the store's, to a file that can be written.
        min_lines: how many lines and vectors more than the last one the next snapshot of a user has.
    """

    def __init__(self, connection: Connection, min_lines: int) -> None:
        self.min_lines = min_lines
        self._connection = connection
        self._folder = Path(connection.path + "-columns")
        self._writer: threading.Thread | None = None

    def begun(self, database: apsw.Connection, user_id: int, user: str, deletions: int) -> Held | None:
        """The columns that a snapshot holds; None where there is none that fits the store."""
        path = self._path(user_id)
        try:
            state, kept = snapshot.mapped(path)
        except (OSError, ValueError):  # there is none, or it was removed since
            return None
        if state["deletions"] != deletions or state["marks"] != _marks(database, user_id, state):
            _remove(path)
            return None
        columns = Columns(user_id, user)
        try:
            columns.take(kept, state["speakers"], state["roles"])
        except KeyError:  # it has not all that these columns have
            return None
        count = len(columns.row) + columns.passages
        return Held(columns, deletions, row=state["row"], next_vector=state["next_vector"], kept=count)

    def keep(self, database: apsw.Connection, held: Held) -> None:
        """Write a snapshot in the background, where the last one has become too old."""
        columns = held.columns
        count = len(columns.row) + columns.passages
        is_due = count >= held.kept + held.kept // 8 + self.min_lines
        if not is_due or self._is_writing() or self._connection.is_exclusive:
            return
        columns.index.settle()
        parts = {name: Column(column.values, len(column)) for name, column in columns.kept().items()}
        parts["group"] = Column(columns.group.values.copy(), len(columns.group))  # a vector that comes changes it
        state: dict[str, Any] = {
            "user_id": columns.user_id,
            "deletions": held.deletions,
            "row": held.row,
            "next_vector": held.next_vector,
            "speakers": list(columns.speakers),
            "roles": list(columns.roles),
        }
        state["marks"] = _marks(database, columns.user_id, state)
        held.kept = count
        self._writer = threading.Thread(target=self._write, args=(held, state, parts), name="backscroll-columns")
        self._writer.start()

    def wait(self) -> None:
        """Wait until what is being written is there."""
        if self._writer is not None:
            self._writer.join()

    def forget_stale(self, database: apsw.Connection) -> None:
        """Remove all that holds lines which were deleted, whoever wrote it.

        Raises: StoreBusyError where another process has one mapped, and the system removes no file that is.
        """
        if not self._folder.is_dir():
            return
        current = {str(user): count for user, count in database.execute("SELECT user_id, deletions FROM users")}
        for path in self._folder.iterdir():
            state = snapshot.state_of(path)
            if state is None or state["deletions"] != current.get(str(state["user_id"])):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise StoreBusyError(
                        f"the lines are deleted, but {path}, derived from them, cannot be removed ({error}): run "
                        "`backscroll check --repair` when no other process has it open"
                    ) from error

    def _is_writing(self) -> bool:
        return self._writer is not None and self._writer.is_alive()

    def _path(self, user_id: int) -> Path:
        return self._folder / f"{user_id}{_ENDING}"

    def _write(self, held: Held, state: dict[str, Any], parts: dict[str, Column[Any]]) -> None:
        path = self._path(state["user_id"])
        unfinished = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}{_UNFINISHED}")
        try:
            self._folder.mkdir(exist_ok=True)
            snapshot.write(unfinished, state, parts)
            with self._connection.writing() as database:
                user = "SELECT deletions FROM users WHERE user_id = ?"
                if database.execute(user, (state["user_id"],)).get == state["deletions"]:
                    unfinished.replace(path)
                    held.is_written = True
        except (OSError, StoreError) as error:
            _log.warning("the next process reads the lines of a user again, which takes longer: %s", error)
        finally:
            _remove(unfinished)


def _marks(database: apsw.Connection, user_id: int, state: dict[str, Any]) -> str:
    """What tells that a store has the very lines and vectors that a snapshot ends with."""
    line = "SELECT id, created_at, payload FROM lines WHERE row = ? AND user_id = ?"
    vector = "SELECT row, hex(vector) FROM vectors WHERE user_id = ? AND number = ?"
    found = [
        database.execute(line, (state["row"], user_id)).fetchone(),
        database.execute(vector, (user_id, state["next_vector"] - 1)).fetchone(),
    ]
    return blake2b(json.dumps(found).encode(), digest_size=16).hexdigest()


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
