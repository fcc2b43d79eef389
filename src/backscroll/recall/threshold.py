"""Hits below the minimum similarity go: unrelated lines do not become related by being the best there are.

Knows nothing about where the minimum comes from; each embedder needs its own.
"""

import numpy as np
from numpy.typing import NDArray

from backscroll.types import Candidates, Ranking

NEAR_POSITIONS = 2  # what an answer refers to stands this near, whatever words it uses


def threshold(ranking: Ranking, min_similarity: float, max_lines: int | None, keep_words: bool) -> Ranking:
    """Keep what is at or above the minimum.

    Args:
        min_similarity: cosine, -1 to 1; a line at it stays.
        max_lines: keep only so many of the best; None keeps all.
        keep_words: whether a line below it stays where it shares a term with the query, or stands within
            NEAR_POSITIONS of a line that stays.
    """
    found = ranking.candidates
    is_related = found.dense >= min_similarity
    if keep_words:
        is_related = _with_neighbors(found, is_related | (found.lexical > 0))
    order = ranking.order[is_related[ranking.order]]
    return Ranking(candidates=found, score=ranking.score, order=np.ascontiguousarray(order[:max_lines]))


def _with_neighbors(found: Candidates, is_related: NDArray[np.bool_]) -> NDArray[np.bool_]:
    near = is_related.copy()
    for step in range(1, NEAR_POSITIONS + 1):
        close = found.position[step:] - found.position[:-step] <= NEAR_POSITIONS
        close &= found.family[step:] == found.family[:-step]
        near[step:] |= close & is_related[:-step]
        near[:-step] |= close & is_related[step:]
    return near
