"""The stored lines that have no vectors yet -> unit vectors, in batches.

A line is embedded with its speaker's name in front, where it has one beside its role: that alone lifts the evidence
found on LoCoMo at 2,000 tokens from .61 to .79 (docs/LOG.md). A long text is cut into passages of whole sentences,
since the model sees only its first words; the line is as near as its nearest passage.
Knows nothing about ranking.
"""

import re
from collections.abc import Callable
from itertools import chain, pairwise

from backscroll.errors import EmbedderMismatchError
from backscroll.protocols import Embedder, Index
from backscroll.tracing import stage
from backscroll.types import Line
from backscroll.vectors import embedded

BATCH_LINES = 256
_WHOLE_BYTES, _PASSAGE_BYTES = 1000, 700  # about 250 and 175 tokens: what MiniLM sees at once is 256
_BREAKS = re.compile(r"(?<=[.!?。！？])\s+|\n+|(?<=[。！？])")
_MAX_PASSAGES = 64  # of one line: a pasted book is found by its beginning and its words

Progress = Callable[[int], None]


@stage("embed lines")
def embed_pending(index: Index, embedder: Embedder, user: str | None, progress: Progress | None = None) -> int:
    """Embed the stored lines that have no vectors yet.

    Args:
        user: whose lines; None for everybody's.
        progress: told the number of lines after each batch.

    Returns: how many lines were embedded.
    Raises: EmbedderError; what was embedded before it is kept. EmbedderMismatchError.
    """
    done = 0
    while pending := index.unembedded(user, BATCH_LINES):
        _claim(index, embedder)
        found = [passages(line.message.text) for line in pending]
        texts = [_said(line, start, end) for line, spans in zip(pending, found, strict=True) for start, end in spans]
        index.add_vectors([line.row for line in pending], found, embedded(embedder, texts))
        done += len(pending)
        if progress:
            progress(len(pending))
        if len(pending) < BATCH_LINES:
            break
    return done


def _claim(index: Index, embedder: Embedder) -> None:
    """Stamp the vectors with the embedder that makes them; those of two may not be mixed."""
    stored = index.setting("embedder")
    if stored is None:
        index.put_setting("embedder", embedder.name)
    elif stored != embedder.name:
        raise EmbedderMismatchError(stored, embedder.name, "this store")


def passages(text: str) -> list[tuple[int, int]]:
    """Cut a text into passages of whole sentences, as (start, end) characters; a short one is one passage.

    >>> passages("One line.")
    [(0, 9)]
    """
    per_byte = len(text) / max(1, len(text.encode()))  # a Chinese character has 3 bytes and is a token of its own
    if len(text) <= _WHOLE_BYTES * per_byte:
        return [(0, len(text))]
    longest = max(1, int(_PASSAGE_BYTES * per_byte))
    found: list[tuple[int, int]] = []
    start = last = 0
    for end in _ends(text, longest):
        if end - start > longest and last > start:
            found.append((start, last))
            start = last
        last = end
    found.append((start, len(text)))
    return found[:_MAX_PASSAGES]


def _ends(text: str, longest: int) -> list[int]:
    """Where sentences end; a stretch without an end is cut where it gets too long."""
    bounds = [0, *(match.end() for match in _BREAKS.finditer(text)), len(text)]
    cuts = (range(start, end, longest)[1:] for start, end in pairwise(bounds))
    return sorted({*bounds[1:], *chain.from_iterable(cuts)})


def _said(line: Line, start: int, end: int) -> str:
    text = line.message.text[start:end]
    return f"{line.speaker}: {text}" if line.message.payload.get("name") else text
