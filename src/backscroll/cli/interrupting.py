"""Ctrl-C where it does no harm: between two batches instead of within one, or once in what cleans up after itself."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def noted_interrupts() -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C only be noted; the second one stops at once.

    Yields: what tells whether it was pressed.
    """
    pressed: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt
        pressed.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: bool(pressed)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def one_interrupt() -> Iterator[None]:
    """Let the first Ctrl-C stop at once, and later ones do nothing: what it leaves is stored in peace."""

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
