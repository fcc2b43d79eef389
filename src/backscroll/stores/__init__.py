"""Stores: where lines are kept. `open_store` finds the one that a URL names."""

from collections.abc import Callable

from backscroll.errors import NotFoundError
from backscroll.protocols import MemoryStore
from backscroll.stores.in_memory import InMemoryStore
from backscroll.stores.sqlite import SQLiteStore
from backscroll.types import Message

__all__ = ["InMemoryStore", "SQLiteStore", "open_store"]

Opener = Callable[[str, Callable[[Message], int]], MemoryStore]
_SQLITE = "sqlite"

OPENERS: dict[str, Opener] = {_SQLITE: SQLiteStore}  # scheme of a URL -> what opens the rest of it


def open_store(url: str, count_message: Callable[[Message], int]) -> MemoryStore:
    """Open the store that a URL names, or make it.

    Args:
        url: a path, ``sqlite:///`` with a path behind it (``sqlite:////tmp/chat.db`` for one from the root), or
            ``:memory:``.
        count_message: tokens of a message, kept with its line.

    Raises:
        NotFoundError: nothing opens URLs of that scheme.
        StoreError: the file cannot be opened or made.

        >>> open_store("mysql://localhost/chat", len)
        Traceback (most recent call last):
        ...
        backscroll.errors.NotFoundError: no store opens mysql://; there are a path, :memory:, sqlite:///
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return SQLiteStore(url, count_message)
    if scheme not in OPENERS:
        known = ", ".join(f"{one}:///" for one in sorted(OPENERS))
        raise NotFoundError(f"no store opens {scheme}://; there are a path, :memory:, {known}")
    return OPENERS[scheme](rest.removeprefix("/"), count_message)
