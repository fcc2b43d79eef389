"""Lines in the file: how one is stored, and how the lines of a path are read.

Knows nothing about vectors and searches.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from json.encoder import encode_basestring as quoted
from types import MappingProxyType, NoneType
from typing import Any, NamedTuple

import apsw

from backscroll.errors import MessageError
from backscroll.fingerprint import fingerprint
from backscroll.stores.branches import OPEN_END, Branch
from backscroll.stores.connection import listed
from backscroll.stores.text_index import pack
from backscroll.types import Line, Mark, Message, ThreadKey

_LINES = (
    "SELECT l.row, u.name, t.name, f.name, l.position, l.id, l.role, l.payload, l.text, l.metadata, l.created_at, "
    'coalesce(l.speaker, l.role), l.tokens, l."offset", l.pinned FROM lines l JOIN threads t USING (thread_id) '
    "JOIN threads f ON f.thread_id = t.family_id JOIN users u ON u.user_id = l.user_id "
)
_INSERT = (
    'INSERT INTO lines (row, user_id, thread_id, position, tokens, "offset", length, role, speaker, created_at, id, '
    "terms, payload, text, metadata, fingerprint) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_PART_BITS = 13  # of a row: the index of fingerprints is in parts (schema-5.sql)
_SAID = (  # SQLite's planner would rather read all lines of the user
    f"SELECT row FROM lines INDEXED BY lines_by_fingerprint WHERE user_id = ? AND row >> {_PART_BITS} IN "
    "(SELECT value FROM json_each(?)) AND fingerprint = ? ORDER BY row DESC LIMIT ?"
)
_VARIANTS = dict(zip("0123456789abcdef", "89ab" * 4, strict=True))  # a digit -> one whose first two bits are 10
_DECODE = json.JSONDecoder().raw_decode  # of what was encoded here; json.loads takes half as long again
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_WRITERS: Mapping[type, Callable[[Any], str]] = {
    str: quoted,
    int: int.__repr__,
    bool: {True: "true", False: "false"}.__getitem__,
    NoneType: {None: "null"}.__getitem__,
}
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # json.dumps makes one for each call


class Draft(NamedTuple):
    """A message with everything about its line that can be known before its place is.

    Attributes:
        message: with id and created_at.
        is_named: whether the caller gave it the id.
        columns: of its row, those behind `offset`.
    """

    message: Message
    is_named: bool
    tokens: int
    columns: tuple[Any, ...]


def drafts(messages: Sequence[Message], count_message: Callable[[Message], int]) -> list[Draft]:
    """Do the slow part of storing, in front of the transaction: one work after the other, each over all messages."""
    now = datetime.now(UTC)
    completed, written = _completed(messages, now), now.isoformat()
    packed = [pack(message.text) for message in messages]
    columns = zip(
        [length for length, _ in packed],
        [message.role for message in messages],
        [message.payload.get("name") or None for message in messages],
        [written if message.created_at is None else message.created_at.isoformat() for message in messages],
        [message.id for message in completed],
        [terms for _, terms in packed],
        [_json(message.payload) for message in messages],
        [None if message.text == message.payload.get("content") else message.text for message in messages],
        [_json(message.metadata) if message.metadata else None for message in messages],
        [fingerprint(message.payload) for message in messages],
        strict=True,
    )
    named = [bool(message.id) for message in messages]
    return list(map(Draft, completed, named, map(count_message, messages), columns))


def _new_ids(count: int) -> Iterator[str]:
    """UUIDs of version 7 (RFC 9562, 5.7), as 32 hexadecimal digits: the time in milliseconds, then 74 random bits.

    Newer ones sort behind older ones, so that in a long thread many lines write few pages of the index of ids.
    """
    begin = f"{time.time_ns() // 1_000_000:012x}7"
    drawn = os.urandom(10 * count).hex()  # the system is asked once for all of them
    for at in range(0, len(drawn), 20):
        yield f"{begin}{drawn[at : at + 3]}{_VARIANTS[drawn[at + 3]]}{drawn[at + 4 : at + 19]}"


def _completed(messages: Sequence[Message], now: datetime) -> list[Message]:
    """The messages with ids and times. Raises: MessageError for a time without a zone."""
    for message in messages:
        said_at = message.created_at
        if said_at is not None and said_at.tzinfo is None:
            raise MessageError(f"created_at needs a time zone, {said_at.isoformat()} has none")
    return [
        message
        if message.id and message.created_at is not None
        else Message(
            message.role,
            message.payload,
            message.text,
            message.id or new_id,
            message.created_at or now,
            message.metadata,
        )
        for message, new_id in zip(messages, _new_ids(len(messages)), strict=True)
    ]


def append(database: apsw.Connection, key: ThreadKey, branch: Branch, drafts: Sequence[Draft]) -> list[Line]:
    """Store drafts at the end of a branch; for an id that its path has already, return the line that is there."""
    lines = find(database, branch, [str(one.message.id) for one in drafts if one.is_named])
    rows: list[tuple[Any, ...]] = []
    row, position, offset = _next_row(database), branch.next_position, branch.next_offset
    for message, _, tokens, columns in drafts:
        line_id = str(message.id)
        if line_id not in lines:
            lines[line_id] = _line_of(message, key, branch, (row, position, tokens, offset))
            rows.append((row, branch.user_id, branch.thread_id, position, tokens, offset, *columns))
            row, position, offset = row + 1, position + 1, offset + tokens
    database.executemany(_INSERT, rows)
    database.execute(
        "UPDATE threads SET next_position = ?, next_offset = ? WHERE thread_id = ?",
        (position, offset, branch.thread_id),
    )
    return [lines[str(one.message.id)] for one in drafts]


def _next_row(database: apsw.Connection) -> int:
    """The row of the next line: above every one that there is, or ever was."""
    return int(
        database.execute(
            "SELECT 1 + max(coalesce((SELECT max(row) FROM lines), 0), "
            "coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'lines'), 0))"
        ).get
    )


def _line_of(message: Message, key: ThreadKey, branch: Branch, place: tuple[int, int, int, int]) -> Line:
    assert message.id is not None  # a draft has one
    assert message.created_at is not None
    row, position, tokens, offset = place
    return Line(
        row,
        key.user,
        branch.name,
        branch.root,
        position,
        message.id,
        message,
        message.payload.get("name") or message.role,
        message.created_at,
        tokens,
        offset,
    )


def find(database: apsw.Connection, branch: Branch, ids: Sequence[str]) -> dict[str, Line]:
    """The lines of the path that have one of the ids."""
    if not ids:
        return {}
    where = "WHERE l.thread_id = ? AND l.id IN (SELECT value FROM json_each(?)) AND +l.position < ?"  # by id
    asked = listed(ids)
    found = [
        line for segment in branch.segments for line in _read(database, where, (segment.thread_id, asked, segment.stop))
    ]
    return {line.id: line for line in found}


def tail(database: apsw.Connection, branch: Branch, tokens: int) -> list[Line]:
    """The newest lines of the path, oldest first: as few as have `tokens` tokens together, or all."""
    lines: list[Line] = []
    for thread_id, first, stop in reversed(branch.segments):
        where = "WHERE l.thread_id = ? AND l.position >= ? AND l.position < ? ORDER BY l.position DESC"
        newest_first = _read(database, where, (thread_id, first, stop))
        while tokens > 0 and (line := next(newest_first, None)) is not None:
            lines.append(line)
            tokens -= line.tokens
    return lines[::-1]


def read(database: apsw.Connection, branch: Branch, first: int, last: int) -> list[Line]:
    """The lines of the path from position `first` to `last`, both included."""
    where = "WHERE l.thread_id = ? AND l.position >= ? AND l.position < ? ORDER BY l.position"
    lines: list[Line] = []
    for segment in branch.segments:
        bounds = (max(first, segment.first), min(last + 1, segment.stop))
        if bounds[0] < bounds[1]:
            lines.extend(_read(database, where, (segment.thread_id, *bounds)))
    return lines


def marks(database: apsw.Connection, branch: Branch) -> list[Mark]:
    """What the lines of the path say, in order."""
    query = (
        "SELECT position, role, fingerprint, iif(role IN ('system', 'developer'), metadata, NULL) FROM lines "
        "WHERE thread_id = ? AND position >= ? AND position < ? ORDER BY position"
    )
    return [
        Mark(position, role, said, json.loads(metadata) if metadata else _NOTHING)
        for segment in branch.segments
        for position, role, said, metadata in database.execute(query, segment)
    ]


def fetch(database: apsw.Connection, rows: Sequence[int]) -> list[Line]:
    """Lines by their rows, in the order asked; a row that is gone is skipped."""
    asked = [int(row) for row in rows]
    where = "WHERE l.row IN (SELECT value FROM json_each(?))"
    found = {line.row: line for line in _read(database, where, (listed(asked),))}
    return [found[row] for row in asked if row in found]


def said(database: apsw.Connection, user_id: int, fingerprint: int, max_lines: int) -> list[Line]:
    """A user's lines that say the same, newest first."""
    query = "SELECT (SELECT min(row) FROM lines WHERE user_id = ?1), (SELECT max(row) FROM lines WHERE user_id = ?1)"
    oldest, newest = database.execute(query, (user_id,)).get
    if newest is None:
        return []
    parts = listed(range(oldest >> _PART_BITS, (newest >> _PART_BITS) + 1))
    return fetch(database, [row for (row,) in database.execute(_SAID, (user_id, parts, fingerprint, max_lines))])


def pinned(database: apsw.Connection, branch: Branch) -> list[Line]:
    """The pinned lines of the path, in order."""
    where = "WHERE l.pinned AND l.thread_id = ? AND l.position >= ? AND l.position < ? ORDER BY l.position"
    return [line for segment in branch.segments for line in _read(database, where, segment)]


def unembedded(database: apsw.Connection, user_id: int | None, max_lines: int) -> list[Line]:
    """Lines without vectors, oldest first."""
    where = "WHERE l.passages IS NULL " + ("" if user_id is None else "AND l.user_id = ?2 ")
    bindings = (max_lines,) if user_id is None else (max_lines, user_id)
    return list(_read(database, where + "ORDER BY l.row LIMIT ?1", bindings))


def rows_of(database: apsw.Connection, branch: Branch, position: int) -> list[int]:
    """The row of the line at a position of the path; empty where there is none."""
    if not 0 <= position < OPEN_END:
        return []
    query = "SELECT row FROM lines WHERE thread_id = ? AND position = ?"
    return [row for (row,) in database.execute(query, (branch.owner(position), position))]


def _read(database: apsw.Connection, where: str, bindings: Sequence[Any]) -> Iterator[Line]:
    return map(_line, database.execute(_LINES + where, tuple(bindings)))


def _line(columns: Any) -> Line:
    (
        row,
        user,
        thread,
        family,
        position,
        line_id,
        role,
        payload_json,
        text,
        metadata,
        created_at,
        speaker,
        tokens,
        offset,
        pinned,
    ) = columns
    payload, _ = _DECODE(payload_json)
    said_at = datetime.fromisoformat(created_at)
    message = Message(
        role=role,
        payload=payload,
        text=payload["content"] if text is None else text,
        id=line_id,
        created_at=said_at,
        metadata=json.loads(metadata) if metadata else {},
    )
    return Line(row, user, thread, family, position, line_id, message, speaker, said_at, tokens, offset, bool(pinned))


def _json(held: Mapping[str, Any]) -> str:
    """What the encoder writes; of texts and plain values, as nearly every message is of, in a half of the time."""
    parts = []
    for key, value in held.items():
        write = _WRITERS.get(type(value))
        if write is None or type(key) is not str:
            return _ENCODER.encode(held)
        parts.append(f"{quoted(key)}:{write(value)}")
    return "{" + ",".join(parts) + "}"
