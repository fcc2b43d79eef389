"""Parts of long lists: cursors, and the lines before, after and around a position."""

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from backscroll.errors import MessageError
from backscroll.protocols import MemoryStore
from backscroll.types import Line, ThreadKey

Item = TypeVar("Item")
_WIDER = 8  # times as many positions are read where deleted lines left holes


def page_of(
    items: Sequence[Item], place: Callable[[Item], tuple[Any, ...]], cursor: str | None, limit: int
) -> tuple[list[Item], str | None]:
    """Some of a sorted list, and the cursor of what follows.

    Args:
        items: in the order of `place`.
        place: what they are sorted by, unique, of JSON values.
        cursor: the one of the page before; None begins.

    Raises: MessageError for a cursor that is none.
    """
    begin = 0
    if cursor is not None:
        last = _read_cursor(cursor)
        try:
            begin = next((i for i, item in enumerate(items) if place(item) > last), len(items))
        except TypeError as error:
            raise MessageError("cursor is the `next` of a page of the same list") from error
    page = list(items[begin : begin + limit])
    has_more = begin + limit < len(items)
    return page, _cursor(place(page[-1])) if has_more else None


def lines_before(store: MemoryStore, key: ThreadKey, stop: int, limit: int) -> list[Line]:
    """The newest `limit` lines in front of a position, in order."""
    width = limit
    while True:
        first = max(0, stop - width)
        found = store.read(key, first, stop - 1) if stop > 0 else []
        if len(found) >= limit or first == 0:
            return found[-limit:]
        width *= _WIDER


def lines_from(store: MemoryStore, key: ThreadKey, first: int, limit: int) -> list[Line]:
    """The oldest `limit` lines from a position on, in order."""
    last = end(store, key)
    width = limit
    while True:
        found = store.read(key, first, first + width - 1) if first <= last else []
        if len(found) >= limit or first + width > last:
            return found[:limit]
        width *= _WIDER


def end(store: MemoryStore, key: ThreadKey) -> int:
    """The position of the thread's newest line; -1 where there is none."""
    newest = store.tail(key, 1)
    return newest[-1].position if newest else -1


def _cursor(place: tuple[Any, ...]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _read_cursor(cursor: str) -> tuple[Any, ...]:
    try:
        read = json.loads(base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError) as error:
        raise MessageError("cursor is the `next` of a page of the same list") from error
    if not isinstance(read, list):
        raise MessageError("cursor is the `next` of a page of the same list")
    return tuple(read)
