"""Hits -> spans: each hit with the lines around it in its thread, overlapping ones joined.

By position, not by time. Knows nothing about similarity or budgets.
"""

from collections.abc import Iterable

from backscroll.types import FACTS_THREAD, Span


def widen(spans: Iterable[Span], before: int, after: int) -> list[Span]:
    """Each span with the positions around it; those that touch become one, at the rank of the better.

    A fact has no neighbors.

    Args:
        spans: of single lines, best first.
        before, after: positions to add on each side.

    Returns: best first, no position twice.
    """
    if before == after == 0:
        return list(spans)
    joined: list[Span] = []
    for span in spans:
        wide = (
            span
            if span.family == FACTS_THREAD
            else span._replace(first=max(0, span.first - before), last=span.last + after)
        )
        touching = [other for other in joined if wide.overlaps(other)]
        if not touching:
            joined.append(wide)
            continue
        best = touching[0]
        everything = [*touching, wide]
        whole = best._replace(first=min(s.first for s in everything), last=max(s.last for s in everything))
        joined = [whole if other is best else other for other in joined if other is best or other not in touching]
    return joined
