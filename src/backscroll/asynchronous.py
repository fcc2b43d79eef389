"""The async face: every method of Memory and Thread that does work, awaited, and done in a thread.

A thin delegate; it decides nothing.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from datetime import datetime
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast

from backscroll.memory import DEFAULT_USER, Memory, Prompt, ScopeName, Thread
from backscroll.reply import ReplyStream, Turn
from backscroll.tools import GivenTools

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

    def reply(
        self,
        prompt: Prompt = None,
        *,
        max_tokens: int,
        tools: GivenTools = None,
        keep_prompt: bool = False,
        now: datetime | str | None = None,
        scope: ScopeName = "user",
    ) -> "AsyncReply":
        """As `Thread.reply`: await it for the turn, or iterate over it by ``async for`` for a stream."""
        return AsyncReply(
            partial(
                self._wrapped.reply,
                prompt,
                max_tokens=max_tokens,
                tools=tools,
                keep_prompt=keep_prompt,
                now=now,
                scope=scope,
            )
        )

    lines = _awaited(Thread.lines)
    summaries = _awaited(Thread.summaries)
    pin = _awaited(Thread.pin)
    unpin = _awaited(Thread.unpin)
    delete = _awaited(Thread.delete)


class AsyncReply:
    """A reply that is asked for when it is awaited or iterated over. Made by `AsyncThread.reply`.

    Attributes:
        turn: the prompt and its reply as they were stored; None until then.
    """

    def __init__(self, ask: Callable[..., Turn | ReplyStream]) -> None:
        """Take what asks, given whether the reply comes as a stream."""
        self.turn: Turn | None = None
        self._ask = ask

    def __await__(self) -> Generator[Any, None, Turn]:
        """The turn."""
        return self._whole().__await__()

    async def __aiter__(self) -> AsyncGenerator[str, None]:
        """The pieces of the reply's text; leaving before their end stores what was received."""
        stream = cast(ReplyStream, await asyncio.to_thread(self._ask, stream=True))
        try:
            while (piece := await asyncio.to_thread(next, stream, None)) is not None:
                yield piece
        finally:
            await asyncio.to_thread(stream.close)
            self.turn = stream.turn

    async def _whole(self) -> Turn:
        self.turn = cast(Turn, await asyncio.to_thread(self._ask, stream=False))
        return self.turn


class AsyncMemory:
    """A `Memory` whose methods are awaited. Made by `backscroll.open_async`."""

    def __init__(self, memory: Memory) -> None:
        """Take the memory that does the work."""
        self._wrapped = memory

    def thread(self, name: str, user: str = DEFAULT_USER, persona: str | None = None) -> AsyncThread:
        """A thread of a user; it is made when the first message is stored."""
        return AsyncThread(self._wrapped.thread(name, user, persona))

    threads = _awaited(Memory.threads)
    remember = _awaited(Memory.remember)
    facts = _awaited(Memory.facts)
    forget = _awaited(Memory.forget)
    delete = _awaited(Memory.delete)
    embed = _awaited(Memory.embed)
    reembed = _awaited(Memory.reembed)
    summarize = _awaited(Memory.summarize)
    wait = _awaited(Memory.wait)
    check = _awaited(Memory.check)
    close = _awaited(Memory.close)

    async def __aenter__(self) -> "AsyncMemory":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()
