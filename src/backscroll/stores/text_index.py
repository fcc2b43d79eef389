"""The text index of one user in RAM: which lines have a term, and how often.

A stored line carries the hashes of its terms, which are turned round in RAM: as quick to ask as FTS5, a half of the
time to take a line in (docs/LOG.md), with the statistics of one user alone and no word in the index. Hashes are 64
bits of BLAKE2b: that any two of a million terms share one has a chance of 3e-8.
Knows nothing about scores.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct

import numpy as np
from numpy.typing import NDArray

_POSTING = np.dtype([("term", "<u8"), ("frequency", "u1")])
_PACKED = Struct("<QB")
_MAX_FREQUENCY = 255
_MAX_RECENT = 16_384  # postings: looked through one by one, about 8 us a term

Lines = NDArray[np.int32]
Frequencies = NDArray[np.uint8]


@lru_cache(maxsize=65_536)
def _hash(term: str) -> int:
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest(), "little")


def pack(terms: Sequence[str]) -> bytes:
    """A line's terms as they are stored: 9 bytes for each different one, in the order of their first places."""
    counted = Counter(terms)
    return b"".join(_PACKED.pack(_hash(term), min(n, _MAX_FREQUENCY)) for term, n in counted.items())


class TextIndex:
    """Postings, sorted by term; those of the newest lines unsorted, until there are too many."""

    def __init__(self) -> None:
        self._terms = np.empty(0, np.uint64)  # (t,) sorted, each once
        self._starts = np.zeros(1, np.int64)  # (t + 1,): postings of term i are starts[i]:starts[i + 1]
        self._lines = np.empty(0, np.int32)  # (p,)
        self._frequencies = np.empty(0, np.uint8)  # (p,)
        self._recent_terms = np.empty(0, np.uint64)
        self._recent_lines = np.empty(0, np.int32)
        self._recent_frequencies = np.empty(0, np.uint8)

    @property
    def nbytes(self) -> int:
        """RAM that it takes."""
        sorted_bytes = self._terms.nbytes + self._starts.nbytes + self._lines.nbytes + self._frequencies.nbytes
        return sorted_bytes + 13 * len(self._recent_terms)

    def add(self, first: int, packed: Sequence[bytes]) -> None:
        """Take in the terms of consecutive lines, the first of which has the number `first`."""
        postings = np.frombuffer(b"".join(packed), _POSTING)
        counts = np.fromiter((len(one) for one in packed), np.int64, len(packed)) // _POSTING.itemsize
        lines = np.repeat(np.arange(first, first + len(packed), dtype=np.int32), counts)
        self._recent_terms = np.concatenate([self._recent_terms, postings["term"]])
        self._recent_lines = np.concatenate([self._recent_lines, lines])
        self._recent_frequencies = np.concatenate([self._recent_frequencies, postings["frequency"]])
        if len(self._recent_terms) > max(_MAX_RECENT, len(self._lines) // 16):
            self._sort_in()

    def _sort_in(self) -> None:
        terms = np.concatenate([np.repeat(self._terms, np.diff(self._starts)), self._recent_terms])
        order = np.argsort(terms, kind="stable")
        ordered = terms[order]
        firsts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        self._terms = ordered[firsts]
        self._starts = np.append(firsts, len(ordered))
        self._lines = np.concatenate([self._lines, self._recent_lines])[order]
        self._frequencies = np.concatenate([self._frequencies, self._recent_frequencies])[order]
        self._recent_terms = self._recent_terms[:0].copy()
        self._recent_lines = self._recent_lines[:0].copy()
        self._recent_frequencies = self._recent_frequencies[:0].copy()

    def postings(self, term: str) -> tuple[Lines, Frequencies]:
        """The lines that have a term, each once, and how often each has it."""
        number = np.uint64(_hash(term))
        recent = np.flatnonzero(self._recent_terms == number)
        lines, frequencies = self._recent_lines[recent], self._recent_frequencies[recent]
        place = int(np.searchsorted(self._terms, number))
        if place == len(self._terms) or self._terms[place] != number:
            return lines, frequencies
        known = slice(self._starts[place], self._starts[place + 1])
        return (
            np.concatenate([self._lines[known], lines]),
            np.concatenate([self._frequencies[known], frequencies]),
        )
