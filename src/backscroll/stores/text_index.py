"""The text index of one user in RAM: which lines have a term, and how often.

A stored line carries the hashes of its terms, which are turned round in RAM: as quick to ask as FTS5, a half of the
time to take a line in (docs/LOG.md), with the statistics of one user alone and no word in the index. Hashes are 64
bits of BLAKE2b: that any two of a million terms share one has a chance of 3e-8.
Knows nothing about scores.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backscroll.stores.column import Column
from backscroll.terms import Remembering, terms_of, words

_POSTING = np.dtype([("term", "<u8"), ("frequency", "u1")])
_HASH_BYTES = 8
_MAX_FREQUENCY = 255
_FREQUENCIES = [bytes([n]) for n in range(_MAX_FREQUENCY + 1)]
_MAX_RECENT = 16_384  # postings: looked through one by one, about 8 us a term
_FEW_OF_MANY = 16  # the few sorted postings are joined with the many when they are more than this part of them

Lines = NDArray[np.int32]
Frequencies = NDArray[np.uint8]
Terms = NDArray[np.uint64]
Postings = tuple[Terms, Lines, Frequencies]


def _hash(term: str) -> bytes:
    return hashlib.blake2b(term.encode(), digest_size=_HASH_BYTES).digest()  # read as a little-endian number


def _postings(word: str) -> bytes:
    return b"".join([_hash(term) + _FREQUENCIES[1] for term in terms_of(word)])


_known = Remembering(_postings)


def pack(text: str) -> tuple[int, bytes]:
    """A line's terms as they are stored: how many, and 9 bytes for each different one in the order of first places."""
    postings = list(filter(None, map(_known.__getitem__, words(text))))
    packed = b"".join(postings)
    length = len(packed) // _POSTING.itemsize
    if len(set(postings)) == length:  # most lines repeat no term
        return length, packed
    counts: dict[bytes, int] = {}
    for at in range(0, len(packed), _POSTING.itemsize):
        term = packed[at : at + _HASH_BYTES]
        counts[term] = counts.get(term, 0) + 1
    return length, b"".join([term + _FREQUENCIES[min(count, _MAX_FREQUENCY)] for term, count in counts.items()])


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Postings, sorted by term and line.

    Attributes:
        terms: (t,) sorted, each once.
        starts: (t + 1,) int64; the postings of term i are starts[i]:starts[i + 1].
        lines, frequencies: (p,).
    """

    terms: Terms
    starts: NDArray[np.int64]
    lines: Lines
    frequencies: Frequencies

    def of(self, number: np.uint64) -> slice:
        """Where the postings of a term are."""
        place = int(np.searchsorted(self.terms, number))
        if place == len(self.terms) or self.terms[place] != number:
            return slice(0, 0)
        return slice(int(self.starts[place]), int(self.starts[place + 1]))

    def with_sorted(self, terms: Terms, lines: Lines, frequencies: Frequencies) -> "_Sorted":
        """With postings of newer lines, sorted by term, behind those of the same terms."""
        behind = self.starts[np.searchsorted(self.terms, terms, "right")]
        firsts = np.flatnonzero(np.concatenate([[True], terms[1:] != terms[:-1]]))
        all_terms = np.union1d(self.terms, terms[firsts])
        totals = np.zeros(len(all_terms), np.int64)
        totals[np.searchsorted(all_terms, self.terms)] = np.diff(self.starts)
        totals[np.searchsorted(all_terms, terms[firsts])] += np.diff(np.append(firsts, len(terms)))
        return _Sorted(
            all_terms,
            np.concatenate([[0], np.cumsum(totals)]),
            np.insert(self.lines, behind, lines),
            np.insert(self.frequencies, behind, frequencies),
        )


_NONE = _Sorted(np.empty(0, np.uint64), np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.uint8))
_NO_POSTINGS: Postings = (_NONE.terms, _NONE.lines, _NONE.frequencies)


class TextIndex:
    """Postings in three parts, by age: many sorted ones, few sorted ones, and those of the newest lines, unsorted.

    A new line costs no more in a large index than in a small one, but for once in a while.
    """

    def __init__(self, columns: Mapping[str, Column[Any]] | None = None) -> None:
        """Start empty, or with columns that were kept."""
        self._many = _Sorted(**{name: column.values for name, column in columns.items()}) if columns else _NONE
        self._few = _NONE
        self._recent: list[Postings] = []
        self._is_mapped = bool(columns)

    def columns(self) -> dict[str, Column[Any]]:
        """What the many sorted postings are made of, by name."""
        arrays = {field.name: getattr(self._many, field.name) for field in fields(_Sorted)}
        return {name: Column(array, len(array), self._is_mapped) for name, array in arrays.items()}

    @property
    def recent_nbytes(self) -> int:
        """RAM that the rest takes."""
        recent = sum(len(terms) for terms, _, _ in self._recent)
        return 13 * recent + 5 * len(self._few.lines) + 16 * len(self._few.terms)

    def settle(self) -> None:
        """Put everything among the many."""
        self._sort_in()
        self._join()

    def add(self, first: int, packed: Sequence[bytes]) -> None:
        """Take in the terms of consecutive lines, the first of which has the number `first`."""
        postings = np.frombuffer(b"".join(packed), _POSTING)
        counts = np.fromiter(map(len, packed), np.int64, len(packed)) // _POSTING.itemsize
        lines = np.repeat(np.arange(first, first + len(packed), dtype=np.int32), counts)
        self._recent.append((postings["term"].copy(), lines, postings["frequency"].copy()))

    def postings(self, term: str) -> tuple[Lines, Frequencies]:
        """The lines that have a term, ascending and each once, and how often each has it."""
        number = np.frombuffer(_hash(term), "<u8")[0]
        terms, lines, frequencies = self._newest()
        recent = np.flatnonzero(terms == number)
        parts = [
            (one.lines[found], one.frequencies[found])
            for one in (self._many, self._few)
            if (found := one.of(number)).stop
        ]
        if len(recent):
            parts.append((lines[recent], frequencies[recent]))
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([lines[:0], *(one for one, _ in parts)]), np.concatenate(
            [frequencies[:0], *(one for _, one in parts)]
        )

    def _newest(self) -> Postings:
        """The unsorted postings in one piece; where they are too many, they are sorted in."""
        if sum(len(terms) for terms, _, _ in self._recent) > _MAX_RECENT:
            self._sort_in()
            if len(self._few.lines) > len(self._many.lines) // _FEW_OF_MANY:
                self._join()
        if len(self._recent) > 1:
            terms, lines, frequencies = (np.concatenate(part) for part in zip(*self._recent, strict=True))
            self._recent = [(terms, lines, frequencies)]
        return self._recent[0] if self._recent else _NO_POSTINGS

    def _sort_in(self) -> None:
        if self._recent:
            terms, lines, frequencies = (np.concatenate(part) for part in zip(*self._recent, strict=True))
            order = np.argsort(terms, kind="stable")
            self._few = self._few.with_sorted(terms[order], lines[order], frequencies[order])
            self._recent = []

    def _join(self) -> None:
        if len(self._few.lines):
            few = self._few
            terms = np.repeat(few.terms, np.diff(few.starts))
            self._many = self._many.with_sorted(terms, few.lines, few.frequencies)
            self._few = _NONE
            self._is_mapped = False
