"""Rankings of several queries -> one, by reciprocal rank fusion. With one query it is that query's ranking.

Source: Cormack, Clarke and Büttcher 2009: the score of a line is the sum of 1 / (60 + its rank) over the rankings.
"""

from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from backscroll.types import Candidates, Ranking

_K = 60
Name = TypeVar("Name", bound=Hashable)


def fuse(rankings: Sequence[Ranking]) -> Ranking:
    """One ranking of all lines that are in any of them; the best cosine and the best BM25 of each line stay.

    Args:
        rankings: not empty.
    """
    if len(rankings) == 1:
        return rankings[0]
    found = [ranking.candidates for ranking in rankings]
    families, family = _renamed([(one.families, one.family) for one in found])
    speakers, speaker = _renamed([(one.speakers, one.speaker) for one in found])
    rows = np.concatenate([one.row for one in found])
    dense = np.concatenate([one.dense for one in found])
    position = np.concatenate([one.position for one in found])
    nearest_first = np.lexsort((-dense, rows, position, family))  # of each line, where it is nearest
    _, first = np.unique(rows[nearest_first], return_index=True)
    kept = nearest_first[np.sort(first)]  # by family and position
    score, lexical = np.zeros(len(kept)), np.zeros(len(kept))
    place_of = {int(row): place for place, row in enumerate(rows[kept])}
    for ranking in rankings:
        places = np.array([place_of[int(row)] for row in ranking.candidates.row], dtype=np.int64)
        lexical[places] = np.maximum(lexical[places], ranking.candidates.lexical)
        score[places[ranking.order]] += 1 / (_K + 1 + np.arange(len(ranking.order)))
    merged = Candidates(
        row=rows[kept],
        family=family[kept],
        position=position[kept],
        tokens=np.concatenate([one.tokens for one in found])[kept],
        speaker=speaker[kept],
        is_user=np.concatenate([one.is_user for one in found])[kept],
        created_at=np.concatenate([one.created_at for one in found])[kept],
        dense=dense[kept],
        lexical=lexical.astype(np.float32),
        passage=np.concatenate([one.passage for one in found])[kept],
        families=families,
        speakers=speakers,
    )
    return Ranking(merged, score.astype(np.float32), np.argsort(-score, kind="stable").astype(np.int64))


def _renamed(parts: Sequence[tuple[tuple[Name, ...], NDArray[np.int32]]]) -> tuple[tuple[Name, ...], NDArray[np.int32]]:
    """Codes of several name lists as codes of one."""
    names = tuple(dict.fromkeys(name for known, _ in parts for name in known))
    place = {name: i for i, name in enumerate(names)}
    codes = [np.array([place[name] for name in known], dtype=np.int32)[column] for known, column in parts]
    return names, np.concatenate(codes)
