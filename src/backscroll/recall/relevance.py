"""The relevance buffer: what was recalled at the last turns stays for the next ones, first in, first out.

A value in, a value out: the store keeps the blocks, so that restarts and several processes change nothing.
Knows nothing about where blocks are kept.
"""

from collections.abc import Sequence

from backscroll.types import Span

DECAY_PER_TURN = 0.5  # of the rank value: a line recalled a turn ago has to give way to a good new one


def relevance(buffered: Sequence[Span], found: Sequence[Span], max_blocks: int) -> list[Span]:
    """Put what was found into the buffer and let the oldest blocks fall out.

    Args:
        buffered: blocks of earlier turns, oldest first; within a turn best first.
        found: spans of this turn, best first.
        max_blocks: how many buffered blocks stay beside the spans of this turn.

    Returns: spans of this turn and what stays of the earlier ones, best first by their decayed rank values.
    """
    found_in: dict[tuple[str, str], list[Span]] = {}
    for span in found:
        found_in.setdefault((span.user, span.family), []).append(span)
    fresh = [span for span in buffered if not _is_held(span, found_in.get((span.user, span.family), ()))]
    turns = sorted({span.asked_at for span in fresh}, reverse=True)
    room = max(0, max_blocks - min(len(found), max_blocks // 2))
    kept: list[tuple[float, Span]] = []
    for age, asked_at in enumerate(turns, start=1):
        of_turn = [span for span in fresh if span.asked_at == asked_at]
        kept.extend((span.score * DECAY_PER_TURN**age, span) for span in of_turn[: room - len(kept)])
        if len(kept) >= room:
            break
    ranked = [(span.score, span) for span in found] + kept
    ranked.sort(key=lambda pair: -pair[0])
    return [span for _, span in ranked]


def _is_held(span: Span, others: Sequence[Span]) -> bool:
    """Whether all its lines are in another of its thread; one that only touches it still has something to tell."""
    return any(other.first <= span.first and span.last <= other.last for other in others)
