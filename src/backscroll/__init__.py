"""Endless conversations for language models: every line kept, the best context that fits in a budget of tokens.

    append:   message -> check -> store (durable) -> embed (derived)
    context:  prompt -> query -> search -> threshold -> neighbors -> relevance buffer
                     -> anchors, summary, window -> assemble within max_tokens -> Context

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
    from backscroll.asynchronous import AsyncMemory, AsyncThread
    from backscroll.context import Context, Report
    from backscroll.embedders.hashing import HashingEmbedder
    from backscroll.errors import (
        BackscrollError,
        BudgetError,
        EmbedderError,
        EmbedderMismatchError,
        ImportFileError,
        MessageError,
        ModelNotFoundError,
        NotAStoreError,
        NotFoundError,
        StoreBusyError,
        StoreError,
    )
    from backscroll.memory import Memory, Thread
    from backscroll.settings import PRESETS, Settings
    from backscroll.stores.in_memory import InMemoryStore
    from backscroll.types import Hit, Line, Source

_HOMES = {
    "backscroll.api": ("open", "open_async", "prune", "reembed"),
    "backscroll.asynchronous": ("AsyncMemory", "AsyncThread"),
    "backscroll.context": ("Context", "Report"),
    "backscroll.embedders.hashing": ("HashingEmbedder",),
    "backscroll.errors": (
        "BackscrollError",
        "BudgetError",
        "EmbedderError",
        "EmbedderMismatchError",
        "ImportFileError",
        "MessageError",
        "ModelNotFoundError",
        "NotAStoreError",
        "NotFoundError",
        "StoreBusyError",
        "StoreError",
    ),
    "backscroll.memory": ("Memory", "Thread"),
    "backscroll.settings": ("PRESETS", "Settings"),
    "backscroll.stores.in_memory": ("InMemoryStore",),
    "backscroll.types": ("Hit", "Line", "Source"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__version__ = "0.1.0"
__all__ = [
    "PRESETS",
    "AsyncMemory",
    "AsyncThread",
    "BackscrollError",
    "BudgetError",
    "Context",
    "EmbedderError",
    "EmbedderMismatchError",
    "HashingEmbedder",
    "Hit",
    "ImportFileError",
    "InMemoryStore",
    "Line",
    "Memory",
    "MessageError",
    "ModelNotFoundError",
    "NotAStoreError",
    "NotFoundError",
    "Report",
    "Settings",
    "Source",
    "StoreBusyError",
    "StoreError",
    "Thread",
    "open",
    "open_async",
    "prune",
    "reembed",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'backscroll' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__"})
