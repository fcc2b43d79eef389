"""How near contextualized queries are to what humans made of the same messages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from backscroll.evaluation.contextualizers import NOTHING, Contextualize, Contextualized, open_contextualizer
from backscroll.evaluation.datasets import Rewrite
from backscroll.evaluation.figures import Mean, mean_of
from backscroll.evaluation.metrics.embedding_distance import embedding_distance
from backscroll.evaluation.metrics.paired_permutation import paired_permutation
from backscroll.evaluation.vector_cache import CachedEmbedder
from backscroll.types import Vector
from backscroll.wiring import Rewriter

Advance = Callable[[int], None]

_SAME = 1e-6  # a distance below it is no distance


@dataclass(frozen=True, slots=True)
class Rewritten:
    """What a contextualizer made of one message.

    Attributes:
        distance: to the nearest human rewrite.
        text: what it made; empty where it made only a vector.
        is_left_alone: whether the query is the message itself.
    """

    rewrite: Rewrite
    distance: float
    text: str
    is_left_alone: bool

    @property
    def stands_alone(self) -> bool:
        """Whether the human left the message as it is."""
        return self.rewrite.message.strip() == self.rewrite.references[0].strip()


@dataclass(frozen=True, slots=True)
class RewriteFigures:
    """What a contextualizer reached on a set, or on one kind of a set's messages.

    Attributes:
        distance: mean embedding distance.
        ratio: to the mean distance of doing nothing on the same messages; None where that is 0.
        left_alone: of the messages that stand alone, those left alone; None where there are none.
        changed: of the messages that do not stand alone, those that were changed; None where there are none.
        p: of the paired permutation test against doing nothing.
    """

    contextualizer: str
    set: str
    kind: str
    distance: Mean
    ratio: float | None
    left_alone: Mean | None
    changed: Mean | None
    p: float


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A run over rewrites.

    Attributes:
        figures: by set, kind and contextualizer, so that two of them stand side by side; a whole set has no kind.
        averages: contextualizer -> its ratio, averaged over the sets that have one.
        worst: contextualizer -> its most distant queries.
    """

    figures: tuple[RewriteFigures, ...]
    averages: Mapping[str, float]
    worst: Mapping[str, tuple[Rewritten, ...]]


def measure_rewriting(
    rewrites: Sequence[Rewrite],
    names: Sequence[str],
    embedder: CachedEmbedder,
    advance: Advance,
    worst: int = 10,
    rewriter: Rewriter | None = None,
) -> Rewriting:
    """Let contextualizers make queries, and measure their distance to the human rewrites.

    Args:
        rewrites: of one set or several.
        names: of the contextualizers; doing nothing is measured in any case.
        advance: told how many messages are done.
        worst: how many of the most distant queries are kept.
        rewriter: who asks a language model, for those that need one.

    Raises: NotFoundError for an unknown name, EmbedderError, LLMError.
    """
    ways = {name: open_contextualizer(name, embedder, rewriter) for name in dict.fromkeys([NOTHING, *names])}
    made = {name: _rewrite_all(rewrites, ways[name], embedder, advance) for name in ways}
    found = [
        _figures(name, made[name], made[NOTHING], group) for group in _groups(rewrites) for name in dict.fromkeys(names)
    ]
    farthest = {
        name: tuple(sorted(made[name], key=lambda one: one.distance, reverse=True)[:worst])
        for name in dict.fromkeys(names)
    }
    return Rewriting(tuple(found), _averages(found), farthest)


def _rewrite_all(
    rewrites: Sequence[Rewrite], contextualize: Contextualize, embedder: CachedEmbedder, advance: Advance
) -> list[Rewritten]:
    made = []
    for rewrite in rewrites:
        query = contextualize(rewrite.message, rewrite.history)
        vector = _vector(query, embedder)
        references = embedder.embed(rewrite.references)
        is_message = embedding_distance(vector, embedder.embed([rewrite.message])) < _SAME
        is_left_alone = is_message if query.text is None else query.text.strip() == rewrite.message.strip()
        made.append(Rewritten(rewrite, embedding_distance(vector, references), query.text or "", is_left_alone))
        advance(1)
    return made


def _vector(query: Contextualized, embedder: CachedEmbedder) -> Vector:
    if query.vector is not None:
        return query.vector
    assert query.text is not None, "a query has a text or a vector"
    vector: Vector = embedder.embed([query.text])[0]
    return vector


def _groups(rewrites: Sequence[Rewrite]) -> list[tuple[str, str]]:
    """Every set, and behind it its kinds."""
    kinds: dict[str, dict[str, None]] = {}
    for rewrite in rewrites:
        kinds.setdefault(rewrite.set, {"": None})[rewrite.kind] = None
    return [(name, kind) for name, found in kinds.items() for kind in sorted(found)]


def _figures(
    name: str, made: Sequence[Rewritten], nothing: Sequence[Rewritten], group: tuple[str, str]
) -> RewriteFigures:
    chosen = [one for one in made if _is_in(one.rewrite, group)]
    plain = [one.distance for one in nothing if _is_in(one.rewrite, group)]
    distances = [one.distance for one in chosen]
    distance = mean_of(distances)
    assert distance is not None, "a group has a rewrite"
    before = float(np.mean(plain))
    return RewriteFigures(
        contextualizer=name,
        set=group[0],
        kind=group[1],
        distance=distance,
        ratio=distance.mean / before if before else None,
        left_alone=mean_of([one.is_left_alone for one in chosen if one.stands_alone]),
        changed=mean_of([not one.is_left_alone for one in chosen if not one.stands_alone]),
        p=paired_permutation(distances, plain),
    )


def _is_in(rewrite: Rewrite, group: tuple[str, str]) -> bool:
    name, kind = group
    return rewrite.set == name and kind in ("", rewrite.kind)


def _averages(found: Sequence[RewriteFigures]) -> dict[str, float]:
    ratios: dict[str, list[float]] = {}
    for one in found:
        if not one.kind and one.ratio is not None:
            ratios.setdefault(one.contextualizer, []).append(one.ratio)
    return {name: float(np.mean(values)) for name, values in ratios.items()}
