"""The metrics, against values worked out by hand and against ir_measures."""

import math
import random
from itertools import product
from statistics import mean

import ir_measures
import numpy as np
import pytest

from backscroll.evaluation.metrics.all_evidence import all_evidence
from backscroll.evaluation.metrics.answer_in_context import answer_in_context, occurs
from backscroll.evaluation.metrics.bootstrap_interval import bootstrap_interval
from backscroll.evaluation.metrics.embedding_distance import embedding_distance
from backscroll.evaluation.metrics.evidence_recall import evidence_recall
from backscroll.evaluation.metrics.ndcg_at_k import ndcg_at_k, trec_discount
from backscroll.evaluation.metrics.paired_permutation import paired_permutation
from backscroll.evaluation.metrics.recall_all_at_k import recall_all_at_k
from backscroll.evaluation.metrics.recall_any_at_k import recall_any_at_k
from backscroll.evaluation.metrics.spans_hit import is_hit, spans_hit


def made_rankings(count: int, seed: int = 0) -> list[tuple[list[str], set[str]]]:
    """Rankings of some of 30 sessions, each with its relevant ones, some of which the ranking lacks."""
    chosen = random.Random(seed)
    sessions = [f"s{number}" for number in range(30)]
    return [
        (chosen.sample(sessions, chosen.randint(1, 25)), set(chosen.sample(sessions, chosen.randint(1, 12))))
        for _ in range(count)
    ]


def theirs(measure: object, ranking: list[str], relevant: set[str]) -> float:
    judged = [ir_measures.Qrel("q", one, 1) for one in relevant]
    scored = [ir_measures.ScoredDoc("q", one, -float(rank)) for rank, one in enumerate(ranking)]
    return float(ir_measures.calc_aggregate([measure], judged, scored)[measure])


def longmemeval_ndcg(ranking: list[str], relevant: set[str], k: int) -> float:
    """LongMemEval's `ndcg`, written from its definition: the first gain in full, the others by log2 of their rank."""

    def dcg(gains: list[int]) -> float:
        return gains[0] + sum(gain / math.log2(rank) for rank, gain in enumerate(gains[1:], 2)) if gains else 0.0

    everything = [*ranking, *(relevant - set(ranking))]
    ideal = sorted((int(one in relevant) for one in everything), reverse=True)[:k]
    return dcg([int(one in relevant) for one in ranking[:k]]) / dcg(ideal)


def test_evidence_recall_is_the_share_of_the_evidence_that_is_in():
    assert evidence_recall([True, False, False]) == 1 / 3
    assert evidence_recall([True, True]) == 1
    assert evidence_recall([False]) == 0


def test_where_one_line_is_enough_one_line_is_all():
    assert evidence_recall([False, True, False], is_any_enough=True) == 1
    assert evidence_recall([False, False], is_any_enough=True) == 0
    assert all_evidence([False, True, False], is_any_enough=True)
    assert not all_evidence([False, True, False])
    assert not all_evidence([False, False], is_any_enough=True)


@pytest.mark.parametrize(
    ("answer", "text", "is_in"),
    [
        ("7 May 2023", "It was on 7 may\n2023, I think.", True),
        ("Paris.", "We flew to Paris", True),
        ("2", "on the 21st, 12 of us", False),
        ("cat", "a catalogue", False),
        ("C++", "I write C++ and Go", True),
        ("向日葵", "我喜欢向日葵图案", True),
        ("", "anything", False),
        (" . ", "anything.", False),
    ],
)
def test_an_answer_occurs_as_whole_words_whatever_its_case(answer, text, is_in):
    assert occurs(answer, text) is is_in


def test_an_answer_must_stand_within_one_line():
    assert not answer_in_context("red car", ["user: a red", "user: car"])
    assert answer_in_context("red car", ["user: no", "user: a red car"])


def test_recall_at_k_counts_the_first_k_alone():
    ranking, relevant = ["x", "a", "y", "b"], {"a", "b"}
    assert [recall_any_at_k(ranking, relevant, k) for k in (1, 2, 4)] == [False, True, True]
    assert [recall_all_at_k(ranking, relevant, k) for k in (2, 3, 4)] == [False, False, True]
    assert not recall_all_at_k(ranking, {"a", "missing"}, 4)


def test_recall_any_and_all_at_k_are_those_of_ir_measures():
    for ranking, relevant in made_rankings(60):
        for k in (1, 5, 10):
            assert recall_any_at_k(ranking, relevant, k) == theirs(ir_measures.Success @ k, ranking, relevant)
            assert recall_all_at_k(ranking, relevant, k) == (theirs(ir_measures.R @ k, ranking, relevant) == 1)


def test_ndcg_with_the_discount_of_trec_eval_is_that_of_ir_measures():
    for ranking, relevant in made_rankings(60):
        for k in (1, 5, 10):
            ours = ndcg_at_k(ranking, relevant, k, trec_discount)
            assert ours == pytest.approx(theirs(ir_measures.nDCG @ k, ranking, relevant), abs=1e-9)


def test_ndcg_by_default_is_that_of_longmemeval():
    for ranking, relevant in made_rankings(60):
        for k in (1, 5, 10):
            assert ndcg_at_k(ranking, relevant, k) == pytest.approx(longmemeval_ndcg(ranking, relevant, k))


def test_ndcg_does_not_forgive_what_the_ranking_lacks():
    assert ndcg_at_k(["a"], {"a", "b", "c"}, 10) == pytest.approx(1 / (1 + 1 + 1 / math.log2(3)))


def test_a_span_is_hit_from_half_of_its_tokens_on():
    assert is_hit([(10, 10), (10, 0)])
    assert not is_hit([(10, 9), (10, 0)])
    assert is_hit([(10, 3), (4, 4)])
    assert not is_hit([])
    assert spans_hit([True, False, False]) == 1 / 3


def test_the_embedding_distance_is_taken_to_the_nearest_reference_and_needs_no_unit_vectors():
    query = np.array([2.0, 0.0], dtype=np.float32)
    references = np.array([[0.0, 1.0], [3.0, 4.0], [-1.0, 0.0]], dtype=np.float32)
    assert embedding_distance(query, references) == pytest.approx(1 - 3 / 5)
    assert embedding_distance(query, references[2:]) == pytest.approx(2)
    assert embedding_distance(query, query[None]) == 0


def test_the_bootstrap_interval_is_that_of_all_resamples():
    values = [0.0, 0.0, 1.0, 0.5]
    means = [mean(drawn) for drawn in product(values, repeat=len(values))]  # all 4 ** 4
    low, high = bootstrap_interval(values)
    assert low == pytest.approx(np.quantile(means, 0.025), abs=0.001)
    assert high == pytest.approx(np.quantile(means, 0.975), abs=0.001)
    assert bootstrap_interval(values) == (low, high)


def test_the_bootstrap_interval_narrows_with_the_root_of_the_number_of_values():
    values = [float(number % 2) for number in range(2500)]
    low, high = bootstrap_interval(values)
    assert high - low == pytest.approx(2 * 1.96 * 0.5 / math.sqrt(len(values)), rel=0.1)


def test_the_permutation_test_tries_all_exchanges_of_a_few_questions():
    assert paired_permutation([1, 1, 1, 1], [0, 0, 0, 0]) == 2 / 2**4
    assert paired_permutation([0.2, 0.1], [0.2, 0.1]) == 1
    assert paired_permutation([1, 0], [0, 1]) == 1
    ours, differences = [0.9, 0.4, 0.7], (0.9, -0.1, 0.7)
    at_least = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True))) for signs in product((-1, 1), repeat=3)
    ]
    expected = mean(one >= sum(differences) - 1e-9 for one in at_least)
    assert paired_permutation(ours, [0.0, 0.5, 0.0]) == expected


def test_the_permutation_test_of_many_questions_is_near_the_binomial_one():
    wins, losses = 20, 8  # differences of one size: then it is the sign test
    ours = [1.0] * wins + [0.0] * losses
    exact = 2 * sum(math.comb(wins + losses, k) for k in range(losses + 1)) / 2 ** (wins + losses)
    assert paired_permutation(ours, [1 - one for one in ours]) == pytest.approx(exact, abs=0.006)
