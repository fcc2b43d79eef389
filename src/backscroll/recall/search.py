"""A query -> the lines in a scope, ranked: by meaning and by words, fused.

A line's rank value is a sum of shares, each 1 for the best line:

    .5 x cosine          of the query and the line (its best passage; the line is embedded with its speaker's name)
    .5 x BM25            of the query's terms, speakers' names left out: they are in every other question
    .2 x the same sum    of the line before it, and of the line after it: answers stand next to questions
    .1 x the same sum    of the lines two before it and two after it
    .15                  where the question names one speaker and the line is hers
    .2                   where the question speaks of days and the line is of one of them

and a line of more than 64 tokens is divided by (tokens / 64) ** .4, since it takes the place of several others.
How the weights were found, and what they give on each set of data: docs/LOG.md.
Only this and embedding may ask others: the index is asked here. Knows nothing about budgets.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from backscroll.protocols import Index
from backscroll.terms import terms
from backscroll.tracing import stage
from backscroll.types import Candidates, Days, Query, Ranking, Scope

MAX_CANDIDATES = 512  # by each side; what stands below has never been in a context of 8,000 tokens
_ROLES = frozenset({"user", "assistant", "tool", "system", "developer"})

Column = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Weights:
    """What each share counts.

    Attributes:
        neighbors: of a line at distance 1, at distance 2 and so on.
        long_tokens, long_exponent: from how many tokens on a line is divided, and how much.
    """

    dense: float = 0.5
    lexical: float = 0.5
    neighbors: tuple[float, ...] = (0.2, 0.1)
    speaker: float = 0.15
    days: float = 0.2
    long_tokens: int = 64
    long_exponent: float = 0.4


WEIGHTS = Weights()


@stage("search")
def search(
    index: Index, scope: Scope, query: Query, fusion: Literal["hybrid", "dense"], shown: Collection[int] = ()
) -> Ranking:
    """Rank the lines of a scope.

    Args:
        index: where the lines' vectors and terms are.
        scope: which lines may be seen.
        query: with a vector, with terms, or with both.
        fusion: ``hybrid`` as above; ``dense`` by cosine alone.
        shown: rows of lines that are in the context already. They are not in the running, and the best of the others
            has the whole share: a prompt that is stored is nearest to itself.

    Returns: all candidates but those, best first; lines of equal rank in the order of the thread.
    """
    if fusion == "dense":
        found = index.search(scope, query.vector, (), MAX_CANDIDATES, reach=0)
        return _running(_ranked(found, found.dense), _are_among(found, shown))
    found, speakers = candidates(index, scope, query)
    is_shown = _are_among(found, shown)
    return _running(rank(_silenced(found, is_shown), query, speakers), is_shown)


def candidates(index: Index, scope: Scope, query: Query) -> tuple[Candidates, frozenset[str]]:
    """The lines worth ranking, and the one speaker whom the query names, if it names one."""
    speaking = index.speakers(scope)
    names = {term for speaker in speaking if speaker not in _ROLES for term in _terms_of(speaker)}
    asked = tuple(term for term in query.terms if term not in names)
    found = index.search(scope, query.vector, asked, MAX_CANDIDATES, reach=len(WEIGHTS.neighbors))
    return found, _named(speaking, query.terms)


def rank(found: Candidates, query: Query, speakers: frozenset[str], weights: Weights = WEIGHTS) -> Ranking:
    """Rank candidates by the sum above."""
    own = weights.dense * _share(found.dense) + weights.lexical * _share(found.lexical)
    around = [weight * _at_distance(found, own, i) for i, weight in enumerate(weights.neighbors, start=1)]
    value = sum(around, own)
    if speakers:
        value += weights.speaker * _is_by(found, speakers)
    if query.days:
        value += weights.days * _is_of(found, query.days)
    is_long = found.tokens > weights.long_tokens
    length = found.tokens[is_long].astype(np.float32) / weights.long_tokens
    value[is_long] /= length ** np.float32(weights.long_exponent)
    return _ranked(found, value)


def best_first(score: Column) -> NDArray[np.int64]:
    """Places by score; equal ones as they stand, which is in the order of family and position.

    Whole numbers are sorted, a score's bits in front of its place: a quarter of a stable argsort's time.
    """
    bits = (score + np.float32(0)).view(np.int32)  # -0 is 0
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # the order of the floats, also of those below 0
    keys = (~rising).astype(np.int64) << 32 | np.arange(len(score))
    keys.sort()
    return keys & 0xFFFFFFFF


def _are_among(found: Candidates, rows: Collection[int]) -> NDArray[np.bool_]:
    return np.isin(found.row, np.fromiter(rows, np.int64))


def _silenced(found: Candidates, are: NDArray[np.bool_]) -> Candidates:
    """The candidates, some of which are as if they had neither a vector nor a word."""
    return replace(found, dense=np.where(are, 0, found.dense), lexical=np.where(are, 0, found.lexical))


def _running(ranking: Ranking, are_out: NDArray[np.bool_]) -> Ranking:
    return replace(ranking, order=ranking.order[~are_out[ranking.order]])


def _named(speakers: tuple[str, ...], asked: tuple[str, ...]) -> frozenset[str]:
    """The one speaker whose whole name is in the question; none where two are."""
    named = [speaker for speaker in speakers if speaker not in _ROLES and _terms_of(speaker) <= set(asked)]
    return frozenset(named) if len(named) == 1 else frozenset()


def _share(column: Column) -> Column:
    """The column as shares of its best value; what is below 0 says nothing."""
    above = np.maximum(column, 0)
    best = above.max(initial=0)
    return above / best if best > 0 else above


def _at_distance(found: Candidates, own: Column, distance: int) -> Column:
    """The sum of what the two lines have that stand at a distance from each line, in its thread."""
    total = np.zeros_like(own)
    for step in range(1, distance + 1):  # lines between them may be no candidates
        apart = found.position[step:] - found.position[:-step] == distance
        is_there = apart & (found.family[step:] == found.family[:-step])
        total[step:] += own[:-step] * is_there
        total[:-step] += own[step:] * is_there
    return total


def _is_by(found: Candidates, speakers: frozenset[str]) -> Column:
    is_asked = np.array([speaker in speakers for speaker in found.speakers], np.float32)
    return is_asked[found.speaker]


def _is_of(found: Candidates, days: Sequence[Days]) -> Column:
    """1 for the lines of the days, by UTC."""
    said = found.created_at.astype("datetime64[s]").astype("datetime64[D]")
    years, months = said.astype("datetime64[Y]"), said.astype("datetime64[M]")
    named = {
        "year": years.astype(int) + 1970,
        "month": months.astype(int) % 12 + 1,
        "day": (said - months.astype("datetime64[D]")).astype(int) + 1,
    }
    is_of = np.zeros(len(said), np.bool_)
    for one in days:
        fits = np.ones(len(said), np.bool_)
        for part, values in named.items():
            asked = getattr(one, part)
            fits &= asked is None or values == asked
        if one.first is not None and one.last is not None:
            fits &= (said >= np.datetime64(one.first)) & (said <= np.datetime64(one.last))
        is_of |= fits
    return is_of.astype(np.float32)


def _ranked(found: Candidates, score: Column) -> Ranking:
    score = score.astype(np.float32, copy=False)
    return Ranking(candidates=found, score=score, order=best_first(score))


@lru_cache(maxsize=4_096)
def _terms_of(speaker: str) -> frozenset[str]:
    return frozenset(terms(speaker))
