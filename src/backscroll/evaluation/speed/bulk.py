"""How much of an embedder's own speed is left when many lines are taken in: checked, stored, embedded, vectors kept.

The same texts in the same process, in turns: a thread of lines is taken in, then its texts are embedded alone.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from backscroll import api
from backscroll.evaluation.speed.history import THREAD_LINES
from backscroll.protocols import Embedder
from backscroll.types import Message, Vectors

_MAX_LINES = 1_500
_USER = "user"


@dataclass(frozen=True, slots=True)
class Bulk:
    """The figures of taking in many lines.

    Attributes:
        lines: how many.
        taken_in: of them a second, appended in parts of THREAD_LINES, with their vectors in the store.
        alone: of them a second, their texts embedded at once, thread by thread, and nothing else.
        share: taken_in / alone of a turn, the median.
    """

    lines: int
    taken_in: float
    alone: float
    share: float


class _Listening:
    """An embedder that keeps the texts that another one is asked for."""

    def __init__(self, embedder: Embedder) -> None:
        self.name = embedder.name
        self.dimension = embedder.dimension
        self.max_tokens = embedder.max_tokens
        self.texts: list[str] = []
        self._embedder = embedder

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += texts
        return self._embedder.embed(texts)

    def close(self) -> None:
        """Leave the other one open."""


def bulk(messages: Sequence[Message], embedder: Embedder, folder: Path) -> Bulk:
    """Take in the first messages of a history by a store of its own. Raises: StoreError, EmbedderError."""
    said = messages[:_MAX_LINES]
    listening = _Listening(embedder)
    turns = []
    with api.open(folder / "bulk.db", embedder=listening) as memory:
        for first in range(0, len(said), THREAD_LINES):
            thread = memory.thread(f"thread {first}", _USER)
            listening.texts.clear()
            started = time.perf_counter()
            thread.append(said[first : first + THREAD_LINES])
            stored = time.perf_counter()
            embedder.embed(listening.texts)
            turns.append((stored - started, time.perf_counter() - stored))
    taken_in, alone = map(sum, zip(*turns, strict=True))
    share = median(alone / taken_in for taken_in, alone in turns)
    return Bulk(len(said), len(said) / taken_in, len(said) / alone, share)
