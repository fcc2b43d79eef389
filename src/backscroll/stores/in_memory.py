"""A store that keeps nothing: the same as a file, in RAM, for tests and for those who keep their own history."""

from collections.abc import Callable

from backscroll.stores.connection import MEMORY
from backscroll.stores.sqlite import SQLiteStore
from backscroll.types import Message


class InMemoryStore(SQLiteStore):
    """An `SQLiteStore` without a file; gone when it is closed.

    Args:
        count_message: tokens of a message.
    """

    def __init__(self, count_message: Callable[[Message], int]) -> None:
        super().__init__(MEMORY, count_message)
