"""The text index of one user in RAM: which lines have a term, and how often.

A stored line carries the hashes of its terms, which are turned round in RAM: as quick to ask as FTS5, a half of the
time to take a line in (docs/LOG.md), with the statistics of one user alone and no word in the index. Hashes are 64
bits of BLAKE2b: that any two of a million terms share one has a chance of 3e-8.
Knows nothing about scores.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backscroll.stores.column import Column

_POSTING = np.dtype([("term", "<u8"), ("frequency", "u1")])
_MAX_FREQUENCY = 255
_FREQUENCIES = [bytes([n]) for n in range(_MAX_FREQUENCY + 1)]
_MAX_RECENT = 16_384  # postings: looked through one by one, about 8 us a term

Lines = NDArray[np.int32]
Frequencies = NDArray[np.uint8]
Terms = NDArray[np.uint64]
Postings = tuple[Terms, Lines, Frequencies]


@lru_cache(maxsize=65_536)
def _hash(term: str) -> bytes:
    return hashlib.blake2b(term.encode(), digest_size=8).digest()  # read as a little-endian number


def pack(terms: Sequence[str]) -> bytes:
    """A line's terms as they are stored: 9 bytes for each different one, in the order of their first places."""
    counted = Counter(terms)
    return b"".join([_hash(term) + _FREQUENCIES[min(n, _MAX_FREQUENCY)] for term, n in counted.items()])


class TextIndex:
    """Postings, sorted by term and line; those of the newest lines unsorted, until there are too many."""

    def __init__(self, columns: Mapping[str, Column[Any]] | None = None) -> None:
        """Start empty, or with columns that were kept."""
        kept = {name: column.values for name, column in (columns or {}).items()}
        self._terms: Terms = kept.get("terms", np.empty(0, np.uint64))  # (t,) sorted, each once
        self._starts = kept.get("starts", np.zeros(1, np.int64))  # (t + 1,): of term i are starts[i]:starts[i + 1]
        self._lines: Lines = kept.get("lines", np.empty(0, np.int32))  # (p,)
        self._frequencies: Frequencies = kept.get("frequencies", np.empty(0, np.uint8))  # (p,)
        self._recent: list[Postings] = []
        self._is_mapped = bool(kept)

    def columns(self) -> dict[str, Column[Any]]:
        """What it is made of, by name; without what is not sorted yet."""
        arrays = {"terms": self._terms, "starts": self._starts, "lines": self._lines, "frequencies": self._frequencies}
        return {name: Column(array, len(array), self._is_mapped) for name, array in arrays.items()}

    @property
    def recent_nbytes(self) -> int:
        """RAM that what is not sorted yet takes."""
        return sum(13 * len(terms) for terms, _, _ in self._recent)

    def settle(self) -> None:
        """Sort everything in."""
        self._settled(0)

    def add(self, first: int, packed: Sequence[bytes]) -> None:
        """Take in the terms of consecutive lines, the first of which has the number `first`."""
        postings = np.frombuffer(b"".join(packed), _POSTING)
        counts = np.fromiter(map(len, packed), np.int64, len(packed)) // _POSTING.itemsize
        lines = np.repeat(np.arange(first, first + len(packed), dtype=np.int32), counts)
        self._recent.append((postings["term"].copy(), lines, postings["frequency"].copy()))

    def postings(self, term: str) -> tuple[Lines, Frequencies]:
        """The lines that have a term, ascending and each once, and how often each has it."""
        number = np.frombuffer(_hash(term), "<u8")[0]
        recent_terms, recent_lines, recent_frequencies = self._settled()
        recent = np.flatnonzero(recent_terms == number)
        place = int(np.searchsorted(self._terms, number))
        if place == len(self._terms) or self._terms[place] != number:
            return recent_lines[recent], recent_frequencies[recent]
        known = slice(self._starts[place], self._starts[place + 1])
        if not len(recent):
            return self._lines[known], self._frequencies[known]
        return (
            np.concatenate([self._lines[known], recent_lines[recent]]),
            np.concatenate([self._frequencies[known], recent_frequencies[recent]]),
        )

    def _settled(self, max_recent: int = _MAX_RECENT) -> Postings:
        """The unsorted postings in one piece; where they are too many, they are sorted in."""
        if len(self._recent) != 1:
            parts = self._recent or [(self._terms[:0], self._lines[:0], self._frequencies[:0])]
            terms, lines, frequencies = (np.concatenate(part) for part in zip(*parts, strict=True))
            self._recent = [(terms, lines, frequencies)]
        if len(self._recent[0][0]) > (max_recent and max(max_recent, len(self._lines) // 16)):
            self._sort_in(*self._recent[0])
            self._recent = [(self._terms[:0].copy(), self._lines[:0].copy(), self._frequencies[:0].copy())]
        return self._recent[0]

    def _sort_in(self, terms: Terms, lines: Lines, frequencies: Frequencies) -> None:
        """Put postings behind those of their terms: their lines are newer."""
        order = np.argsort(terms, kind="stable")
        ordered = terms[order]
        behind = self._starts[np.searchsorted(self._terms, ordered, "right")]
        self._lines = np.insert(self._lines, behind, lines[order])
        self._frequencies = np.insert(self._frequencies, behind, frequencies[order])
        firsts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        added = np.diff(np.append(firsts, len(ordered)))
        known, counts = self._terms, np.diff(self._starts)
        self._terms = np.union1d(known, ordered[firsts])
        totals = np.zeros(len(self._terms), np.int64)
        totals[np.searchsorted(self._terms, known)] = counts
        totals[np.searchsorted(self._terms, ordered[firsts])] += added
        self._starts = np.concatenate([[0], np.cumsum(totals)])
        self._is_mapped = False
