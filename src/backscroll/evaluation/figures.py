"""Results of questions -> the figures of a run, with their intervals. Knows nothing about how they are shown."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from backscroll.evaluation.metrics.all_evidence import all_evidence
from backscroll.evaluation.metrics.bootstrap_interval import bootstrap_interval
from backscroll.evaluation.metrics.evidence_recall import evidence_recall
from backscroll.evaluation.metrics.ndcg_at_k import longmemeval_discount, ndcg_at_k, trec_discount
from backscroll.evaluation.metrics.paired_permutation import paired_permutation
from backscroll.evaluation.metrics.recall_all_at_k import recall_all_at_k
from backscroll.evaluation.metrics.recall_any_at_k import recall_any_at_k
from backscroll.evaluation.metrics.spans_hit import spans_hit
from backscroll.evaluation.replay import Plan
from backscroll.evaluation.results import Outcome, Result

RankingMetric = Callable[[Sequence[str], Collection[str]], float]
RANKING_METRICS: Mapping[str, RankingMetric] = {
    "recall_any@5": partial(recall_any_at_k, k=5),
    "recall_all@5": partial(recall_all_at_k, k=5),
    "recall_any@10": partial(recall_any_at_k, k=10),
    "recall_all@10": partial(recall_all_at_k, k=10),
    "ndcg@10": partial(ndcg_at_k, k=10, discount=longmemeval_discount),
    "ndcg@10 (trec_eval)": partial(ndcg_at_k, k=10, discount=trec_discount),
}


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over questions.

    Attributes:
        mean: of all values; low, high: its 95 % bootstrap interval.
        total: the sum of the values: for a yes-or-no metric how many said yes.
        questions: how many values there are.
    """

    mean: float
    low: float
    high: float
    total: float
    questions: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """A preset's evidence recall beside the baseline's, on the same questions within the same budget.

    Attributes:
        difference: ours less the baseline's; low, high: its 95 % bootstrap interval.
        p: of the paired permutation test.
    """

    baseline: str
    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True, slots=True)
class Figures:
    """What one preset reached within one budget.

    Attributes:
        evidence_recall, all_evidence: over the answerable questions that name lines.
        answer_in_context: over those whose answer stands word for word in an evidence line.
        spans_hit: over those that name spans.
        by_category, by_role: evidence recall by the question's category, and of the lines of one role.
        tokens, unanswerable_tokens, small_talk_tokens: mean tokens sent, by the kind of the question; None for none.
        exchange_share: recalled lines whose whole exchange is in the context, of all recalled; None for none.
        p50_ms, p95_ms: what a context took, queries embedded anew; None where there is none.
        refused: how many questions got no context; they count as nothing found.
        versus: beside the baseline; None for the baseline itself, or where none is named.
    """

    preset: str
    max_tokens: int
    evidence_recall: Mean | None
    all_evidence: Mean | None
    answer_in_context: Mean | None
    spans_hit: Mean | None
    by_category: Mapping[str, Mean]
    by_role: Mapping[str, Mean]
    tokens: float | None
    unanswerable_tokens: float | None
    small_talk_tokens: float | None
    exchange_share: float | None
    p50_ms: float | None
    p95_ms: float | None
    refused: int
    versus: Comparison | None


@dataclass(frozen=True, slots=True)
class RankingFigures:
    """How a preset ranks threads, by one reading of what is relevant; unanswerable questions are skipped.

    Attributes:
        relevant: which threads count; see `backscroll.evaluation.replay`.
        metrics: by name, in the order of `RANKING_METRICS`.
    """

    preset: str
    relevant: str
    metrics: Mapping[str, Mean]


Pair = tuple[Result, Outcome]


def figures(results: Sequence[Result], plan: Plan, baseline: str | None = None) -> list[Figures]:
    """The figures of every preset and budget, in the order of the plan."""
    return [
        _figures(pairs, None if baseline in (None, preset) else (str(baseline), _pairs(results, str(baseline), budget)))
        for preset in plan.presets
        for budget in plan.max_tokens
        if (pairs := _pairs(results, preset, budget))
    ]


def ranking_figures(results: Sequence[Result], plan: Plan) -> list[RankingFigures]:
    """The figures of the rankings; empty for sets that name no relevant threads."""
    asked = [result for result in results if result.kind == "answerable"]
    readings = dict.fromkeys(reading for result in asked for reading in result.relevant)
    made = []
    for preset in plan.presets:
        for reading in readings:
            pairs = [(one.rankings[preset], one.relevant[reading]) for one in asked if _is_ranked(one, preset, reading)]
            if pairs:
                means = {name: mean_of([metric(*pair) for pair in pairs]) for name, metric in RANKING_METRICS.items()}
                made.append(RankingFigures(preset, reading, {name: mean for name, mean in means.items() if mean}))
    return made


def mean_of(values: Sequence[float]) -> Mean | None:
    """A mean with its interval; None where there is nothing to take it of."""
    if not values:
        return None
    low, high = bootstrap_interval(values)
    return Mean(float(np.mean(values)), low, high, float(sum(values)), len(values))


def _is_ranked(result: Result, preset: str, reading: str) -> bool:
    return preset in result.rankings and reading in result.relevant


def _pairs(results: Sequence[Result], preset: str, max_tokens: int) -> list[Pair]:
    return [
        (result, outcome)
        for result in results
        for outcome in result.outcomes
        if (outcome.preset, outcome.max_tokens) == (preset, max_tokens)
    ]


def _figures(pairs: Sequence[Pair], beside: tuple[str, Sequence[Pair]] | None) -> Figures:
    outcomes = [outcome for _, outcome in pairs]
    counted = [pair for pair in pairs if _is_counted(pair[0])]
    seconds = [outcome.seconds for outcome in outcomes if not outcome.refused]
    recalled = sum(outcome.recalled for outcome in outcomes)
    return Figures(
        preset=outcomes[0].preset,
        max_tokens=outcomes[0].max_tokens,
        evidence_recall=mean_of([_recall(pair) for pair in counted]),
        all_evidence=mean_of([all_evidence(outcome.found, result.is_any_enough) for result, outcome in counted]),
        answer_in_context=mean_of([outcome.answered for _, outcome in counted if outcome.answered is not None]),
        spans_hit=mean_of([spans_hit(outcome.hits) for _, outcome in counted if outcome.hits]),
        by_category=_grouped([(result.category, _recall((result, outcome))) for result, outcome in counted]),
        by_role=_grouped([found for pair in counted for found in _recall_by_role(pair)]),
        tokens=_mean_tokens(pairs, "answerable"),
        unanswerable_tokens=_mean_tokens(pairs, "unanswerable"),
        small_talk_tokens=_mean_tokens(pairs, "small talk"),
        exchange_share=sum(outcome.with_exchange for outcome in outcomes) / recalled if recalled else None,
        p50_ms=1000 * float(np.percentile(seconds, 50)) if seconds else None,
        p95_ms=1000 * float(np.percentile(seconds, 95)) if seconds else None,
        refused=sum(bool(outcome.refused) for outcome in outcomes),
        versus=_compared(counted, *beside) if beside and counted else None,
    )


def _is_counted(result: Result) -> bool:
    """Whether evidence lines are named that could be found."""
    return result.kind == "answerable" and bool(result.roles)


def _recall(pair: Pair) -> float:
    result, outcome = pair
    return evidence_recall(outcome.found, result.is_any_enough)


def _recall_by_role(pair: Pair) -> list[tuple[str, float]]:
    """The recall of a question's evidence lines of each role."""
    result, outcome = pair
    found = {
        role: [is_in for of, is_in in zip(result.roles, outcome.found, strict=True) if of == role]
        for role in dict.fromkeys(result.roles)
    }
    return [(role, evidence_recall(one, result.is_any_enough)) for role, one in found.items()]


def _grouped(values: Sequence[tuple[str, float]]) -> dict[str, Mean]:
    names = sorted({name for name, _ in values})
    means = {name: mean_of([value for of, value in values if of == name]) for name in names}
    return {name: mean for name, mean in means.items() if mean}


def _mean_tokens(pairs: Sequence[Pair], kind: str) -> float | None:
    tokens = [outcome.tokens for result, outcome in pairs if result.kind == kind and not outcome.refused]
    return float(np.mean(tokens)) if tokens else None


def _compared(ours: Sequence[Pair], baseline: str, theirs: Sequence[Pair]) -> Comparison:
    mine = [_recall(pair) for pair in ours]
    other = [_recall(pair) for pair in theirs if _is_counted(pair[0])]
    differences = [one - two for one, two in zip(mine, other, strict=True)]
    low, high = bootstrap_interval(differences)
    return Comparison(baseline, float(np.mean(differences)), low, high, paired_permutation(mine, other))
