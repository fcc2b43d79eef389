"""Ranked lines -> spans -> blocks: the lines themselves are read here, and only of those that may fit.

Asks the store for lines; knows nothing about budgets beyond how much is worth reading.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from backscroll.exchanges import atoms, exchanges
from backscroll.protocols import Index, Store
from backscroll.tracing import stage
from backscroll.types import FACTS_THREAD, Block, Line, Ranking, Span, ThreadKey

_AROUND = 16  # positions: how far a call's results, or an exchange, may reach from a recalled line
_LONG_TOKENS = 128  # from here on a line has several passages, and may be quoted in part


class Lines(Store, Index, Protocol):
    """What is asked here: lines, and where their passages are."""


def spans_of(ranking: Ranking, asked_at: int, max_tokens: float) -> list[Span]:
    """The best lines as spans of one line each, best first: until they have max_tokens tokens together."""
    found = ranking.candidates
    total = np.cumsum(found.tokens[ranking.order])
    worth = ranking.order[: int(np.searchsorted(total, max_tokens)) + 1]
    keys = [found.families[family] for family in found.family[worth]]
    columns = (found.position, ranking.score, found.dense)
    return [
        Span(key.user, key.thread, position, position, score, similarity, asked_at)
        for key, position, score, similarity in zip(keys, *(one[worth].tolist() for one in columns), strict=True)
    ]


@stage("gather")
def gather(store: Lines, spans: Sequence[Span], ranking: Ranking, asked_at: int, whole_exchanges: bool) -> list[Block]:
    """Read the lines of spans.

    Args:
        spans: best first.
        ranking: where the spans of this turn come from.
        asked_at: the position asked at now; spans of another are from the relevance buffer.
        whole_exchanges: whether each span grows to whole exchanges; to whole calls it grows in any case.

    Returns: blocks in the order of the spans; a span whose lines are gone is skipped.
    """
    found = ranking.candidates
    best = ranking.order[: len(spans)]  # each span of this turn is of one of the best lines
    rows = found.row[best].tolist()
    stands = zip(found.family[best].tolist(), found.position[best].tolist(), strict=True)
    row_of = {(*found.families[family], at): row for (family, at), row in zip(stands, rows, strict=True)}
    place_of = dict(zip(rows, best.tolist(), strict=True))
    asked = [row_of.get((one.user, one.family, one.first)) if one.first == one.last else None for one in spans]
    lines = {line.row: line for line in store.fetch([row for row in asked if row is not None])}
    blocks = []
    for span, row in zip(spans, asked, strict=True):
        line = None if row is None else lines.get(row)
        read = [line] if line else _read(store, span, 0)
        if (whole_exchanges and span.family != FACTS_THREAD) or any(_is_call(each) for each in read):
            whole = whole_units(span, _read(store, span, _AROUND), whole_exchanges)
            span, read = whole, _read(store, whole, 0)
        if read:
            passage = _passage(store, read, ranking, place_of)
            blocks.append(Block(span, tuple(read), is_buffered=span.asked_at != asked_at, passage=passage))
    return blocks


def whole_units(span: Span, around: Sequence[Line], whole_exchanges: bool) -> Span:
    """The span grown so that no call in it lacks a result, and where asked to whole exchanges.

    Args:
        around: the span's lines and some on both sides, in order.
    """
    split = exchanges if whole_exchanges else atoms
    units = split([line.message.payload for line in around])
    touched = [unit for unit in units if any(span.first <= around[place].position <= span.last for place in unit)]
    if not touched:
        return span
    return span._replace(first=around[touched[0][0]].position, last=around[touched[-1][-1]].position)


def _read(store: Lines, span: Span, around: int) -> list[Line]:
    return store.read(ThreadKey(span.user, span.family), max(0, span.first - around), span.last + around)


def _is_call(line: Line) -> bool:
    return line.message.role == "tool" or bool(line.message.payload.get("tool_calls"))


def _passage(store: Lines, lines: Sequence[Line], ranking: Ranking, place_of: dict[int, int]) -> tuple[int, int] | None:
    """Where in a long line the match is; None for short ones and for several."""
    if len(lines) != 1 or lines[0].tokens < _LONG_TOKENS or lines[0].row not in place_of:
        return None
    return store.passage(lines[0].row, int(ranking.candidates.passage[place_of[lines[0].row]]))
