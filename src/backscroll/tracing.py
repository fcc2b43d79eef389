"""One hook on every stage: who wants to know what a context spends its time on, or to see it in a tracer.

A hook is a function from a stage's name to a context manager, which stands round the stage; `Stopwatch` is one, and a
tracer of OpenTelemetry has one (`tracer.start_as_current_span`). Without a hook a stage costs a tenth of a
microsecond more. Knows nothing about the stages.

    >>> with trace(Stopwatch()) as watch:
    ...     stage("search")(sorted)([2, 1])
    [1, 2]
    >>> list(watch.seconds)
    ['search']
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Hook = Callable[[str], AbstractContextManager[Any]]
Given = TypeVar("Given", bound=Hook)

_hook: ContextVar[Hook | None] = ContextVar("backscroll stages", default=None)


def stage(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let the hook in force, if there is one, stand round every call of a function."""

    def named(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def staged(*args: P.args, **kwargs: P.kwargs) -> R:
            hook = _hook.get()
            if hook is None:
                return function(*args, **kwargs)
            with hook(name):
                return function(*args, **kwargs)

        return staged

    return named


@contextmanager
def trace(hook: Given) -> Iterator[Given]:
    """While it lasts, call a hook round every stage that this thread, or this task, runs.

    Args:
        hook: from a stage's name to a context manager. Stages that are parts of another are called inside it.
    """
    token = _hook.set(hook)
    try:
        yield hook
    finally:
        _hook.reset(token)


class Stopwatch:
    """A hook that keeps how long each stage took.

    Args:
        clock: seconds from some point on; `time.thread_time` counts the work of this thread alone, which on a busy
            machine tells more.

    Attributes:
        seconds: stage -> seconds of each of its calls, its parts included; stages in the order of their first end.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Start with no stage."""
        self.seconds: dict[str, list[float]] = {}
        self._clock = clock

    @contextmanager
    def __call__(self, stage: str) -> Generator[None]:
        """Time a stage."""
        started = self._clock()
        try:
            yield
        finally:
            self.seconds.setdefault(stage, []).append(self._clock() - started)

    def total(self, stage: str) -> float:
        """Seconds of all calls of a stage; 0 for one that was not run."""
        return sum(self.seconds.get(stage, ()))
