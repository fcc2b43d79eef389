"""All of one user's lines as columns in RAM: what a search looks at.

A line's number is its index in every column; numbers grow with the order of storing. Knows nothing about files
or queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from backscroll.stores.branches import OPEN_END
from backscroll.stores.matrix import Matrix
from backscroll.stores.text_index import TextIndex
from backscroll.types import ThreadKey

Number = TypeVar("Number", bound=np.generic)
_FAMILY_BITS = 32  # a place is family << 32 | position


class Column(Generic[Number]):
    """A (n,) array that grows at its end."""

    def __init__(self, dtype: type[Number]) -> None:
        self._values = np.empty(0, dtype)
        self._count = 0

    @property
    def nbytes(self) -> int:
        """RAM that it takes, the room to grow included."""
        return self._values.nbytes

    @property
    def values(self) -> NDArray[Number]:
        """The array as it is now."""
        return self._values[: self._count]

    def extend(self, added: Sequence[Any] | NDArray[Any]) -> None:
        """Put numbers at the end."""
        stop = self._count + len(added)
        if stop > len(self._values):
            larger = np.empty(stop + stop // 4, self._values.dtype)
            larger[: self._count] = self.values
            self._values = larger
        self._values[self._count : stop] = added
        self._count = stop


class ThreadRow(NamedTuple):
    """What the columns need to know of a row of the threads table."""

    thread_id: int
    name: str
    family_id: int
    parent_id: int | None
    fork_position: int | None
    head_id: int | None


class LineRow(NamedTuple):
    """What the columns need to know of a row of the lines table."""

    row: int
    thread_id: int
    position: int
    tokens: int
    length: int
    role: str
    speaker: str
    created_at: str
    terms: bytes


@dataclass(frozen=True, slots=True)
class View:
    """The lines of some paths, in the order of family and position.

    Attributes:
        mask: (n,) bool, which of all lines they are.
        order: (m,) their numbers.
        places: (m,) int64, sorted: family << 32 | position.
        mean_length: terms a line.
    """

    mask: NDArray[np.bool_]
    order: NDArray[np.int64]
    places: NDArray[np.int64]
    mean_length: float


class Columns:
    """One user's lines, those of abandoned branches included; a `View` says which of them are current."""

    def __init__(self, user_id: int, user: str) -> None:
        self.user_id = user_id
        self.user = user
        self.threads: dict[int, ThreadRow] = {}
        self.thread_ids: dict[str, int] = {}
        self.families: list[ThreadKey] = []
        self.speakers: dict[str, int] = {}
        self.roles: dict[str, int] = {}
        self.row = Column(np.int64)
        self.thread = Column(np.int64)
        self.family = Column(np.int32)
        self.position = Column(np.int32)
        self.tokens = Column(np.int32)
        self.length = Column(np.int32)
        self.speaker = Column(np.int32)
        self.role = Column(np.int16)
        self.created_at = Column(np.float64)  # seconds since 1970 UTC
        self.group = Column(np.int32)  # of the line's passages; -1 while it has none
        self.group_line = Column(np.int32)
        self.group_start = Column(np.int64)  # the group's first passage in the matrix
        self.index = TextIndex()
        self.matrix: Matrix | None = None
        self._passages = 0
        self._family_codes: dict[int, int] = {}
        self._view: View | None = None

    @property
    def nbytes(self) -> int:
        """RAM taken by all of it but the names."""
        held = [one.nbytes for one in vars(self).values() if isinstance(one, Column | TextIndex | Matrix)]
        return sum(held) + 17 * len(self.row.values)  # mask, order and places of the current view

    def set_threads(self, threads: Sequence[ThreadRow]) -> None:
        """Take in new threads, or the old ones as they are after a fork or a switch."""
        for thread in threads:
            self.threads[thread.thread_id] = thread
            self.thread_ids[thread.name] = thread.thread_id
            if thread.thread_id == thread.family_id and thread.thread_id not in self._family_codes:
                self._family_codes[thread.thread_id] = len(self.families)
                self.families.append(ThreadKey(self.user, thread.name))
        self._view = None

    def add_lines(self, lines: Sequence[LineRow]) -> None:
        """Take in new lines, in the order of their rows."""
        first = len(self.row.values)
        self.row.extend([line.row for line in lines])
        self.thread.extend([line.thread_id for line in lines])
        self.family.extend([self._family_codes[self.threads[line.thread_id].family_id] for line in lines])
        self.position.extend([line.position for line in lines])
        self.tokens.extend([line.tokens for line in lines])
        self.length.extend([line.length for line in lines])
        self.speaker.extend([self.speakers.setdefault(line.speaker, len(self.speakers)) for line in lines])
        self.role.extend([self.roles.setdefault(line.role, len(self.roles)) for line in lines])
        self.created_at.extend([datetime.fromisoformat(line.created_at).timestamp() for line in lines])
        self.group.extend(np.full(len(lines), -1, np.int32))
        self.index.add(first, [line.terms for line in lines])
        if self._view is not None:
            self._view = self._grown(self._view, first)

    def add_vectors(self, rows: Sequence[int], stored: list[bytes], expected: int) -> None:
        """Take in new vectors; those of one line stand together.

        Args:
            expected: how many will come in all, for the room.
        """
        if self.matrix is None:
            self.matrix = Matrix(len(stored[0]), expected)
        lines = np.searchsorted(self.row.values, np.asarray(rows, np.int64))
        firsts = np.flatnonzero(np.diff(lines, prepend=-1))
        known = len(self.group_line.values)
        if known and firsts.size and self.group_line.values[-1] == lines[0]:
            firsts = firsts[1:]  # the line's first passages came with the batch before
        self.group.values[lines[firsts]] = np.arange(known, known + len(firsts))
        self.group_line.extend(lines[firsts])
        self.group_start.extend(firsts + self._passages)
        self.matrix.extend(stored)
        self._passages += len(rows)

    def view(self) -> View:
        """The lines on the current path of every family."""
        if self._view is None:
            self._view = self._viewed(self._stops({}))
        return self._view

    def view_with(self, thread_id: int) -> View:
        """The same, but in one family the path of a thread that need not be its head."""
        thread = self.threads[thread_id]
        head_id = self.threads[thread.family_id].head_id
        if thread_id in (thread.family_id, head_id):
            return self.view()
        return self._viewed(self._stops({thread.family_id: thread_id}))

    def family_of(self, thread_id: int) -> int:
        """The family's code in the column."""
        return self._family_codes[self.threads[thread_id].family_id]

    def passages_of(self, groups: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of the passages of some groups in the matrix, and where each group begins among them."""
        starts = self.group_start.values
        stops = np.append(starts[1:], self._passages)
        counts = stops[groups] - starts[groups]
        begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)[:-1]])[: len(groups)]
        numbers = np.arange(counts.sum()) + np.repeat(starts[groups] - begins, counts)
        return numbers, begins

    def _stops(self, read_as: dict[int, int]) -> dict[int, int]:
        """For each thread, up to which position its own lines are on the path of its family."""
        stops: dict[int, int] = {}
        for root in self.threads.values():
            if root.thread_id != root.family_id:
                continue
            step: int | None = read_as.get(root.thread_id, root.head_id)
            stop = OPEN_END
            while step is not None:
                stops[step] = stop
                stop = min(stop, self.threads[step].fork_position or 0)
                step = self.threads[step].parent_id
        return stops

    def _viewed(self, stops: dict[int, int]) -> View:
        is_forked = len(self.threads) > len(self.families)
        mask = np.ones(len(self.row.values), np.bool_)
        if is_forked:
            codes, inverse = np.unique(self.thread.values, return_inverse=True)
            limits = np.array([stops.get(int(code), 0) for code in codes], np.int64)
            mask = self.position.values < limits[inverse] if len(codes) else mask
        numbers = np.flatnonzero(mask)
        places = self.places(numbers)
        sorting = np.argsort(places, kind="stable")
        return View(mask, numbers[sorting], places[sorting], self._mean_length(mask))

    def _grown(self, view: View, first: int) -> View:
        """The view with the lines from number `first` on, which stand at the end of their paths."""
        stops = self._stops({}) if len(self.threads) > len(self.families) else None
        threads, positions = self.thread.values[first:], self.position.values[first:]
        added = np.ones(len(threads), np.bool_)
        if stops is not None:
            added = positions < np.array([stops.get(int(thread), 0) for thread in threads], np.int64)
        mask = np.concatenate([view.mask, added])
        numbers = np.flatnonzero(added) + first
        places = self.places(numbers)
        sorting = np.argsort(places, kind="stable")
        into = np.searchsorted(view.places, places[sorting])
        order = np.insert(view.order, into, numbers[sorting])
        return View(mask, order, np.insert(view.places, into, places[sorting]), self._mean_length(mask))

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Family and position of some lines in one number each, as a `View` is sorted by."""
        family = self.family.values[numbers].astype(np.int64)
        return (family << _FAMILY_BITS) + self.position.values[numbers]

    def _mean_length(self, mask: NDArray[np.bool_]) -> float:
        lengths = self.length.values[mask]
        return float(lengths.sum(dtype=np.int64)) / len(lengths) if len(lengths) else 0.0
