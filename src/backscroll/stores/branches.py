"""Which rows of the threads table a name stands for: roots, branches, and the path of lines through them.

A family is a root thread with all the branches that grew from it. Its root's name stands for the family's head.
Knows nothing about what lines say.
"""

import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

import apsw

from backscroll.errors import MessageError, NotFoundError
from backscroll.stores.connection import listed, rows
from backscroll.types import ThreadKey, own_path

OPEN_END = 2**62  # behind every position
_NAME_OF_BRANCH = re.compile(r"(.+)~[0-9]+", re.DOTALL)


class Segment(NamedTuple):
    """Lines of one thread that are part of a path: positions from first up to, not including, stop."""

    thread_id: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class Branch:
    """A thread as it is read: its ancestors' lines below each fork, then its own.

    Attributes:
        name, root: the thread's own name, and its family's.
        segments: in the order of positions; the last one is the thread's own and has no end.
        next_position, next_offset: what its next line gets.
    """

    user_id: int
    family_id: int
    thread_id: int
    name: str
    root: str
    segments: tuple[Segment, ...]
    next_position: int
    next_offset: int

    @property
    def path(self) -> str:
        """The segments as JSON, for queries over `json_each`."""
        return json.dumps(self.segments)

    def owner(self, position: int) -> int:
        """The thread whose line stands, or would stand, at a position of this path."""
        return next(segment.thread_id for segment in self.segments if position < segment.stop)


def find_user(database: apsw.Connection, user: str) -> int | None:
    """The number of a user, or None."""
    found = database.execute("SELECT user_id FROM users WHERE name = ?", (user,)).fetchone()
    return None if found is None else int(found[0])


_NAMED = (
    "SELECT t.thread_id, t.head_id, t.user_id, t.next_position, t.next_offset FROM threads t JOIN users u "
    "USING (user_id) WHERE u.name = ? AND t.name = ?"
)


def find_branch(database: apsw.Connection, key: ThreadKey) -> Branch | None:
    """The branch that a root's name stands for now, or the one that has the name itself; None where there is none.

    The name that `own_path` gives stands for a root's own lines.
    """
    found = database.execute(_NAMED, key).fetchone()
    if found is not None:
        thread_id, head_id, user_id, *following = found
        if thread_id == head_id:  # a thread that never branched, or whose name stands for its own lines again
            return _unbranched(user_id, thread_id, key.thread, *following)
        return _branch(database, thread_id if head_id is None else head_id)
    root = key.thread.removesuffix(own_path(""))
    if root == key.thread:
        return None
    own = database.execute(_NAMED + " AND t.parent_id IS NULL", (key.user, root)).fetchone()
    return None if own is None else _branch(database, own[0])


def find_unbranched(database: apsw.Connection, user_id: int, names: Collection[str]) -> dict[str, Branch]:
    """Those of a user's threads, by name, whose names stand for their own lines."""
    query = (
        "SELECT name, thread_id, next_position, next_offset FROM threads WHERE thread_id = head_id AND user_id = ? "
        "AND name IN (SELECT value FROM json_each(?))"
    )
    found = rows(database, query, (user_id, listed(names)))
    return {name: _unbranched(user_id, thread_id, name, *following) for name, thread_id, *following in found}


def need_branch(database: apsw.Connection, key: ThreadKey) -> Branch:
    """As `find_branch`. Raises: NotFoundError."""
    branch = find_branch(database, key)
    if branch is None:
        raise NotFoundError(f"user {key.user!r} has no thread {key.thread!r}")
    return branch


def make_branch(database: apsw.Connection, key: ThreadKey) -> Branch:
    """As `find_branch`; a thread that is not there yet is made, and its user.

    Raises: MessageError where its name is one that only a branch has.
    """
    branch = find_branch(database, key)
    if branch is not None:
        return branch
    if _NAME_OF_BRANCH.fullmatch(key.thread):
        raise MessageError(
            f"a thread cannot be named {key.thread!r}: ~ and a number name the branches of a thread; "
            "leave them out, or write another sign for ~"
        )
    database.execute("INSERT OR IGNORE INTO users (name) VALUES (?)", (key.user,))
    user_id = find_user(database, key.user)
    database.execute("INSERT INTO threads (user_id, name) VALUES (?, ?)", (user_id, key.thread))
    thread_id = database.last_insert_rowid()
    database.execute("UPDATE threads SET family_id = ?1, head_id = ?1 WHERE thread_id = ?1", (thread_id,))
    return _branch(database, thread_id)


def growing_branch(database: apsw.Connection, key: ThreadKey) -> Branch:
    """As `make_branch`, for storing lines. Raises: MessageError also for the name of a root's own lines."""
    branch = make_branch(database, key)
    if key.thread not in (branch.name, branch.root):
        raise MessageError(
            f"nothing is added to {key.thread!r}, the lines that thread {branch.root!r} had before it branched: "
            f"add to {branch.root!r}"
        )
    return branch


def _unbranched(user_id: int, thread_id: int, name: str, next_position: int, next_offset: int) -> Branch:
    whole = Segment(thread_id, 0, OPEN_END)
    return Branch(user_id, thread_id, thread_id, name, name, (whole,), next_position, next_offset)


def _branch(database: apsw.Connection, thread_id: int) -> Branch:
    user_id, family_id, name, root, next_position, next_offset = database.execute(
        "SELECT t.user_id, t.family_id, t.name, r.name, t.next_position, t.next_offset "
        "FROM threads t JOIN threads r ON r.thread_id = t.family_id WHERE t.thread_id = ?",
        (thread_id,),
    ).get
    segments = _segments(database, thread_id)
    return Branch(user_id, family_id, thread_id, name, root, segments, next_position, next_offset)


def _segments(database: apsw.Connection, thread_id: int) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    step: int | None = thread_id
    stop = OPEN_END
    while step is not None:
        parent_id, fork_position = database.execute(
            "SELECT parent_id, fork_position FROM threads WHERE thread_id = ?", (step,)
        ).get
        first = fork_position or 0
        if first < stop:
            segments.append(Segment(step, first, stop))
        stop = min(stop, first)
        step = parent_id
    return tuple(reversed(segments))


def fork(database: apsw.Connection, parent: Branch, position: int) -> str:
    """Make a branch that leaves `parent` at `position`, and the head of its family; return its name."""
    if not 0 <= position <= parent.next_position:
        raise NotFoundError(
            f"thread {parent.root!r} cannot fork at position {position}: it has 0 to {parent.next_position}"
        )
    name = _free_name(database, parent)
    offset = _offset_at(database, parent, position)
    database.execute(
        "INSERT INTO threads (user_id, name, family_id, parent_id, fork_position, next_position, next_offset) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (parent.user_id, name, parent.family_id, parent.thread_id, position, position, offset),
    )
    set_head(database, parent, database.last_insert_rowid())
    return name


def _free_name(database: apsw.Connection, parent: Branch) -> str:
    counted = database.execute("SELECT count(*) FROM threads WHERE family_id = ?", (parent.family_id,)).get
    number = int(counted)
    taken = "SELECT EXISTS (SELECT 1 FROM threads WHERE user_id = ? AND name = ?)"
    while database.execute(taken, (parent.user_id, f"{parent.root}~{number}")).get:
        number += 1
    return f"{parent.root}~{number}"


def _offset_at(database: apsw.Connection, branch: Branch, position: int) -> int:
    """Tokens of the path's lines in front of a position."""
    if position >= branch.next_position:
        return branch.next_offset
    for segment in reversed(branch.segments):
        before = min(position, segment.stop)
        newest = database.execute(
            'SELECT "offset" + tokens FROM lines WHERE thread_id = ? AND position < ? ORDER BY position DESC LIMIT 1',
            (segment.thread_id, before),
        ).get
        if newest is not None and before > segment.first:
            return int(newest)
    return 0


def set_head(database: apsw.Connection, branch: Branch, thread_id: int) -> None:
    """Let the family's name stand for one of its threads; caches of other processes see it by the user's count."""
    database.execute("UPDATE threads SET head_id = ? WHERE thread_id = ?", (thread_id, branch.family_id))
    database.execute("UPDATE users SET forks = forks + 1 WHERE user_id = ?", (branch.user_id,))


def switch(database: apsw.Connection, branch: Branch, name: str) -> None:
    """Make a thread of the family its head. Raises: NotFoundError with the names that there are."""
    names = dict(rows(database, "SELECT name, thread_id FROM threads WHERE family_id = ?", (branch.family_id,)))
    names.setdefault(own_path(branch.root), branch.family_id)
    if name not in names:
        raise NotFoundError(f"thread {branch.root!r} has no branch {name!r}; it has {', '.join(sorted(names))}")
    set_head(database, branch, names[name])


def grown_from(database: apsw.Connection, thread_id: int) -> list[int]:
    """A thread and all branches that left it or one of them."""
    return [
        found
        for (found,) in database.execute(
            "WITH RECURSIVE grown (thread_id) AS (SELECT ? UNION SELECT t.thread_id FROM grown g "
            "JOIN threads r ON r.thread_id = g.thread_id JOIN threads t ON t.family_id = r.family_id "
            "WHERE t.parent_id = g.thread_id) SELECT thread_id FROM grown",
            (thread_id,),
        )
    ]
