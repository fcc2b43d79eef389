"""Search over one user's columns: cosine and BM25 of the lines in a scope, and the lines around the best.

BM25 is exact. So is every cosine that comes out; where a user has many vectors, those that may come out are chosen by
their signs first. Knows nothing about files.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backscroll.errors import StoreError
from backscroll.stores.columns import Columns, View, Visible
from backscroll.stores.matrix import Matrix
from backscroll.types import Candidates, Scope, ThreadKey, Vector

K1 = 1.2  # how soon a repeated term stops counting
B = 0.75  # how much a long line's terms count less
_ABSENT = -2.0  # below every cosine: a line without vectors is not found by them
# Vectors whose cosine is computed. Where there are more, those whose signs differ least from the query's are taken: of
# the 100 nearest of 94,000 real vectors 99.8 % are among them, of the 512 nearest 96 % (docs/LOG.md).
_MAX_EXACT = 4_096

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]


def search(
    columns: Columns, scope: Scope, vector: Vector | None, terms: Sequence[str], max_lines: int, reach: int
) -> Candidates:
    """The `max_lines` best lines of the scope on each side, and those within `reach` positions of them.

    Args:
        max_lines: at least 1; a scope of no more lines is returned whole.
    """
    if vector is not None and columns.matrix is not None and columns.matrix.dimension != len(vector):
        raise StoreError(
            f"the store's vectors have {columns.matrix.dimension} numbers, the query's {len(vector)}: open the store "
            "with the embedder that made them, or run `backscroll reembed`"
        )
    view, visible = _in_scope(columns, scope)
    lexical = bm25(columns, view, terms)
    cosines = None if vector is None or columns.matrix is None else _Cosines(columns.matrix, vector)
    if visible.count > max_lines:
        by_dense = _nearest(columns, visible, cosines, max_lines)
        by_terms = best(lexical if visible.mask is None else np.where(visible.mask, lexical, 0), 0, max_lines)
        around = view.near(np.concatenate([by_dense, by_terms]), columns.position.values, reach)
        chosen = around if visible.mask is None else around[visible.mask[around]]
    else:
        chosen = np.arange(visible.count) if visible.mask is None else np.flatnonzero(visible.mask)
    chosen = chosen[np.argsort(columns.places(chosen))]
    dense, passage = _similarities(columns, chosen, cosines)
    family = columns.family.values[chosen]
    is_first = np.diff(family, prepend=-1) != 0
    return Candidates(
        row=columns.row.values[chosen],
        family=np.cumsum(is_first, dtype=np.int32) - 1,
        position=columns.position.values[chosen],
        tokens=columns.tokens.values[chosen],
        speaker=columns.speaker.values[chosen],
        is_user=columns.role.values[chosen] == columns.roles.get("user", -1),
        created_at=columns.created_at.values[chosen],
        dense=dense,
        lexical=lexical[chosen],
        passage=passage,
        families=tuple([columns.families[code] for code in family[is_first].tolist()]),
        speakers=tuple(columns.speakers),
    )


def bm25(columns: Columns, view: View, terms: Sequence[str]) -> Floats:
    """BM25 of all the user's lines, by the statistics of the lines in the view; (n,), 0 outside the view.

    Source: Robertson & Zaragoza, The Probabilistic Relevance Framework (2009), eq. 3.15, with Lucene's idf,
    log(1 + (N - df + .5) / (df + .5)), which is never negative.
    """
    mask, lengths = view.mask.values, columns.length.values
    scores = np.zeros(len(mask), np.float32)
    is_whole = view.count == len(mask)
    for term in dict.fromkeys(terms):
        lines, frequencies = columns.index.postings(term)
        if not is_whole:
            inside = mask[lines]
            lines, frequencies = lines[inside], frequencies[inside]
        if len(lines):
            idf = np.log1p((view.count - len(lines) + 0.5) / (len(lines) + 0.5))
            often = frequencies.astype(np.float32)
            shares = lengths[lines] * np.float32(K1 * B / view.mean_length)
            scores[lines] += np.float32(idf * (K1 + 1)) * often / (often + (shares + np.float32(K1 * (1 - B))))
    return scores


def best(scores: Floats, floor: float, max_lines: int) -> Numbers:
    """Numbers of the highest scores above `floor`; of equal ones the newest."""
    above = np.flatnonzero(scores > floor)
    if len(above) <= max_lines:
        return above
    found = scores[above]
    least = np.partition(found, -max_lines)[-max_lines]
    higher = above[found > least]
    return np.concatenate([higher, above[found == least][len(higher) - max_lines :]])


def near(places: Numbers, found: Numbers, reach: int) -> NDArray[np.bool_]:
    """Which of the sorted places are within `reach` of a found one."""
    steps = np.zeros(len(places) + 1, np.int64)
    np.add.at(steps, np.searchsorted(places, found - reach, "left"), 1)
    np.add.at(steps, np.searchsorted(places, found + reach, "right"), -1)
    return np.cumsum(steps[:-1]) > 0


def speakers(columns: Columns, scope: Scope) -> list[str]:
    """Who speaks in the scope, in the order of their first lines."""
    _, visible = _in_scope(columns, scope)
    names = list(columns.speakers)
    return [names[code] for code in visible.speakers]


def apart(found: Candidates) -> Candidates:
    """The same with each line in a family of its own, so that none has neighbors."""
    families = tuple(found.families[code] for code in found.family)
    return replace(found, family=np.arange(len(found.row), dtype=np.int32), families=families)


def merge(found: Sequence[Candidates], max_lines: int, reach: int) -> Candidates:
    """The best of several users' candidates; each keeps the scores of its own user's search.

    Across users a line is found by its vector only where the cosine is above 0.
    """
    if len(found) == 1:
        return found[0]
    families: list[ThreadKey] = []
    speakers: list[str] = []
    columns: dict[str, list[NDArray[Any]]] = {name: [] for name in _ARRAYS}
    for one in found:
        for name in _ARRAYS:
            shift = {"family": len(families), "speaker": len(speakers)}.get(name, 0)
            columns[name].append(getattr(one, name) + shift if shift else getattr(one, name))
        families.extend(one.families)
        speakers.extend(one.speakers)
    if not found:
        return _EMPTY
    together = Candidates(
        **{name: np.concatenate(parts) for name, parts in columns.items()},
        families=tuple(families),
        speakers=tuple(speakers),
    )
    if len(together.row) <= max_lines:
        return together
    places = (together.family.astype(np.int64) << 32) + together.position
    numbers = np.union1d(best(together.dense, 0, max_lines), best(together.lexical, 0, max_lines))
    kept = near(places, places[numbers], reach)
    return Candidates(
        **{name: getattr(together, name)[kept] for name in _ARRAYS},
        families=together.families,
        speakers=together.speakers,
    )


def _in_scope(columns: Columns, scope: Scope) -> tuple[View, Visible]:
    """The lines that the statistics are taken from, and which of them may be found."""
    if scope.thread is None:
        view = columns.view()
        return view, columns.visible(view, scope.roles)
    thread_id = columns.thread_ids.get(scope.thread)
    if thread_id is None:
        return columns.view(), Visible(np.zeros(len(columns.row.values), np.bool_), 0, ())
    view = columns.view_with(thread_id)
    visible = columns.visible(view, scope.roles)
    mask = columns.family.values == columns.family_of(thread_id)
    mask &= view.mask.values if visible.mask is None else visible.mask
    spoken = np.flatnonzero(np.bincount(columns.speaker.values[mask])).tolist()
    return view, Visible(mask, int(np.count_nonzero(mask)), tuple(spoken))


class _Cosines:
    """The cosines of a query and passages; of all at once, where they are few, and each is computed once."""

    def __init__(self, matrix: Matrix, vector: Vector) -> None:
        self.are_few = len(matrix) <= 2 * _MAX_EXACT
        self._matrix = matrix
        self._vector = vector
        self._known = np.arange(len(matrix) if self.are_few else 0)  # ascending
        self._cosines = matrix.similarities(vector, None if self.are_few else self._known)

    def near(self, among: Numbers | None) -> Numbers | None:
        """Those of some passages, or of all, that may be the nearest."""
        if self.are_few or (len(self._matrix) if among is None else len(among)) <= _MAX_EXACT:
            return among
        return self._matrix.nearest(self._vector, _MAX_EXACT, among)

    def of(self, numbers: Numbers | None) -> Floats:
        """The cosine of each of some passages, or of all."""
        if self.are_few or numbers is None:
            return self._cosines if numbers is None else self._cosines[numbers]
        if not len(self._known):
            self._known, self._cosines = numbers, self._matrix.similarities(self._vector, numbers)
            return self._cosines
        places = np.minimum(np.searchsorted(self._known, numbers), len(self._known) - 1)
        found = self._cosines[places]
        missing = np.flatnonzero(self._known[places] != numbers)
        found[missing] = self._matrix.similarities(self._vector, numbers[missing])
        return found


def _nearest(columns: Columns, visible: Visible, cosines: _Cosines | None, max_lines: int) -> Numbers:
    """Numbers of the visible lines with the nearest passages."""
    if cosines is None:
        return np.empty(0, np.int64)
    among = cosines.near(None if visible.mask is None else columns.passages_in(visible.mask))
    similarities = cosines.of(among)
    groups, begins = columns.groups_of(among)
    lines = columns.group_line.values[groups]
    best_of = similarities if columns.has_single_passages else np.maximum.reduceat(similarities, begins)
    if np.any(lines[1:] < lines[:-1]):
        newest_last = np.argsort(lines)
        lines, best_of = lines[newest_last], best_of[newest_last]
    return lines[best(best_of, _ABSENT, max_lines)].astype(np.int64)


def _similarities(columns: Columns, chosen: Numbers, cosines: _Cosines | None) -> tuple[Floats, NDArray[np.int32]]:
    """The cosine of each line's nearest passage, 0 for a line that has none; and which passage that is."""
    dense, passage = np.zeros(len(chosen), np.float32), np.zeros(len(chosen), np.int32)
    groups = columns.group.values[chosen]
    embedded = np.flatnonzero(groups >= 0)
    if cosines is None or not len(embedded):
        return dense, passage
    numbers, begins = columns.passages_of(groups[embedded])
    own = cosines.of(numbers)
    if columns.has_single_passages:
        dense[embedded] = own
        return dense, passage
    highest = np.maximum.reduceat(own, begins)
    nearest = np.flatnonzero(own == np.repeat(highest, np.diff(np.append(begins, len(numbers)))))
    dense[embedded] = highest
    passage[embedded] = nearest[np.searchsorted(nearest, begins)] - begins
    return dense, passage


_ARRAYS = ("row", "family", "position", "tokens", "speaker", "is_user", "created_at", "dense", "lexical", "passage")
_EMPTY = Candidates(
    row=np.empty(0, np.int64),
    family=np.empty(0, np.int32),
    position=np.empty(0, np.int32),
    tokens=np.empty(0, np.int32),
    speaker=np.empty(0, np.int32),
    is_user=np.empty(0, np.bool_),
    created_at=np.empty(0, np.float64),
    dense=np.empty(0, np.float32),
    lexical=np.empty(0, np.float32),
    passage=np.empty(0, np.int32),
    families=(),
    speakers=(),
)
