"""Lines in the file: how one is stored, and how the lines of a path are read.

Knows nothing about vectors and searches.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import apsw

from backscroll.errors import MessageError
from backscroll.fingerprint import fingerprint
from backscroll.stores.branches import OPEN_END, Branch
from backscroll.stores.text_index import pack
from backscroll.terms import terms
from backscroll.types import Line, Mark, Message, ThreadKey

_LINES = (
    "SELECT l.row, u.name, t.name, f.name, l.position, l.id, l.role, l.payload, l.text, l.metadata, l.created_at, "
    'coalesce(l.speaker, l.role), l.tokens, l."offset", l.pinned FROM lines l JOIN threads t USING (thread_id) '
    "JOIN threads f ON f.thread_id = t.family_id JOIN users u ON u.user_id = l.user_id "
)
_DECODE = json.JSONDecoder().raw_decode  # of what was encoded here; json.loads takes half as long again
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))  # json.dumps makes one for each call


@dataclass(frozen=True, slots=True)
class Draft:
    """A message with everything about its line that can be known before its place is."""

    message: Message  # with id and created_at
    speaker: str | None
    tokens: int
    length: int
    terms: bytes
    payload: str
    text: str | None
    metadata: str | None
    fingerprint: int


def draft(message: Message, count_message: Callable[[Message], int]) -> Draft:
    """Do the slow part of storing, in front of the transaction."""
    if message.created_at is not None and message.created_at.tzinfo is None:
        raise MessageError(f"created_at needs a time zone, {message.created_at.isoformat()} has none")
    complete = message._replace(id=message.id or uuid.uuid4().hex, created_at=message.created_at or datetime.now(UTC))
    found = terms(message.text)
    return Draft(
        message=complete,
        speaker=message.payload.get("name") or None,
        tokens=count_message(message),
        length=len(found),
        terms=pack(found),
        payload=_json(message.payload),
        text=None if message.text == message.payload.get("content") else message.text,
        metadata=_json(message.metadata) if message.metadata else None,
        fingerprint=fingerprint(message.payload),
    )


def append(database: apsw.Connection, key: ThreadKey, branch: Branch, drafts: Sequence[Draft]) -> list[Line]:
    """Store drafts at the end of a branch; for an id that its path has already, return the line that is there."""
    known = find(database, branch, [one.message.id for one in drafts if one.message.id])
    position, offset = branch.next_position, branch.next_offset
    lines = []
    for one in drafts:
        line = known.get(str(one.message.id))
        if line is None:
            line = _inserted(database, key, branch, one, position, offset)
            known[line.id] = line
            position, offset = position + 1, offset + one.tokens
        lines.append(line)
    database.execute(
        "UPDATE threads SET next_position = ?, next_offset = ? WHERE thread_id = ?",
        (position, offset, branch.thread_id),
    )
    return lines


def _inserted(
    database: apsw.Connection, key: ThreadKey, branch: Branch, one: Draft, position: int, offset: int
) -> Line:
    message = one.message
    assert message.id is not None  # a draft has one
    assert message.created_at is not None
    database.execute(
        'INSERT INTO lines (user_id, thread_id, position, tokens, "offset", length, role, speaker, created_at, id, '
        "terms, payload, text, metadata, fingerprint) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            branch.user_id,
            branch.thread_id,
            position,
            one.tokens,
            offset,
            one.length,
            message.role,
            one.speaker,
            message.created_at.isoformat(),
            message.id,
            one.terms,
            one.payload,
            one.text,
            one.metadata,
            one.fingerprint,
        ),
    )
    return Line(
        row=database.last_insert_rowid(),
        user=key.user,
        thread=branch.name,
        family=branch.root,
        position=position,
        id=message.id,
        message=message,
        speaker=one.speaker or message.role,
        created_at=message.created_at,
        tokens=one.tokens,
        offset=offset,
    )


def find(database: apsw.Connection, branch: Branch, ids: Sequence[str]) -> dict[str, Line]:
    """The lines of the path that have one of the ids."""
    if not ids:
        return {}
    where = "WHERE l.thread_id = ? AND l.id IN (SELECT value FROM json_each(?)) AND +l.position < ?"  # by id
    asked = _json(ids)  # one text for any number of ids: a statement is compiled once
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
    found = {line.row: line for line in _read(database, where, (_json(asked),))}
    return [found[row] for row in asked if row in found]


def said(database: apsw.Connection, user_id: int, fingerprint: int, max_lines: int) -> list[Line]:
    """A user's lines that say the same, newest first."""
    where = "WHERE l.user_id = ? AND l.fingerprint = ? ORDER BY l.row DESC LIMIT ?"
    return list(_read(database, where, (user_id, fingerprint, max_lines)))


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


def _json(value: object) -> str:
    return _ENCODER.encode(value)
