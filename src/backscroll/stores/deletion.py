"""Deleting: which rows go, and with them everything derived from them."""

import json
from collections.abc import Iterable

import apsw

from backscroll.errors import NotFoundError
from backscroll.stores.branches import Branch, find_user, grown_from, need_branch, set_head
from backscroll.stores.derived import forget_about
from backscroll.stores.lines import rows_of
from backscroll.types import ThreadKey

# Vectors, summaries and blocks go with their lines and threads by the foreign keys of the schema.


def delete_user(database: apsw.Connection, user: str) -> int:
    """Delete a user with all threads. Raises: NotFoundError."""
    user_id = find_user(database, user)
    if user_id is None:
        raise NotFoundError(f"there is no user {user!r}")
    lines = database.execute("SELECT count(*) FROM lines WHERE user_id = ?", (user_id,)).get
    database.execute("DELETE FROM users WHERE user_id = ?", (user_id,))
    return int(lines)


def delete_thread(database: apsw.Connection, key: ThreadKey) -> int:
    """Delete a thread with all branches that left it; where the head is among them, the parent becomes it.

    Raises: NotFoundError.
    """
    named = _named(database, key)
    going = grown_from(database, named.thread_id)
    among = json.dumps(going)
    lines = database.execute(
        "SELECT count(*) FROM lines WHERE thread_id IN (SELECT value FROM json_each(?))", (among,)
    ).get
    parent_id, head_id = database.execute(
        "SELECT t.parent_id, r.head_id FROM threads t JOIN threads r ON r.thread_id = t.family_id "
        "WHERE t.thread_id = ?",
        (named.thread_id,),
    ).get
    if parent_id is not None and head_id in going:
        set_head(database, named, parent_id)
    database.execute("DELETE FROM threads WHERE thread_id IN (SELECT value FROM json_each(?))", (among,))
    _notify(database, named.user_id)
    return int(lines)


def delete_lines(database: apsw.Connection, key: ThreadKey, positions: Iterable[int]) -> int:
    """Delete the lines at positions of the thread's path, all or none. Raises: NotFoundError."""
    branch = need_branch(database, key)
    deleted = 0
    for position in positions:
        rows = rows_of(database, branch, position)
        if not rows:
            raise NotFoundError(f"thread {key.thread!r} of user {key.user!r} has no line at position {position}")
        database.execute("DELETE FROM lines WHERE row = ?", (rows[0],))
        forget_about(database, branch.family_id, position)
        deleted += 1
    _notify(database, branch.user_id)
    return deleted


def _named(database: apsw.Connection, key: ThreadKey) -> Branch:
    """The thread that has the name itself, whatever its family's head is."""
    branch = need_branch(database, key)
    thread_id = database.execute(
        "SELECT thread_id FROM threads WHERE user_id = ? AND name = ?", (branch.user_id, key.thread)
    ).get
    if thread_id is None:
        raise NotFoundError(f"{key.thread!r} stands for lines of thread {branch.root!r}: delete that")
    return Branch(branch.user_id, branch.family_id, thread_id, key.thread, branch.root, (), 0, 0)


def _notify(database: apsw.Connection, user_id: int) -> None:
    database.execute("UPDATE users SET deletions = deletions + 1 WHERE user_id = ?", (user_id,))
