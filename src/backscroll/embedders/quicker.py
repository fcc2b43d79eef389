"""Which of two ways to do the same was quicker of late: told by the clock, since it depends on machine and load.

Knows nothing about what is done.
"""

from collections import deque
from statistics import median

_REMEMBERED = 7  # runs of each way: a median of them forgets a change of the load within a few turns
_PROBED = 32  # every so many runs the slower way is tried again


class Quicker:
    """Chooses between way 0 and way 1, by the medians of their last runs. For one thread at a time.

    >>> ways = Quicker()
    >>> for way in (0, 1, 0, 1, 0, 1):
    ...     ways.took(way, seconds=0.9 if way else 1.5)
    >>> ways.choose()
    1
    """

    def __init__(self) -> None:
        self._seconds: tuple[deque[float], deque[float]] = (deque(maxlen=_REMEMBERED), deque(maxlen=_REMEMBERED))
        self._runs = 0

    def choose(self) -> int:
        """The way to take now: the quicker one, the one that was tried less while both are new, or a probe."""
        first, second = self._seconds
        if min(len(first), len(second)) < _REMEMBERED // 2:
            return int(len(second) < len(first))
        quicker = int(median(second) < median(first))
        return 1 - quicker if self._runs % _PROBED == 0 else quicker

    def took(self, way: int, seconds: float) -> None:
        """Tell how long a run took."""
        self._runs += 1
        self._seconds[way].append(seconds)
