"""How Python runs in a server's process, where the event loop must not wait for the threads beside it."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# After which a thread gives Python's lock to one that waits. By 5 ms, Python's own, three threads that compute made the
# loop late by 90 ms at p99; by this one by 20, and they did as much.
SWITCH_SECONDS = 0.0005
# Full collections hold all threads, 26 ms with 150 users in RAM: one for so many of the generation below, not for 10.
COLLECTIONS = 100


@contextmanager
def responsive() -> Iterator[None]:
    """Until it ends, threads give way soon, and full collections are rare and leave out what is loaded by now."""
    before, thresholds = sys.getswitchinterval(), gc.get_threshold()
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(*thresholds[:2], COLLECTIONS)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(before)
        gc.unfreeze()
