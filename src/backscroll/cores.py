"""How many processor cores there are to compute on. Knows nothing about what is computed."""

import os


def usable_cores() -> int:
    """Those that this process may use: a container or taskset may allow fewer than there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
