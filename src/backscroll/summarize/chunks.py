"""A thread's lines -> chunks of whole exchanges -> the runs of chunks that are told as one summary each.

The thread is cut on boundaries that depend on its lines alone, `CHUNK_TOKENS` each. Four neighbors in a row are told as
one when the fourth is there, four of those as one again, so that a long thread has a few of each level: what is old is
told in fewer words, and what is new is only appended. Knows nothing about how a run is told.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from backscroll.exchanges import atoms, exchanges
from backscroll.types import Line, Summary

CHUNK_TOKENS = 500
FAN_IN = 4

Run: TypeAlias = Sequence[Summary]  # of single chunks in a row: 1, 4, 16 …


def chunks(lines: Sequence[Line]) -> list[Sequence[Line]]:
    """The whole chunks in lines that begin where a chunk begins; the open one at the end is left out.

    A chunk ends where an exchange does; one that would be twice too long ends at any message, or call with results.
    """
    whole: list[Sequence[Line]] = []
    start = 0
    payloads = [line.message.payload for line in lines]
    opening = {exchange.start for exchange in exchanges(payloads)}
    for atom in atoms(payloads):
        held = lines[atom.start].offset - lines[start].offset
        if held >= (CHUNK_TOKENS if atom.start in opening else 2 * CHUNK_TOKENS):
            whole.append(lines[start : atom.start])
            start = atom.start
    return whole


def cover(parts: Run, before: int) -> list[Run]:
    """The fewest runs that hold all whole chunks before a position, each of a power of four.

    Args:
        parts: the summaries of single chunks, in order, without a gap.
        before: position where the window starts.
    """
    left = [part for part in parts if part.last < before]
    runs: list[Run] = []
    size = 1
    while size * FAN_IN <= len(left):
        size *= FAN_IN
    while size:
        while len(left) >= size:
            runs.append(left[:size])
            left = left[size:]
        size //= FAN_IN
    return runs


def quarters(run: Run) -> list[Run]:
    """The four runs that a run is made of; none for a single chunk."""
    size = len(run) // FAN_IN
    return [run[start : start + size] for start in range(0, len(run), size)] if size else []


def split(run: Run, is_made: Callable[[Run], bool]) -> list[Run]:
    """The run, or its quarters where it is not made itself and some of them are, and so on down."""
    if is_made(run):
        return [run]
    pieces = [piece for quarter in quarters(run) for piece in split(quarter, is_made)]
    return pieces if any(is_made(piece) for piece in pieces) else [run]


def span_of(run: Run) -> tuple[int, int]:
    """The first and the last position of a run."""
    return run[0].first, run[-1].last
