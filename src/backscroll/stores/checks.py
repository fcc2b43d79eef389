"""Compares what is derived with the lines, and rebuilds what can be rebuilt without an embedder.

What is wrong with the lines themselves is told and left alone: a copy of the file has to mend it.
"""

import json
from collections.abc import Callable, Iterator

import apsw

from backscroll.fingerprint import fingerprint
from backscroll.stores.connection import rows
from backscroll.stores.text_index import pack
from backscroll.terms import VERSION
from backscroll.types import Finding

TERMS_SETTING = "terms"  # by which version of backscroll.terms the lines' terms were made
WIPE_SETTING = "wipe"  # lines were deleted, and their bytes may still be in the file
_LINES_A_TIME = 2_000

_ABOUT_LINES = (
    (
        "lines stand behind the place that their thread's next line gets",
        "SELECT count(*) FROM lines JOIN threads USING (thread_id) WHERE position >= next_position",
    ),
    (
        "lines of a branch stand in front of its fork",
        "SELECT count(*) FROM lines JOIN threads USING (thread_id) WHERE position < fork_position",
    ),
    (
        "lines have an offset smaller than the tokens in front of them",
        """SELECT count(*) FROM (SELECT "offset" AS here, lag("offset" + tokens, 1, 0)
        OVER (PARTITION BY thread_id ORDER BY position) AS least FROM lines) WHERE here < least""",
    ),
    (
        "lines have another user than their thread",
        "SELECT count(*) FROM lines l JOIN threads t USING (thread_id) WHERE l.user_id <> t.user_id",
    ),
)
_COMMON_LENGTH = "SELECT length(vector) FROM vectors GROUP BY 1 ORDER BY count(*) DESC LIMIT 1"
_WRONGLY_EMBEDDED = (
    "SELECT row FROM lines l WHERE passages IS NOT NULL AND passages <> (SELECT count(*) FROM vectors v "
    "INDEXED BY vectors_of_line WHERE v.row = l.row AND v.user_id = l.user_id AND length(vector) = ?)"
)
_WITHOUT_LINE = (
    "SELECT user_id, number FROM vectors v WHERE NOT EXISTS "
    "(SELECT 1 FROM lines l WHERE l.row = v.row AND l.passages IS NOT NULL AND l.user_id = v.user_id)"
)
_LOST_SUMMARIES = (
    "SELECT thread_id, first, last, method FROM summaries s LEFT JOIN threads t USING (thread_id) "
    "WHERE t.thread_id IS NULL OR s.last >= t.next_position OR s.first > s.last"
)
_LOST_BLOCKS = (
    "SELECT b.thread_id, b.asked_at, b.number FROM blocks b LEFT JOIN threads t ON t.thread_id = b.line_thread_id "
    "WHERE t.thread_id IS NULL OR b.last >= t.next_position OR b.first > b.last"
)


def check(database: apsw.Connection, repair: bool) -> list[Finding]:
    """All findings about what the tables say; inside a transaction, a write one where `repair` is set."""
    checks: tuple[Callable[[apsw.Connection, bool], Iterator[Finding]], ...] = (
        _check_file,
        _check_lines,
        _check_vectors,
        _check_terms,
        _check_fingerprints,
        _check_summaries,
        _check_blocks,
    )
    return [finding for one in checks for finding in one(database, repair)]


def _check_file(database: apsw.Connection, repair: bool) -> Iterator[Finding]:
    problems = [text for (text,) in database.execute("PRAGMA quick_check") if text != "ok"]
    if problems:
        yield Finding("lines", len(problems), f"the file is damaged: {problems[0]}", derived=False, repaired=False)


def _check_lines(database: apsw.Connection, repair: bool) -> Iterator[Finding]:
    for problem, query in _ABOUT_LINES:
        count = database.execute(query).get
        if count:
            yield Finding("lines", count, problem, derived=False, repaired=False)


def _check_vectors(database: apsw.Connection, repair: bool) -> Iterator[Finding]:
    stray = database.execute(_WITHOUT_LINE).fetchall()
    if stray:
        if repair:
            database.executemany("DELETE FROM vectors WHERE user_id = ? AND number = ?", stray)
            _reread_all(database)
        yield Finding("vectors", len(stray), "vectors belong to no line", derived=True, repaired=repair)
    dimension = database.execute(_COMMON_LENGTH).get
    wrong = database.execute(_WRONGLY_EMBEDDED, (dimension or 0,)).fetchall()
    if wrong:
        if repair:
            database.executemany("DELETE FROM vectors WHERE row = ?", wrong)
            database.executemany("UPDATE lines SET passages = NULL WHERE row = ?", wrong)
            _reread_all(database)
        problem = "lines have other vectors than they were given"
        yield Finding("vectors", len(wrong), problem, derived=True, repaired=repair)
    missing = database.execute("SELECT count(*) FROM lines WHERE passages IS NULL").get
    if missing:
        yield Finding("vectors", missing, "lines are not embedded yet", derived=True, repaired=False)


def _check_terms(database: apsw.Connection, repair: bool) -> Iterator[Finding]:
    version = database.execute("SELECT value FROM settings WHERE name = ?", (TERMS_SETTING,)).get
    wrong = list(_wrong_terms(database))
    if wrong and repair:
        database.executemany("UPDATE lines SET length = ?, terms = ? WHERE row = ?", wrong)
        _reread_all(database)
    if version not in (None, VERSION):
        if repair:
            database.execute("INSERT OR REPLACE INTO settings VALUES (?, ?)", (TERMS_SETTING, VERSION))
        problem = f"terms were made by rules {version}, these are rules {VERSION}"
        yield Finding("text index", len(wrong), problem, derived=True, repaired=repair)
    elif wrong:
        yield Finding("text index", len(wrong), "lines have terms that are not theirs", derived=True, repaired=repair)


def _check_fingerprints(database: apsw.Connection, repair: bool) -> Iterator[Finding]:
    wrong = [
        (right, row)
        for row, kept, payload in database.execute("SELECT row, fingerprint, payload FROM lines")
        if kept != (right := fingerprint(json.loads(payload)))
    ]
    if wrong:
        if repair:
            database.executemany("UPDATE lines SET fingerprint = ? WHERE row = ?", wrong)
        problem = "lines have fingerprints that are not theirs"
        yield Finding("lines", len(wrong), problem, derived=True, repaired=repair)


def _wrong_terms(database: apsw.Connection) -> Iterator[tuple[int, bytes, int]]:
    """(length, terms, row) as they should be, of the lines where they are not."""
    last = 0
    query = "SELECT row, length, terms, payload, text FROM lines WHERE row > ? ORDER BY row LIMIT ?"
    while lines := rows(database, query, (last, _LINES_A_TIME)):
        for row, length, packed, payload, text in lines:
            right = pack(json.loads(payload)["content"] if text is None else text)
            if (length, packed) != right:
                yield *right, row
        last = lines[-1][0]


def _check_summaries(database: apsw.Connection, repair: bool) -> Iterator[Finding]:
    lost = database.execute(_LOST_SUMMARIES).fetchall()
    if lost:
        if repair:
            database.executemany(
                "DELETE FROM summaries WHERE thread_id = ? AND first = ? AND last = ? AND method = ?", lost
            )
        yield Finding("summaries", len(lost), "summaries cover lines that never were", derived=True, repaired=repair)


def _check_blocks(database: apsw.Connection, repair: bool) -> Iterator[Finding]:
    lost = database.execute(_LOST_BLOCKS).fetchall()
    if lost:
        if repair:
            database.executemany("DELETE FROM blocks WHERE thread_id = ? AND asked_at = ? AND number = ?", lost)
        yield Finding("buffers", len(lost), "blocks hold lines that never were", derived=True, repaired=repair)


def _reread_all(database: apsw.Connection) -> None:
    database.execute("UPDATE users SET deletions = deletions + 1")
