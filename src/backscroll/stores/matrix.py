"""Vectors as they are stored, held and multiplied. The only place that knows how a number of one is kept.

A unit vector v is kept as int8, round(v / max|v| * 127), in the file and in RAM, and is made unit again as it is
multiplied. Retrieval loses nothing measurable by it (MRR@10 .3519 against .3513 of float32, 2026-11-20). Knows
nothing about lines.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backscroll.stores.column import Column
from backscroll.types import Vector, Vectors

Numbers = NDArray[np.int64]

# Rows multiplied at a time. Few enough that they stay in the processor's cache as float32 and that BLAS does not
# start threads, which beside other work cost more than they bring: 5,000 rows took .06 ms at the median and 20 ms at
# p95 with them, .25 and .30 so; 100,000 rows took 11 ms from int8 and 10 ms from float32, four times as large
# (two busy cores, 2026-11-20).
_ROWS_A_TIME = 1_024
_SIGNS_A_TIME = 65_536  # words of signs compared at a time: a million rows took 4.4 ms; 8,192 at a time 5.9, 2,048 16.4
_BITS = 64  # signs in a word
_VERY_MANY, _KEPT_BY_HALF = 64, 16  # times the rows asked for: no more are missed so (docs/LOG.md)
_COUNTED = 131_072  # of many values, to find how many are below one: a sample tells that well enough


def encode(vectors: Vectors) -> list[bytes]:
    """Unit rows (n, d) -> n stored vectors of d bytes each."""
    peaks = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    scaled = np.rint(vectors * (127 / np.where(peaks > 0, peaks, 1)))
    return [row.tobytes() for row in scaled.astype(np.int8)]


class Matrix:
    """Rows that only grow in number.

    Args:
        dimension: numbers in a row.
    """

    def __init__(self, dimension: int) -> None:
        self.rows = Column(np.empty((0, dimension), np.int8))
        self.scales = Column(np.empty(0, np.float32))  # 1 / the row's length
        words = -(-dimension // _BITS)
        self.signs = [Column(np.empty(0, np.uint64)) for _ in range(words)]  # a bit for each number above 0
        self.dimension = dimension

    def __len__(self) -> int:
        return len(self.rows)

    def columns(self) -> dict[str, Column[Any]]:
        """What it is made of, by name."""
        signs: dict[str, Column[Any]] = {f"signs{place}": column for place, column in enumerate(self.signs)}
        return {"rows": self.rows, "scales": self.scales, **signs}

    @classmethod
    def of(cls, columns: Mapping[str, Column[Any]]) -> "Matrix":
        """The matrix that is made of columns."""
        matrix = cls(columns["rows"].values.shape[1])
        matrix.rows, matrix.scales = columns["rows"], columns["scales"]
        matrix.signs = [columns[f"signs{place}"] for place in range(len(matrix.signs))]
        return matrix

    def reserve(self, count: int) -> None:
        """Make room for so many rows in all."""
        for column in self.columns().values():
            column.reserve(count)

    def extend(self, stored: list[bytes]) -> None:
        """Put rows at the end, given as they are stored."""
        rows = np.frombuffer(b"".join(stored), np.int8).reshape(len(stored), self.dimension)
        floats = rows.astype(np.float32)
        norms = np.sqrt(np.einsum("nd,nd->n", floats, floats))
        self.rows.extend(rows)
        self.scales.extend(1 / np.where(norms > 0, norms, 1))
        for column, words in zip(self.signs, _signs(rows).T, strict=True):
            column.extend(words)

    def similarities(self, vector: Vector, numbers: Numbers | None = None) -> NDArray[np.float32]:
        """Cosine of a unit vector and some rows, or every row.

        A row's is the same to the last bit whatever rows stand beside it: all products have one shape, because BLAS
        adds up in another order at the end of a shorter one.
        """
        held, scales = self.rows.values, self.scales.values
        count = len(held) if numbers is None else len(numbers)
        whole = -(-count // _ROWS_A_TIME) * _ROWS_A_TIME
        found = np.empty(whole, np.float32)
        floats = np.empty((_ROWS_A_TIME, self.dimension), np.float32)  # zeros for all would take as long as the product
        taken = np.empty((_ROWS_A_TIME, self.dimension), np.int8)
        for first in range(0, whole, _ROWS_A_TIME):
            part = slice(first, min(first + _ROWS_A_TIME, count))
            chosen = taken[: part.stop - first]  # taking into an array there is takes half of the time of indexing
            rows = held[part] if numbers is None else held.take(numbers[part], axis=0, out=chosen, mode="clip")
            np.copyto(floats[: len(rows)], rows)
            floats[len(rows) :] = 0
            np.dot(floats, vector, out=found[first : first + _ROWS_A_TIME])
        return found[:count] * (scales if numbers is None else scales[numbers])

    def nearest(self, vector: Vector, count: int, among: Numbers | None = None) -> Numbers:
        """About `count` rows, or somewhat more, whose signs differ least from the vector's; ascending.

        Where there are very many, only those that differ least in the first half of their signs are looked at whole.

        Args:
            among: numbers of the rows to choose from; None for all.
        """
        asked = _signs(vector[None])[0]
        half = len(asked) // 2
        differing = self._differing(asked, 0, half)
        if (len(self) if among is None else len(among)) > _VERY_MANY * count:
            among = _least(differing, _KEPT_BY_HALF * count, among)
        if among is not None:
            differing = differing[among]
        found = _least(differing + self._differing(asked, half, len(asked), among), count)
        return found if among is None else among[found]

    def _differing(
        self, asked: NDArray[np.uint64], first_word: int, stop_word: int, among: Numbers | None = None
    ) -> NDArray[np.uint16]:
        """In how many signs of some words the rows, or some of them, differ from those asked for."""
        count = len(self) if among is None else len(among)
        differing = np.zeros(count, np.uint16)
        words, counts = np.empty(_SIGNS_A_TIME, np.uint64), np.empty(_SIGNS_A_TIME, np.uint8)
        for first in range(0, count, _SIGNS_A_TIME):
            part = slice(first, first + _SIGNS_A_TIME)
            total = differing[part]
            for place in range(first_word, stop_word):
                differ, bits = words[: len(total)], counts[: len(total)]
                signs = self.signs[place].values
                np.bitwise_xor(signs[part if among is None else among[part]], asked[place], out=differ)
                np.bitwise_count(differ, out=bits)
                np.add(total, bits, out=total)
        return differing


def _least(values: NDArray[np.uint16], count: int, among: Numbers | None = None) -> Numbers:
    """Those of some numbers, or all, whose values are among the `count` least, or equal to the last of them."""
    chosen = values if among is None else values[among]
    apart = len(chosen) // _COUNTED | 1  # odd: speakers alternate
    within = np.cumsum(np.bincount(chosen[::apart], minlength=1))
    least = int(np.searchsorted(within, min(count, len(chosen)) / apart))
    found = np.flatnonzero(chosen <= least)
    return found if among is None else among[found]


def _signs(rows: NDArray[np.int8] | Vectors) -> NDArray[np.uint64]:
    """(n, d) -> (n, words), a bit for each number above 0."""
    packed = np.packbits(rows > 0, axis=1)
    filled = np.zeros((len(rows), -(-rows.shape[1] // _BITS) * (_BITS // 8)), np.uint8)
    filled[:, : packed.shape[1]] = packed
    return filled.view(np.uint64)
