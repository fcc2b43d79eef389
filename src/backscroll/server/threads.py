"""In which threads a request's work is done, and when nobody waits for any.

Contexts are made as many at once as there are cores: they do nothing but compute, and more of them would only make the
first one later. What waits for another machine has threads of its own. Knows nothing about what is done.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from backscroll.cores import usable_cores

_MAX_WAITING = 64  # threads that wait for a language model
_LEAST = 2  # contexts at once: one that has much to embed first does not stop all others
T = TypeVar("T")


class Threads:
    """The threads of one application, and how many requests want a context now. Used by its event loop alone.

    Attributes:
        waiting: for what waits for another machine.
        quiet: whether no request waits for its context; anybody may wait for it.
    """

    def __init__(self, most: int, workers: int = 1) -> None:
        """Take how many threads do the memory's work, and how many processes share the cores."""
        self.waiting = CapacityLimiter(_MAX_WAITING)
        self.quiet = threading.Event()
        self.quiet.set()
        self._computing = CapacityLimiter(min(most, max(_LEAST, usable_cores() // workers)))
        self._wanted = 0

    async def context(self, make: Callable[[], T], asks_others: bool) -> T:
        """Do what makes a context, after those that came before.

        Args:
            asks_others: whether it waits for another machine meanwhile.
        """
        self._wanted += 1
        self.quiet.clear()
        try:
            return await to_thread.run_sync(make, limiter=self.waiting if asks_others else self._computing)
        finally:
            self._wanted -= 1
            if not self._wanted:
                self.quiet.set()
