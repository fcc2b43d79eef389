"""How Python runs in a server's process, where the event loop must not wait for the threads beside it."""

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# After which a thread gives Python's lock to one that waits. By 5 ms, Python's own, three threads that compute made the
# loop late by 90 ms at p99; by this one by 20, and they did as much.
SWITCH_SECONDS = 0.0005
# Full collections hold all threads, 26 ms with 150 users in RAM: one for so many of the generation below, not for 10.
COLLECTIONS = 100


class _Interpreter:
    """This process's Python, for as many servers as run in it: the first sets it, the last puts it back."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._servers = 0
        self._before = (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count())

    def enter(self) -> None:
        with self._changing:
            self._servers += 1
            if self._servers == 1:
                thresholds = gc.get_threshold()
                self._before = sys.getswitchinterval(), thresholds, gc.get_freeze_count()
                gc.collect()
                gc.freeze()
                sys.setswitchinterval(SWITCH_SECONDS)
                gc.set_threshold(*thresholds[:2], COLLECTIONS)

    def leave(self) -> None:
        with self._changing:
            self._servers -= 1
            if self._servers == 0:
                switch_seconds, thresholds, frozen = self._before
                gc.set_threshold(*thresholds)
                sys.setswitchinterval(switch_seconds)
                if not frozen:  # else there is what the program around it froze
                    gc.unfreeze()


_INTERPRETER = _Interpreter()


@contextmanager
def responsive() -> Iterator[None]:
    """Until it ends, threads give way soon, and full collections are rare and leave out what is loaded by now."""
    _INTERPRETER.enter()
    try:
        yield
    finally:
        _INTERPRETER.leave()
