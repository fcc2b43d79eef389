"""Summaries and relevance buffers in the file: values about positions of a path.

Each is kept with the thread that owns the last line it speaks of, so that it goes out of sight with that line when
a branch leaves in front of it, and comes back when the path does.
"""

import json
from collections.abc import Iterable, Sequence
from datetime import datetime

import apsw

from backscroll.stores.branches import Branch, find_branch, find_unbranched
from backscroll.types import Span, Summary, ThreadKey


def summaries(database: apsw.Connection, key: ThreadKey, branch: Branch) -> list[Summary]:
    """Those of the path, by first position, then longest first."""
    found = [
        Summary(
            key.user,
            key.thread,
            first,
            last,
            tuple(json.loads(sentences)),
            method,
            _time(created_at),
            None if made_at is None else _time(made_at),
        )
        for segment in branch.segments
        for first, last, method, sentences, created_at, made_at in database.execute(
            "SELECT first, last, method, sentences, created_at, made_at FROM summaries "
            "WHERE thread_id = ? AND last >= ? AND last < ?",
            segment,
        )
    ]
    return sorted(found, key=lambda one: (one.first, -one.last, one.method))


def add_summary(database: apsw.Connection, branch: Branch, summary: Summary) -> None:
    """Keep a summary; one of the same lines by the same method is replaced."""
    database.execute(
        "INSERT OR REPLACE INTO summaries (thread_id, first, last, method, sentences, created_at, made_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            branch.owner(summary.last),
            summary.first,
            summary.last,
            summary.method,
            json.dumps(summary.sentences, ensure_ascii=False),
            summary.created_at.isoformat(),
            None if summary.made_at is None else summary.made_at.isoformat(),
        ),
    )


def blocks(database: apsw.Connection, user: str, branch: Branch, before: int) -> list[Span]:
    """What was recalled when a user's path was asked below position `before`, oldest first."""
    return [span for _, _, span in _visible(database, user, branch, before)]


def _visible(database: apsw.Connection, user: str, branch: Branch, before: int) -> list[tuple[int, int, Span]]:
    """The blocks of the path, with the thread that was asked and the block's number.

    A span whose own lines are no longer on the current path of their family is left out.
    """
    found = []
    owners = _Owners(database, user, branch)
    for thread_id, first, stop in branch.segments:
        asked = database.execute(
            "SELECT u.name, f.name, b.first, b.last, b.score, b.similarity, b.asked_at, b.line_thread_id, b.number, "
            "f.thread_id = b.line_thread_id AND f.thread_id = f.head_id AND f.thread_id <> ?4 "  # another, unbranched
            "FROM blocks b "
            "JOIN threads t ON t.thread_id = b.line_thread_id JOIN threads f ON f.thread_id = t.family_id "
            "JOIN users u ON u.user_id = f.user_id WHERE b.thread_id = ?1 AND b.asked_at >= ?2 "
            "AND b.asked_at < ?3 ORDER BY b.asked_at, b.number",
            (thread_id, first, min(stop, before), branch.family_id),
        )
        for *values, line_thread_id, number, is_current in asked:
            span = Span(*values)
            if is_current or owners.of(span) == line_thread_id:
                found.append((thread_id, number, span))
    return found


def put_blocks(
    database: apsw.Connection, user: str, branch: Branch, asked_at: int, spans: Sequence[Span], max_blocks: int
) -> None:
    """Replace what was recalled at `asked_at`, and forget all but the newest `max_blocks` up to there."""
    asked = branch.owner(asked_at)
    database.execute("DELETE FROM blocks WHERE thread_id = ? AND asked_at = ?", (asked, asked_at))
    owners = _Owners(database, user, branch)
    owners.look_up(span.family for span in spans if span.user == user)
    database.executemany(
        "INSERT INTO blocks (thread_id, asked_at, number, line_thread_id, first, last, score, similarity) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (asked, asked_at, number, owner, span.first, span.last, span.score, span.similarity)
            for number, span in enumerate(spans)
            if (owner := owners.of(span)) is not None  # else its lines are gone since it was searched
        ],
    )
    _forget_oldest(database, user, branch, asked_at, max_blocks)


def _forget_oldest(database: apsw.Connection, user: str, branch: Branch, up_to: int, max_blocks: int) -> None:
    """Those out of sight are not counted: they may come back with their lines."""
    kept = _visible(database, user, branch, up_to + 1)
    database.executemany(
        "DELETE FROM blocks WHERE thread_id = ? AND asked_at = ? AND number = ?",
        [(thread_id, span.asked_at, number) for thread_id, number, span in kept[: max(len(kept) - max_blocks, 0)]],
    )


class _Owners:
    """The thread whose line stands last in a span, on the path of the branch or on its family's current one."""

    def __init__(self, database: apsw.Connection, user: str, branch: Branch) -> None:
        self._database = database
        self._user = user
        self._user_id = branch.user_id
        self._families: dict[ThreadKey, Branch | None] = {ThreadKey(user, branch.root): branch}

    def look_up(self, families: Iterable[str]) -> None:
        """Find the branches of the user's families at once; one that branched is found when it is asked for."""
        for name, branch in find_unbranched(self._database, self._user_id, set(families)).items():
            self._families.setdefault(ThreadKey(self._user, name), branch)

    def of(self, span: Span) -> int | None:
        """The thread's number; None where the family is gone, or went another way before it came so far."""
        key = ThreadKey(span.user, span.family)
        if key not in self._families:
            self._families[key] = find_branch(self._database, key)
        family = self._families[key]
        return None if family is None or span.last >= family.next_position else family.owner(span.last)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def forget_about(database: apsw.Connection, family_id: int, position: int) -> None:
    """Drop the summaries and blocks of a family that may tell of a position, in whichever branch.

    Those that cover it; and all later ones of a model, which was shown the earlier ones and may repeat their words.
    """
    database.execute(
        "DELETE FROM summaries WHERE last >= ?1 AND (first <= ?1 OR made_at IS NOT NULL) "
        "AND thread_id IN (SELECT thread_id FROM threads WHERE family_id = ?2)",
        (position, family_id),
    )
    database.execute(
        "DELETE FROM blocks WHERE first <= ?1 AND last >= ?1 "
        "AND line_thread_id IN (SELECT thread_id FROM threads WHERE family_id = ?2)",
        (position, family_id),
    )
