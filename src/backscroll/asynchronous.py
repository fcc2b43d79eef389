"""The async face: every method of Memory and Thread that does work, awaited, and done in a thread.

A thin delegate; it decides nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from types import TracebackType
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from backscroll.memory import DEFAULT_USER, Memory, Thread

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


class _Delegate(Protocol[S]):
    _wrapped: S


def _awaited(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[_Delegate[S], P], Awaitable[R]]:
    """The method as a coroutine function that runs it in a thread, with its signature and docstring."""

    @wraps(method)
    async def run(self: _Delegate[S], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await asyncio.to_thread(method, self._wrapped, *args, **kwargs)

    return run


class AsyncThread:
    """A `Thread` whose methods are awaited. Made by `AsyncMemory.thread`."""

    def __init__(self, thread: Thread) -> None:
        """Take the thread that does the work."""
        self._wrapped = thread
        self.key = thread.key

    append = _awaited(Thread.append)
    sync = _awaited(Thread.sync)
    context = _awaited(Thread.context)
    recall = _awaited(Thread.recall)
    lines = _awaited(Thread.lines)
    pin = _awaited(Thread.pin)
    unpin = _awaited(Thread.unpin)
    delete = _awaited(Thread.delete)


class AsyncMemory:
    """A `Memory` whose methods are awaited. Made by `backscroll.open_async`."""

    def __init__(self, memory: Memory) -> None:
        """Take the memory that does the work."""
        self._wrapped = memory

    def thread(self, name: str, user: str = DEFAULT_USER) -> AsyncThread:
        """A thread of a user; it is made when the first message is stored."""
        return AsyncThread(self._wrapped.thread(name, user))

    threads = _awaited(Memory.threads)
    delete = _awaited(Memory.delete)
    embed = _awaited(Memory.embed)
    reembed = _awaited(Memory.reembed)
    check = _awaited(Memory.check)
    close = _awaited(Memory.close)

    async def __aenter__(self) -> "AsyncMemory":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
