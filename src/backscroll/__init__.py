"""Endless conversations for language models: every line kept, the best context that fits in a budget of tokens.

    append:   message -> check -> store (durable) -> embed (derived)
    context:  prompt -> query -> search -> threshold -> neighbors -> relevance buffer
                     -> anchors, summary, window -> assemble within max_tokens -> Context
    reply:    context -> LLM -> append(prompt, reply)

    >>> import backscroll
    >>> memory = backscroll.open(":memory:", embedder="hashing")
    >>> thread = memory.thread("support-42", user="alice")
    >>> _ = thread.append([{"role": "user", "content": "My fleet has 12 vans."},
    ...                    {"role": "assistant", "content": "Noted: 12 vans."}])
    >>> thread.context("How many vans do I have?", max_tokens=200).messages[-1]
    {'role': 'user', 'content': 'How many vans do I have?'}

Importing this loads nothing heavy: the names below are loaded when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from backscroll.api import open, open_async, prune, reembed
    from backscroll.asynchronous import AsyncMemory, AsyncReply, AsyncThread
    from backscroll.context import Context, Report
    from backscroll.embedders.hashing import HashingEmbedder
    from backscroll.errors import (
        BackscrollError,
        BudgetError,
        ContextTooLongError,
        CutOffReplyError,
        EmbedderError,
        EmbedderMismatchError,
        EmptyReplyError,
        ImportFileError,
        LLMError,
        LLMTimeoutError,
        LLMUnavailableError,
        MessageError,
        ModelNotFoundError,
        NotAStoreError,
        NotFoundError,
        StoreBusyError,
        StoreError,
    )
    from backscroll.llm.callables import CallableLLM
    from backscroll.llm.openai_compatible import OpenAILLM
    from backscroll.llm.scripted import ScriptedLLM, ScriptedReply
    from backscroll.memory import Memory, Thread
    from backscroll.reply import ReplyStream, Turn
    from backscroll.retry import Retry
    from backscroll.settings import PRESETS, Settings
    from backscroll.stores.in_memory import InMemoryStore
    from backscroll.tools import Tool, Tools
    from backscroll.tracing import Stopwatch, trace
    from backscroll.types import Hit, Line, Reply, Source, Summary, Usage

_HOMES = {
    "backscroll.api": ("open", "open_async", "prune", "reembed"),
    "backscroll.asynchronous": ("AsyncMemory", "AsyncReply", "AsyncThread"),
    "backscroll.context": ("Context", "Report"),
    "backscroll.embedders.hashing": ("HashingEmbedder",),
    "backscroll.errors": (
        "BackscrollError",
        "BudgetError",
        "ContextTooLongError",
        "CutOffReplyError",
        "EmbedderError",
        "EmbedderMismatchError",
        "EmptyReplyError",
        "ImportFileError",
        "LLMError",
        "LLMTimeoutError",
        "LLMUnavailableError",
        "MessageError",
        "ModelNotFoundError",
        "NotAStoreError",
        "NotFoundError",
        "StoreBusyError",
        "StoreError",
    ),
    "backscroll.llm.callables": ("CallableLLM",),
    "backscroll.llm.openai_compatible": ("OpenAILLM",),
    "backscroll.llm.scripted": ("ScriptedLLM", "ScriptedReply"),
    "backscroll.memory": ("Memory", "Thread"),
    "backscroll.reply": ("ReplyStream", "Turn"),
    "backscroll.retry": ("Retry",),
    "backscroll.settings": ("PRESETS", "Settings"),
    "backscroll.stores.in_memory": ("InMemoryStore",),
    "backscroll.tools": ("Tool", "Tools"),
    "backscroll.tracing": ("Stopwatch", "trace"),
    "backscroll.types": ("Hit", "Line", "Reply", "Source", "Summary", "Usage"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "PRESETS",
    "AsyncMemory",
    "AsyncReply",
    "AsyncThread",
    "BackscrollError",
    "BudgetError",
    "CallableLLM",
    "Context",
    "ContextTooLongError",
    "CutOffReplyError",
    "EmbedderError",
    "EmbedderMismatchError",
    "EmptyReplyError",
    "HashingEmbedder",
    "Hit",
    "ImportFileError",
    "InMemoryStore",
    "LLMError",
    "LLMTimeoutError",
    "LLMUnavailableError",
    "Line",
    "Memory",
    "MessageError",
    "ModelNotFoundError",
    "NotAStoreError",
    "NotFoundError",
    "OpenAILLM",
    "Reply",
    "ReplyStream",
    "Report",
    "Retry",
    "ScriptedLLM",
    "ScriptedReply",
    "Settings",
    "Source",
    "Stopwatch",
    "StoreBusyError",
    "StoreError",
    "Summary",
    "Thread",
    "Tool",
    "Tools",
    "Turn",
    "Usage",
    "open",
    "open_async",
    "prune",
    "reembed",
    "trace",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'backscroll' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
