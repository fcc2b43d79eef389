"""Recall, step by step: search, threshold, neighbors, relevance, gather."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backscroll.contextualize import CONTEXTUALIZERS
from backscroll.errors import MessageError
from backscroll.recall.gather import gather, spans_of, whole_units
from backscroll.recall.neighbors import widen
from backscroll.recall.relevance import DECAY_PER_TURN, relevance
from backscroll.recall.search import best_first, search
from backscroll.recall.threshold import threshold
from backscroll.settings import BY_MODEL, CONTEXTUALIZER_NAMES, PERCENTILES, Settings
from backscroll.terms import terms
from backscroll.types import Candidates, Query, Ranking, Scope, Span, ThreadKey
from chats import assistant, calls, lines_of, result, turns, user


def ranking(dense: list[float], lexical: list[float] | None = None, tokens: int = 10) -> Ranking:
    """Lines of one thread, ranked by the sum of both."""
    n = len(dense)
    near, words = np.array(dense, np.float32), np.array(lexical or [0.0] * n, np.float32)
    columns = Candidates(
        row=np.arange(100, 100 + n),
        family=np.zeros(n, np.int32),
        position=np.arange(n, dtype=np.int32),
        tokens=np.full(n, tokens, np.int32),
        speaker=np.zeros(n, np.int32),
        is_user=np.ones(n, bool),
        created_at=np.zeros(n),
        dense=near,
        lexical=words,
        passage=np.zeros(n, np.int32),
        families=(ThreadKey("alice", "chat"),),
        speakers=("user",),
    )
    return Ranking(columns, near + words, np.argsort(-(near + words), kind="stable"))


def span(first: int, last: int, score: float = 1.0, asked_at: int = 9, family: str = "chat") -> Span:
    return Span("alice", family, first, last, score, score, asked_at)


# search


@given(st.lists(st.sampled_from([-1.5, -0.0, 0.0, 1e-30, 0.25]) | st.floats(-2, 2, width=32), max_size=40))
def test_the_best_score_comes_first_and_equal_ones_stay_as_they_stand(scores):
    column = np.array(scores, np.float32)
    assert best_first(column).tolist() == sorted(range(len(scores)), key=lambda place: -column[place])


# threshold

SCORES = st.lists(st.tuples(st.floats(-1, 1, width=32), st.sampled_from([0.0, 1.5])), max_size=12)


@given(SCORES, st.floats(-1, 1, width=32), st.none() | st.integers(0, 12), st.booleans())
def test_what_is_at_or_above_the_minimum_stays_best_first(scores, minimum, max_lines, keep_words):
    given_ranking = ranking([dense for dense, _ in scores], [lexical for _, lexical in scores])
    kept = threshold(given_ranking, minimum, max_lines, keep_words)
    related = {place for place, (dense, words) in enumerate(scores) if dense >= minimum or (keep_words and words > 0)}
    if keep_words:
        related = {place for place in range(len(scores)) if any(abs(place - other) <= 2 for other in related)}
    assert kept.order.tolist() == [place for place in given_ranking.order if place in related][:max_lines]


def test_a_line_exactly_at_the_minimum_stays():
    assert threshold(ranking([0.5, 0.25]), 0.5, None, keep_words=False).order.tolist() == [0]


def test_a_neighbor_stays_only_within_two_positions_of_its_own_thread():
    columns = ranking([0.9, 0.0, 0.0, 0.0, 0.0]).candidates
    apart = dataclasses.replace(
        columns, position=np.array([4, 6, 7, 5, 6], np.int32), family=np.array([0, 0, 0, 1, 1], np.int32)
    )
    kept = threshold(Ranking(apart, columns.dense, np.arange(5)), 0.5, None, keep_words=True)
    assert kept.order.tolist() == [0, 1]


# neighbors


@given(st.lists(st.integers(0, 60), unique=True, max_size=12), st.integers(0, 4), st.integers(0, 4))
def test_widened_spans_cover_what_each_hit_covers_and_no_position_twice(positions, before, after):
    spans = [span(position, position, score=1 / (rank + 1)) for rank, position in enumerate(positions)]
    wide = widen(spans, before, after)
    covered = [position for one in wide for position in range(one.first, one.last + 1)]
    assert len(covered) == len(set(covered))
    assert set(covered) == {p for hit in positions for p in range(max(0, hit - before), hit + after + 1)}
    assert [one.score for one in wide] == sorted((one.score for one in wide), reverse=True)


def test_spans_of_two_threads_are_never_joined():
    assert len(widen([span(5, 5), span(5, 5, family="other")], 3, 3)) == 2


RUN = [
    *turns(1),
    user("How far?"),
    calls("c1", "c2"),
    result("c2", "3 km"),
    result("c1", "12 km"),
    assistant("12 km."),
    *turns(1),
]


@pytest.mark.parametrize(
    ("first", "last", "whole_exchanges", "expected"),
    [
        (2, 2, False, (2, 2)),
        (3, 3, False, (3, 5)),
        (4, 4, False, (3, 5)),
        (5, 6, False, (3, 6)),
        (4, 4, True, (2, 6)),
        (2, 2, True, (2, 6)),
        (6, 7, True, (2, 8)),
    ],
)
def test_a_span_grows_until_no_call_lacks_a_result(first, last, whole_exchanges, expected):
    grown = whole_units(span(first, last), lines_of(RUN), whole_exchanges)
    assert (grown.first, grown.last) == expected


# relevance


def test_a_buffered_block_stays_with_half_its_rank_per_turn():
    kept = relevance([span(1, 1, 1.0, asked_at=2), span(3, 3, 1.0, asked_at=4)], [span(5, 5, 0.3, asked_at=6)], 10)
    assert [(one.first, one.score) for one in kept] == [(3, 1.0), (5, 0.3), (1, 1.0)]
    assert DECAY_PER_TURN == 0.5
    assert 1.0 * DECAY_PER_TURN > 0.3 > 1.0 * DECAY_PER_TURN**2


def test_a_block_that_is_found_again_is_new_and_one_that_is_only_touched_stays():
    found = [span(4, 6, asked_at=8)]
    assert relevance([span(5, 5, asked_at=2), span(4, 6, asked_at=3)], found, 10) == found
    assert set(relevance([span(6, 8, asked_at=2)], found, 10)) == {span(6, 8, asked_at=2), *found}


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=30), st.integers(0, 12), st.integers(1, 10))
def test_first_in_is_first_out_and_what_is_found_now_is_always_in(old, found_count, max_blocks):
    buffered = sorted(
        {span(position, position, 0.5, asked_at) for position, asked_at in old},
        key=lambda one: (one.asked_at, one.first),
    )
    found = [span(100 + number, 100 + number, 0.4, asked_at=9) for number in range(found_count)]
    kept = relevance(buffered, found, max_blocks)
    assert set(found) <= set(kept)
    stays = [one for one in kept if one.asked_at < 9]
    assert len(stays) <= max_blocks
    gone = [one for one in buffered if one not in stays]
    if stays and gone:
        assert max(one.asked_at for one in gone) <= min(one.asked_at for one in stays)


# spans and blocks


def test_only_so_many_lines_are_read_as_may_fit():
    assert [one.first for one in spans_of(ranking([0.9, 0.8, 0.7, 0.6], tokens=10), 9, 25)] == [0, 1, 2]
    assert len(spans_of(ranking([0.9, 0.8, 0.7, 0.6], tokens=10), 9, 1000)) == 4
    assert spans_of(ranking([]), 9, 1000) == []


def test_a_block_of_a_call_comes_with_its_results_from_the_store(memory):
    thread = memory.thread("chat", user="alice")
    thread.append(RUN)
    found = ranking([0.1] * len(RUN))
    blocks = gather(memory.store, [span(4, 4, asked_at=9), span(2, 2, asked_at=5), span(99, 99)], found, 9, False)
    assert [[line.position for line in block.lines] for block in blocks] == [[3, 4, 5], [2]]
    assert [block.is_buffered for block in blocks] == [False, True]
    whole = gather(memory.store, [span(4, 4, asked_at=9)], found, 9, True)
    assert [line.position for line in whole[0].lines] == [2, 3, 4, 5, 6]


# search over a real store


def query(memory, text: str) -> Query:
    return Query(text, memory.embedder.embed([text])[0], tuple(dict.fromkeys(terms(text))))


def test_the_dense_side_ranks_by_the_cosine_alone(memory):
    thread = memory.thread("chat", user="alice")
    thread.append(turns(20))
    asked = query(memory, "What about item 7?")
    found = search(memory.store, Scope("alice"), asked, "dense")
    texts = [line.message.text for line in thread.lines()]
    cosines = memory.embedder.embed(texts) @ asked.vector
    best = found.candidates.position[found.order][:3].tolist()
    assert best[0] in (14, 15)
    assert np.allclose(found.candidates.dense[found.order[:3]], np.sort(cosines)[::-1][:3], atol=0.02)  # int8 in store


@pytest.mark.parametrize("fusion", ["hybrid", "dense"])
def test_lines_that_are_in_the_context_are_left_out(memory, fusion):
    lines = memory.thread("chat", user="alice").append(turns(20))
    asked = query(memory, "What about item 7?")
    whole, less = (search(memory.store, Scope("alice"), asked, fusion, shown) for shown in ((), (3, 15, 16, 999)))
    assert len(whole.order) == len(lines)
    assert set(whole.candidates.row[whole.order]) - set(less.candidates.row[less.order]) == {3, 15, 16}


def test_a_prompt_that_is_stored_ranks_the_other_lines_as_one_that_is_not(memory):
    memory.thread("old", user="alice").append(turns(30))
    asked, scope = (
        query(memory, "What did you say about item 7 and the vans, the depots and the drivers?"),
        Scope("alice"),
    )

    def ranked(shown: tuple[int, ...] = ()) -> dict[int, float]:
        found = search(memory.store, scope, asked, "hybrid", shown)
        return {int(found.candidates.row[place]): float(found.score[place]) for place in found.order}

    before = ranked()
    memory.thread("new", user="alice").append(user(asked.text))
    [stored] = memory.thread("new", user="alice").lines()
    assert ranked((stored.row,)) == pytest.approx(before, rel=0.01)  # one line more, for BM25
    best = max(before, key=lambda row: before[row])
    assert ranked()[best] < 0.9 * before[best]  # where it is not told to be shown, nothing is as near as itself


def test_a_question_that_names_its_speaker_prefers_her_lines(memory):
    thread = memory.thread("meeting")
    thread.append([user("I like the blue van best.", name=name) for name in ("Ann", "Bob", "Cleo")])
    for name in ("Ann", "Bob", "Cleo"):
        assert thread.recall(f"Which van does {name} like?")[0].line.speaker == name


def test_a_question_that_speaks_of_days_prefers_their_lines(memory):
    thread = memory.thread("diary")
    thread.append([user("I painted a boat.", created_at=f"2024-{month:02}-05T09:00:00") for month in range(1, 13)])
    assert thread.recall("What did I paint in August?")[0].line.created_at.month == 8
    asked = memory.thread("new").context("What did I paint two months ago?", max_tokens=70, now="2024-12-05")
    assert [source.position for source in asked.sources] == [9]


def test_words_of_scripts_without_spaces_are_found(memory):
    thread = memory.thread("chat")
    thread.append(
        [user("明天早上六点发车，请通知司机。"), user("晚上吃什么好呢？"), user("ルートの効率を計算してください。")]
    )
    assert thread.recall("几点发车？")[0].line.position == 0
    assert thread.recall("効率の計算")[0].line.position == 2


def test_meaning_is_found_where_no_word_is_shared(understanding):
    thread = understanding.thread("chat")
    thread.append([user("My dog passed away last spring."), user("The invoice is overdue."), user("It rains.")])
    hits = thread.recall("When did the pet die?")
    assert hits[0].line.position == 0
    assert hits[0].similarity > 0.3


def test_what_has_nothing_to_do_with_the_query_is_no_hit(understanding):
    thread = understanding.thread("chat")
    thread.append([user("The invoice is overdue."), user("It rains.")])
    assert thread.recall("Sourdough hydration percentages") == []


def test_hits_are_best_first_at_most_k_and_say_why(memory):
    thread = memory.thread("chat")
    thread.append(turns(20))
    hits = thread.recall("What about item 7?", k=5)
    assert len(hits) == 5
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert hits[0].line.position in (14, 15)
    assert all(-1 <= hit.similarity <= 1.001 and hit.lexical >= 0 for hit in hits)
    assert thread.recall("What about item 7?", k=5) == hits
    with pytest.raises(MessageError):
        thread.recall("  ")


@pytest.mark.parametrize(
    ("roles", "expected"), [("both", {"user", "assistant"}), ("user", {"user"}), ("assistant", {"assistant"})]
)
def test_only_lines_of_the_speakers_asked_for_are_recalled(memory, roles, expected):
    old = memory.thread("old")
    old.append(turns(10))
    context = memory.thread("new").context("What about item 7?", max_tokens=2000, preset=Settings(recall_roles=roles))
    positions = {source.position for source in context.sources}
    assert {line.message.role for line in old.lines() if line.position in positions} == expected


def test_whole_turns_are_recalled_where_they_are_the_unit(memory):
    memory.thread("old").append(turns(30))
    context = memory.thread("new").context(
        "What about item 7?", max_tokens=400, preset=Settings(recall_unit="exchange", recall_lines=1)
    )
    assert sorted(source.position for source in context.sources) == [14, 15]


def test_min_similarity_is_the_settings_own_or_the_calibrated_one(memory):
    assert memory.min_similarity(Settings(min_similarity=0.42)) == 0.42
    percentiles = [memory.min_similarity(Settings(min_similarity=percentile)) for percentile in PERCENTILES]
    assert all(a < b for a, b in itertools.pairwise(percentiles))
    with pytest.raises(MessageError, match=r"p90, p95, p99, p99\.9"):
        Settings(min_similarity="p50")


def test_one_long_line_is_told_by_its_best_passage_where_the_whole_does_not_fit(understanding):
    filler = "We talked about the weather and about the long way home. " * 40
    understanding.thread("old").append(user(f"{filler}The gate code of the depot is 90210. {filler}"))
    context = understanding.thread("new").context("What is the gate code of the depot?", max_tokens=500)
    assert "90210" in context.messages[-1]["content"]
    assert [entry.why for entry in context.report.entries if entry.part == "recalled"] == [
        "its best passage: the whole does not fit"
    ]


# contextualization

OLD = "My doctor said that throat cancer is treatable when it is found early."


@pytest.fixture
def leaning(memory):
    """A thread in whose talk a short prompt makes sense, and an old line in another that it asks for."""
    memory.thread("old").append([user(OLD), assistant("That is good to hear.")])
    for number in range(60):
        memory.thread("old").append(
            [user(f"Is bus {number} treatable as late?"), assistant(f"Bus {number} is on time.")]
        )
    thread = memory.thread("new")
    thread.append([user("What is throat cancer?"), assistant("A disease of the pharynx.")])
    return thread


def recalled(context):
    return [entry.source.position for entry in context.report.entries if entry.part == "recalled" and entry.included]


@pytest.mark.parametrize(("name", "is_found"), [("none", False), ("blend", True), ("trained", True)])
def test_a_prompt_that_leans_on_what_was_said_is_searched_for_as_it_is_meant(leaning, name, is_found):
    preset = Settings(contextualizer=name, recall_lines=5)
    context = leaning.context("Is it treatable?", max_tokens=600, preset=preset)
    assert (0 in recalled(context)) is is_found
    assert context.messages[-1]["content"].endswith("Is it treatable?")  # what is sent stays word for word
    assert any("prompt" in note for note in context.report.notes) is is_found


def test_a_prompt_that_stands_alone_is_searched_for_as_it_is(leaning):
    context = leaning.context("When is bus 17 in Berlin treatable as late?", max_tokens=600)
    assert not context.report.notes


def test_recall_takes_a_query_as_it_is(leaning):
    best = leaning.recall("Is it treatable?", k=1)[0]
    assert best.line.message.text != OLD


def test_the_settings_know_the_contextualizers():
    assert set(CONTEXTUALIZER_NAMES) == {*CONTEXTUALIZERS, *BY_MODEL}
