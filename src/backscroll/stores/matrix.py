"""Vectors as they are stored, held and multiplied. The only place that knows how a number of one is kept.

A unit vector v is kept as int8, round(v / max|v| * 127), in the file and in RAM, and is made unit again as it is
multiplied. Retrieval loses nothing measurable by it (MRR@10 .3519 against .3513 of float32, 2026-11-20). Knows
nothing about lines.
"""

import numpy as np
from numpy.typing import NDArray

from backscroll.types import Vector, Vectors

# Rows multiplied at a time. Few enough that they stay in the processor's cache as float32 and that BLAS does not
# start threads, which beside other work cost more than they bring: 5,000 rows took .06 ms at the median and 20 ms at
# p95 with them, .25 and .30 so; 100,000 rows took 11 ms from int8 and 10 ms from float32, four times as large
# (two busy cores, 2026-11-20).
_ROWS_A_TIME = 1_024


def encode(vectors: Vectors) -> list[bytes]:
    """Unit rows (n, d) -> n stored vectors of d bytes each."""
    peaks = np.abs(vectors).max(axis=1, keepdims=True, initial=0)
    scaled = np.rint(vectors * (127 / np.where(peaks > 0, peaks, 1)))
    return [row.tobytes() for row in scaled.astype(np.int8)]


class Matrix:
    """Rows that only grow in number.

    Args:
        dimension: numbers in a row.
        capacity: rows that there is room for before it has to grow.
    """

    def __init__(self, dimension: int, capacity: int) -> None:
        self._rows = np.empty((capacity, dimension), np.int8)
        self._scales = np.empty(capacity, np.float32)  # 1 / the row's length
        self._count = 0

    @property
    def dimension(self) -> int:
        """Numbers in a row."""
        return self._rows.shape[1]

    @property
    def nbytes(self) -> int:
        """RAM that it takes, the room to grow included."""
        return self._rows.nbytes + self._scales.nbytes

    def extend(self, stored: list[bytes]) -> None:
        """Put rows at the end, given as they are stored."""
        stop = self._count + len(stored)
        if stop > len(self._rows):
            self._grow(stop + stop // 8)
        rows = np.frombuffer(b"".join(stored), np.int8).reshape(len(stored), self.dimension)
        floats = rows.astype(np.float32)
        norms = np.sqrt(np.einsum("nd,nd->n", floats, floats))
        self._rows[self._count : stop] = rows
        self._scales[self._count : stop] = 1 / np.where(norms > 0, norms, 1)
        self._count = stop

    def _grow(self, capacity: int) -> None:
        rows, scales = self._rows, self._scales
        self._rows = np.empty((capacity, self.dimension), np.int8)
        self._scales = np.empty(capacity, np.float32)
        self._rows[: self._count] = rows[: self._count]
        self._scales[: self._count] = scales[: self._count]

    def similarities(self, vector: Vector) -> NDArray[np.float32]:
        """Cosine of every row and a unit vector.

        A row's is the same to the last bit however many rows follow: all products have one shape, because BLAS
        adds up in another order at the end of a shorter one.
        """
        whole = -(-self._count // _ROWS_A_TIME) * _ROWS_A_TIME
        found = np.empty(whole, np.float32)
        floats = np.zeros((_ROWS_A_TIME, self.dimension), np.float32)
        for first in range(0, whole, _ROWS_A_TIME):
            rows = self._rows[first : min(first + _ROWS_A_TIME, self._count)]
            np.copyto(floats[: len(rows)], rows)
            np.dot(floats, vector, out=found[first : first + _ROWS_A_TIME])
        return found[: self._count] * self._scales[: self._count]
