"""Work that nobody waits for: jobs by key, one after the other in a thread of their own.

A job that fails rests, for longer each time, before it is taken again. Knows nothing about what the jobs do.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from backscroll.errors import BackscrollError

_FIRST_REST_SECONDS, _LONGEST_REST_SECONDS = 30.0, 3600.0
_log = logging.getLogger(__name__)


def rest_seconds(failures: int) -> float:
    """How long a job rests that failed so many times in a row.

    >>> [rest_seconds(1), rest_seconds(2), rest_seconds(99)]
    [30.0, 60.0, 3600.0]
    """
    return min(_FIRST_REST_SECONDS * 2.0 ** min(failures - 1, 20), _LONGEST_REST_SECONDS)


@dataclass(frozen=True, slots=True)
class _Failed:
    """What is known of a job that failed: how often in a row, why, and until when it rests."""

    times: int
    problem: str
    until: float


class Background:
    """Runs jobs.

    A thread is there while there is work. It is a daemon: a process that ends does not wait for it, so that a job must
    leave things whole wherever it stops.

    Args:
        rest: seconds that a job rests after so many failures in a row.
    """

    def __init__(self, rest: Callable[[int], float] = rest_seconds) -> None:
        self._rest = rest
        self._changed = threading.Condition()
        self._waiting: dict[Hashable, Callable[[], object]] = {}  # in the order of asking
        self._running: Hashable | None = None
        self._failed: dict[Hashable, _Failed] = {}
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def ask(self, key: Hashable, job: Callable[[], object]) -> bool:
        """Let a job be done; not where one of its key is waiting, running or resting. Returns: whether it will be."""
        with self._changed:
            failed = self._failed.get(key)
            is_resting = failed is not None and time.monotonic() < failed.until
            if self._is_closed or is_resting or key in self._waiting or key == self._running:
                return False
            self._waiting[key] = job
            if self._thread is None or not self._thread.is_alive():
                self._start()
            return True

    def problem(self, key: Hashable) -> str | None:
        """Why the newest job of a key failed; None where it did not."""
        with self._changed:
            failed = self._failed.get(key)
        return None if failed is None else failed.problem

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until nothing is waiting or running. Returns: whether it came to that in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and self._running is None, timeout_seconds)

    def close(self, timeout_seconds: float) -> bool:
        """Take no more jobs, drop the waiting ones, and wait for the running one.

        Returns: whether it ended in time; else it is left to itself, and what it raises is of no interest.
        """
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
        return self.wait(timeout_seconds)

    def _start(self) -> None:
        with self._changed:
            self._thread = threading.Thread(target=self._work, name="backscroll", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while (job := self._taken()) is not None:
            key, run = job
            try:
                run()
            except BackscrollError as error:
                self._ended(key, str(error))
            except BaseException as error:  # a bug, or what a caller's function raised: told, and the thread ends
                self._ended(key, f"{type(error).__name__}: {error}")
                self._start()  # for those that wait
                raise
            else:
                self._ended(key, None)

    def _taken(self) -> tuple[Hashable, Callable[[], object]] | None:
        """The next job; None where the thread has nothing left to do, and ends."""
        with self._changed:
            if not self._waiting:
                self._thread = None
                return None
            key = next(iter(self._waiting))
            self._running = key
            return key, self._waiting.pop(key)

    def _ended(self, key: Hashable, problem: str | None) -> None:
        with self._changed:
            before = self._failed.pop(key, None)
            if problem is not None:
                times = 1 + (before.times if before else 0)
                self._failed[key] = _Failed(times, problem, time.monotonic() + self._rest(times))
                if not self._is_closed:
                    _log.info("failed in the background, %d times in a row: %s", times, problem)
            self._running = None
            self._changed.notify_all()
