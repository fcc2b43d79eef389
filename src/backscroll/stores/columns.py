"""All of one user's lines as columns in RAM: what a search looks at.

A line's number is its index in every column; numbers grow with the order of storing. Knows nothing about files
or queries.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from backscroll.stores.branches import OPEN_END
from backscroll.stores.column import Column
from backscroll.stores.matrix import Matrix
from backscroll.stores.text_index import TextIndex
from backscroll.types import ThreadKey

_FAMILY_BITS = 32  # a place is family << 32 | position


class ThreadRow(NamedTuple):
    """What the columns need to know of a row of the threads table."""

    thread_id: int
    name: str
    family_id: int
    parent_id: int | None
    fork_position: int | None
    head_id: int | None


# row, thread, position, tokens, length in terms, role, speaker, ISO time, packed terms of a line
LineRow = tuple[int, int, int, int, int, str, str, str, bytes]


@dataclass(frozen=True, slots=True)
class Visible:
    """Which lines of a view a search may find.

    Attributes:
        mask: (n,) bool; None where it is all lines.
        count: how many they are.
        speakers: codes of those who speak in them, in the order of their first lines.
    """

    mask: NDArray[np.bool_] | None
    count: int
    speakers: tuple[int, ...]


class View:
    """The lines of some paths, each linked with those before and behind it on its path.

    Attributes:
        mask: (n,) bool, which of all lines they are.
        before, behind: (n,) int32, number of the next line on that side; -1 where there is none.
        count: how many lines.
        length: their terms together.
    """

    def __init__(self) -> None:
        self.mask = Column(np.empty(0, np.bool_))
        self.before = Column(np.empty(0, np.int32))
        self.behind = Column(np.empty(0, np.int32))
        self.count = 0
        self.length = 0
        self.last: dict[int, int] = {}  # of each family, its newest line
        self.visible: dict[frozenset[str], tuple[int, Visible]] = {}  # roles -> lines looked at, what was found

    @property
    def mean_length(self) -> float:
        """Terms a line."""
        return self.length / self.count if self.count else 0.0

    @property
    def nbytes(self) -> int:
        """RAM that it takes."""
        return self.mask.nbytes + self.before.nbytes + self.behind.nbytes

    def near(self, numbers: NDArray[np.int64], positions: NDArray[np.int32], reach: int) -> NDArray[np.int64]:
        """Numbers of the lines within `reach` positions of some, and of those, ascending.

        Args:
            positions: (n,) of all lines.
        """
        found = [numbers]
        for links in (self.before.values, self.behind.values):
            origins = there = numbers
            for _ in range(reach):
                there = links[there].astype(np.int64)
                is_near = (there >= 0) & (np.abs(positions[there] - positions[origins]) <= reach)
                origins, there = origins[is_near], there[is_near]
                found.append(there)
        ordered = np.sort(np.concatenate(found))  # np.unique hashes: three times as long
        return ordered[np.diff(ordered, prepend=-1) > 0]


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
        self.row = Column(np.empty(0, np.int64))
        self.thread = Column(np.empty(0, np.int32))
        self.family = Column(np.empty(0, np.int32))
        self.position = Column(np.empty(0, np.int32))
        self.tokens = Column(np.empty(0, np.int32))
        self.length = Column(np.empty(0, np.int32))
        self.speaker = Column(np.empty(0, np.int32))
        self.role = Column(np.empty(0, np.int16))
        self.created_at = Column(np.empty(0, np.float64))  # seconds since 1970 UTC
        self.group = Column(np.empty(0, np.int32))  # of the line's passages; -1 while it has none
        self.group_line = Column(np.empty(0, np.int32))
        self.group_start = Column(np.empty(0, np.int32))  # the group's first passage in the matrix
        self.index = TextIndex()
        self.matrix: Matrix | None = None
        self._family_codes: dict[int, int] = {}
        self._view: View | None = None

    @property
    def nbytes(self) -> int:
        """RAM taken by all of it but the names."""
        held = [column.nbytes for column in self.kept().values()]
        return sum(held) + self.index.recent_nbytes + (self._view.nbytes if self._view else 0)

    def kept(self) -> dict[str, Column[Any]]:
        """All columns by name, those of the matrix and the text index included."""
        own = {name: column for name, column in vars(self).items() if isinstance(column, Column)}
        parts = {f"index.{name}": column for name, column in self.index.columns().items()}
        if self.matrix is not None:
            parts |= {f"matrix.{name}": column for name, column in self.matrix.columns().items()}
        return own | parts

    def take(self, kept: Mapping[str, Column[Any]], speakers: Sequence[str], roles: Sequence[str]) -> None:
        """Begin with columns that were kept, and the names that their codes stand for."""
        parts: dict[str, dict[str, Column[Any]]] = {"index": {}, "matrix": {}}
        for name, column in kept.items():
            part, _, inner = name.rpartition(".")
            if part:
                parts[part][inner] = column
            else:
                setattr(self, name, column)
        self.speakers = {name: code for code, name in enumerate(speakers)}
        self.roles = {name: code for code, name in enumerate(roles)}
        self.index = TextIndex(parts["index"])
        self.matrix = Matrix.of(parts["matrix"]) if parts["matrix"] else None

    @property
    def passages(self) -> int:
        """How many vectors there are."""
        return 0 if self.matrix is None else len(self.matrix)

    @property
    def has_single_passages(self) -> bool:
        """Whether no line has two vectors: then the number of a group is that of its one passage."""
        return len(self.group_start) == self.passages

    def set_threads(self, threads: Sequence[ThreadRow]) -> None:
        """Take in new threads, or the old ones as they are after a fork or a switch."""
        is_only_new = all(one.thread_id not in self.threads and one.parent_id is None for one in threads)
        if not is_only_new:
            self._view = None
        for thread in threads:
            self.threads[thread.thread_id] = thread
            self.thread_ids[thread.name] = thread.thread_id
            if thread.thread_id == thread.family_id and thread.thread_id not in self._family_codes:
                self._family_codes[thread.thread_id] = len(self.families)
                self.families.append(ThreadKey(self.user, thread.name))

    def add_lines(self, lines: Sequence[LineRow]) -> None:
        """Take in new lines, in the order of their rows."""
        first = len(self.row.values)
        rows, threads, positions, tokens, lengths, roles, speakers, times, terms = zip(*lines, strict=True)
        self.row.extend(rows)
        self.thread.extend(threads)
        self.family.extend([self._family_codes[self.threads[thread].family_id] for thread in threads])
        self.position.extend(positions)
        self.tokens.extend(tokens)
        self.length.extend(lengths)
        self.speaker.extend([self.speakers.setdefault(speaker, len(self.speakers)) for speaker in speakers])
        self.role.extend([self.roles.setdefault(role, len(self.roles)) for role in roles])
        self.created_at.extend([datetime.fromisoformat(time).timestamp() for time in times])
        self.group.extend(np.full(len(lines), -1, np.int32))
        self.index.add(first, terms)
        if self._view is not None:
            self._grow(self._view, first)

    def add_vectors(self, rows: Sequence[int], stored: list[bytes], expected: int) -> None:
        """Take in new vectors; those of one line stand together.

        Args:
            expected: how many will come in all, for the room.
        """
        if self.matrix is None:
            self.matrix = Matrix(len(stored[0]))
            self.matrix.reserve(expected)
        lines = np.searchsorted(self.row.values, np.asarray(rows, np.int64))
        firsts = np.flatnonzero(np.diff(lines, prepend=-1))
        known = len(self.group_line.values)
        if known and firsts.size and self.group_line.values[-1] == lines[0]:
            firsts = firsts[1:]  # the line's first passages came with the batch before
        self.group.values[lines[firsts]] = np.arange(known, known + len(firsts))
        self.group_line.extend(lines[firsts])
        self.group_start.extend(firsts + len(self.matrix))
        self.matrix.extend(stored)

    def view(self) -> View:
        """The lines on the current path of every family."""
        if self._view is None:
            self._view = self._viewed({})
        return self._view

    def view_with(self, thread_id: int) -> View:
        """The same, but in one family the path of a thread that need not be its head."""
        thread = self.threads[thread_id]
        head_id = self.threads[thread.family_id].head_id
        if thread_id in (thread.family_id, head_id):
            return self.view()
        return self._viewed({thread.family_id: thread_id})

    def visible(self, view: View, roles: frozenset[str]) -> Visible:
        """The lines of a view that one of the roles said; no roles stand for all."""
        seen, known = view.visible.get(roles, (0, Visible(None, 0, ())))
        count = len(self.row.values)
        if seen < count or not count:
            mask = view.mask.values
            if roles and not self.roles.keys() <= roles:
                allowed = np.isin(np.arange(len(self.roles)), [self.roles[role] for role in roles & self.roles.keys()])
                mask = mask & allowed[self.role.values]
            spoken = np.flatnonzero(np.bincount(self.speaker.values[seen:][mask[seen:]])).tolist()
            added = int(np.count_nonzero(mask[seen:]))
            total = known.count + added
            speakers = tuple(dict.fromkeys((*known.speakers, *spoken)))
            known = Visible(None if total == count else mask, total, speakers)
            view.visible[roles] = (count, known)
        return known

    def family_of(self, thread_id: int) -> int:
        """The family's code in the column."""
        return self._family_codes[self.threads[thread_id].family_id]

    def passages_of(self, groups: NDArray[np.int32]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Numbers of the passages of some groups in the matrix, and where each group begins among them."""
        starts = self.group_start.values
        firsts = starts[groups].astype(np.int64)
        if self.has_single_passages:
            return firsts, np.arange(len(groups))
        behind = np.minimum(groups + 1, len(starts) - 1)
        counts = np.where(groups + 1 < len(starts), starts[behind], self.passages) - firsts
        begins = np.cumsum(counts) - counts
        return np.arange(counts.sum()) + np.repeat(firsts - begins, counts), begins

    def passages_in(self, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Numbers of the passages of the lines in a mask, ascending."""
        groups = np.flatnonzero(mask[self.group_line.values])
        return self.passages_of(groups.astype(np.int32))[0]

    def groups_of(self, passages: NDArray[np.int64] | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The groups that some passages are of, or all are, and where those of each begin among them."""
        starts = self.group_start.values
        if passages is None:
            return np.arange(len(starts)), starts.astype(np.int64)
        if self.has_single_passages:
            return passages, np.arange(len(passages))
        groups = np.searchsorted(starts, passages, "right") - 1
        begins = np.flatnonzero(np.diff(groups, prepend=-1))  # a line's passages stand together
        return groups[begins], begins

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

    def _viewed(self, read_as: dict[int, int]) -> View:
        view = View()
        self._grow(view, 0, read_as)
        return view

    def _grow(self, view: View, first: int, read_as: dict[int, int] | None = None) -> None:
        """Take the lines from number `first` on into a view: in each family they stand behind those that are in it."""
        threads, positions = self.thread.values[first:], self.position.values[first:]
        is_in = np.ones(len(threads), np.bool_)
        if len(self.threads) > len(self.families) and len(threads):
            stops = self._stops(read_as or {})
            codes, inverse = np.unique(threads, return_inverse=True)
            is_in = positions < np.array([stops.get(int(code), 0) for code in codes], np.int64)[inverse]
        view.mask.extend(is_in)
        view.before.extend(np.full(len(threads), -1, np.int32))
        view.behind.extend(np.full(len(threads), -1, np.int32))
        added = np.flatnonzero(is_in) + first
        view.count += len(added)
        view.length += int(self.length.values[added].sum(dtype=np.int64))
        ordered = added[np.argsort(self.places(added), kind="stable")]
        families = self.family.values[ordered]
        is_first = np.diff(families, prepend=-1) != 0
        front, back = ordered[:-1][~is_first[1:]], ordered[1:][~is_first[1:]]
        starts = np.flatnonzero(is_first)
        stops_at = np.append(starts[1:], len(ordered)) - 1
        before, behind = view.before.values, view.behind.values
        before[back], behind[front] = front, back
        for start, stop in zip(starts, stops_at[: len(starts)], strict=True):
            family, head = int(families[start]), int(ordered[start])
            last = view.last.get(family)
            if last is not None:
                before[head], behind[last] = last, head
            view.last[family] = int(ordered[stop])

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Family and position of some lines in one number each, as a `View` is sorted by."""
        family = self.family.values[numbers].astype(np.int64)
        return (family << _FAMILY_BITS) + self.position.values[numbers]
