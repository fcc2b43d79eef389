"""What threads there are, with the lines that their names stand for."""

from datetime import datetime

import apsw

from backscroll.stores.branches import need_branch
from backscroll.stores.connection import rows
from backscroll.types import ThreadInfo, ThreadKey

_THREADS = (
    "SELECT u.name, t.name, p.name, t.fork_position, h.name, r.name FROM threads t JOIN users u USING (user_id) "
    "JOIN threads r ON r.thread_id = t.family_id LEFT JOIN threads p ON p.thread_id = t.parent_id "
    "LEFT JOIN threads h ON h.thread_id = t.head_id "
    "WHERE (t.next_position > 0 OR t.parent_id IS NOT NULL) AND (?1 IS NULL OR u.name = ?1) "
    "AND (?2 IS NULL OR r.name = ?2) "
    "ORDER BY u.user_id, t.thread_id"
)


# A column beside min() or max() is that of the row where it was found.
_OLDEST = (
    "SELECT count(*), coalesce(sum(l.tokens), 0), min(l.position), l.created_at FROM json_each(?) s CROSS JOIN lines l "
    "ON l.thread_id = s.value ->> 0 AND l.position >= s.value ->> 1 AND l.position < s.value ->> 2"
)
_NEWEST = (
    "SELECT max(l.position), l.created_at FROM json_each(?) s CROSS JOIN lines l "
    "ON l.thread_id = s.value ->> 0 AND l.position >= s.value ->> 1 AND l.position < s.value ->> 2"
)


def list_threads(database: apsw.Connection, user: str | None, family: str | None = None) -> list[ThreadInfo]:
    """Threads that ever had a line, and branches, in the order of users and making.

    Args:
        family: only this thread of the user's, with its branches.

    Counts and times are those of the lines that reading the thread by its name gives.
    """
    listed = []
    for name, thread, parent, fork_position, head, root in rows(database, _THREADS, (user, family)):
        path = need_branch(database, ThreadKey(name, thread)).path
        lines, tokens, _, first_at = rows(database, _OLDEST, (path,))[0]
        _, last_at = rows(database, _NEWEST, (path,))[0]
        listed.append(
            ThreadInfo(
                user=name,
                thread=thread,
                lines=lines,
                tokens=tokens,
                first_at=None if first_at is None else datetime.fromisoformat(first_at),
                last_at=None if last_at is None else datetime.fromisoformat(last_at),
                parent=parent,
                fork_position=fork_position,
                head=head or thread,
                family=root,
            )
        )
    return listed
