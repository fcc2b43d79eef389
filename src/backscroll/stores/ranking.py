"""Exact search over one user's columns: cosine and BM25 of the lines in a scope, and the lines around the best.

Knows nothing about files.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backscroll.errors import StoreError
from backscroll.stores.columns import Columns, View
from backscroll.types import Candidates, Scope, ThreadKey, Vector

K1 = 1.2  # how soon a repeated term stops counting
B = 0.75  # how much a long line's terms count less
_ABSENT = -2.0  # below every cosine: a line without vectors is not found by them

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
    view, mask = _in_scope(columns, scope)
    similarities = _similarities(columns, vector)
    nearest = _nearest(columns, similarities)
    lexical = bm25(columns, view, terms)
    chosen = view.order[mask[view.order]]
    if len(chosen) > max_lines:
        by_dense = best(np.where(mask, nearest, _ABSENT), _ABSENT, max_lines)
        by_terms = best(np.where(mask, lexical, 0), 0, max_lines)
        found = np.union1d(by_dense, by_terms)
        around = view.order[near(view.places, columns.places(found), reach)]
        chosen = around[mask[around]]
    present, family = np.unique(columns.family.values[chosen], return_inverse=True)
    return Candidates(
        row=columns.row.values[chosen],
        family=family.astype(np.int32),
        position=columns.position.values[chosen],
        tokens=columns.tokens.values[chosen],
        speaker=columns.speaker.values[chosen],
        is_user=columns.role.values[chosen] == columns.roles.get("user", -1),
        created_at=columns.created_at.values[chosen],
        dense=np.where(nearest[chosen] > _ABSENT, nearest[chosen], np.float32(0)),
        lexical=lexical[chosen],
        passage=_passages(columns, chosen, similarities),
        families=tuple(columns.families[code] for code in present),
        speakers=tuple(columns.speakers),
    )


def bm25(columns: Columns, view: View, terms: Sequence[str]) -> Floats:
    """BM25 of all the user's lines, by the statistics of the lines in the view; (n,), 0 outside the view.

    Source: Robertson & Zaragoza, The Probabilistic Relevance Framework (2009), eq. 3.15, with Lucene's idf,
    log(1 + (N - df + .5) / (df + .5)), which is never negative.
    """
    scores = np.zeros(len(view.mask))
    for term in dict.fromkeys(terms):
        lines, frequencies = columns.index.postings(term)
        inside = view.mask[lines]
        lines, often = lines[inside], frequencies[inside].astype(np.float64)
        idf = np.log1p((len(view.order) - len(lines) + 0.5) / (len(lines) + 0.5))
        if len(lines):
            lengths = columns.length.values[lines] / view.mean_length
            scores[lines] += idf * often * (K1 + 1) / (often + K1 * (1 - B + B * lengths))
    return scores.astype(np.float32)


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
    _, mask = _in_scope(columns, scope)
    spoken = np.flatnonzero(np.bincount(columns.speaker.values[mask]))
    names = list(columns.speakers)
    return [names[code] for code in spoken]


def merge(found: Sequence[Candidates], max_lines: int, reach: int) -> Candidates:
    """The best of several users' candidates; each keeps the scores of its own user's search.

    Across users a line is found by its vector only where the cosine is above 0.
    """
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
    if len(found) == 1 or len(together.row) <= max_lines:
        return together
    places = (together.family.astype(np.int64) << 32) + together.position
    numbers = np.union1d(best(together.dense, 0, max_lines), best(together.lexical, 0, max_lines))
    kept = near(places, places[numbers], reach)
    return Candidates(
        **{name: getattr(together, name)[kept] for name in _ARRAYS},
        families=together.families,
        speakers=together.speakers,
    )


def _in_scope(columns: Columns, scope: Scope) -> tuple[View, NDArray[np.bool_]]:
    """The lines that the statistics are taken from, and which of them may be found."""
    if scope.thread is None:
        view = columns.view()
        mask = view.mask
    else:
        thread_id = columns.thread_ids.get(scope.thread)
        if thread_id is None:
            return columns.view(), np.zeros(len(columns.row.values), np.bool_)
        view = columns.view_with(thread_id)
        mask = view.mask & (columns.family.values == columns.family_of(thread_id))
    if scope.roles:
        mask = mask & np.isin(columns.role.values, [columns.roles[role] for role in scope.roles & columns.roles.keys()])
    return view, mask


def _similarities(columns: Columns, vector: Vector | None) -> Floats:
    """(passages,) cosine of each; empty where the dense side is off."""
    if vector is None or columns.matrix is None:
        return np.empty(0, np.float32)
    return columns.matrix.similarities(vector)


def _nearest(columns: Columns, similarities: Floats) -> Floats:
    """(n,) cosine of each line's nearest passage; `_ABSENT` for a line that has none."""
    nearest = np.full(len(columns.row.values), _ABSENT, np.float32)
    if len(similarities):
        starts = columns.group_start.values
        is_single = len(starts) == len(similarities)
        nearest[columns.group_line.values] = similarities if is_single else np.maximum.reduceat(similarities, starts)
    return nearest


def _passages(columns: Columns, chosen: Numbers, similarities: Floats) -> NDArray[np.int32]:
    """Which of each line's passages is the nearest; the first one where they are equal."""
    passage = np.zeros(len(chosen), np.int32)
    groups = columns.group.values[chosen]
    embedded = np.flatnonzero(groups >= 0)
    if not len(embedded) or len(similarities) <= len(columns.group_start.values):
        return passage
    numbers, begins = columns.passages_of(groups[embedded])
    own = similarities[numbers]
    counts = np.diff(np.append(begins, len(numbers)))
    nearest = np.flatnonzero(own == np.repeat(np.maximum.reduceat(own, begins), counts))
    passage[embedded] = nearest[np.searchsorted(nearest, begins)] - begins
    return passage


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
