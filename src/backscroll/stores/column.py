"""An array that grows at its end. Knows nothing about what it holds."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", bound=np.generic)


class Column(Generic[Number]):
    """Values in an array that may have room behind the last one.

    Args:
        array: (capacity,) or (capacity, width).
        count: how many of its values there are.
        is_mapped: whether the array is part of a file.
    """

    def __init__(self, array: NDArray[Number], count: int = 0, is_mapped: bool = False) -> None:
        self._array = array
        self._count = count
        self._is_mapped = is_mapped

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """RAM that it takes, the room to grow included; a part of a file takes none."""
        return 0 if self._is_mapped else self._array.nbytes

    @property
    def values(self) -> NDArray[Number]:
        """The values as they are now."""
        return self._array[: self._count]

    def reserve(self, count: int) -> None:
        """Make room for so many values in all."""
        if count > len(self._array):
            larger = np.empty((count, *self._array.shape[1:]), self._array.dtype)
            larger[: self._count] = self.values
            self._array, self._is_mapped = larger, False

    def extend(self, added: Sequence[Any] | NDArray[Any]) -> None:
        """Put values at the end."""
        stop = self._count + len(added)
        if stop > len(self._array):
            self.reserve(with_room(stop))
        self._array[self._count : stop] = added
        self._count = stop


def with_room(count: int) -> int:
    """How many values there should be room for, where there are so many."""
    return count + count // 8 + 16
