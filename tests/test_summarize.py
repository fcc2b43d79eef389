"""A rolling summary without a model: word for word, only appended to, old chunks merged by fours."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from backscroll.exchanges import atoms, exchanges
from backscroll.summarize.chunks import CHUNK_TOKENS, FAN_IN, chunks, cover, quarters, span_of, split
from backscroll.summarize.extractive import METHOD, SUMMARY_TOKENS, merge, summarize
from backscroll.tokens import count_stored, open_counter
from chats import assistant, calls, chats, lines_of, result, turns, user

count = open_counter().count


@given(chats(max_moves=25))
def test_chunks_are_whole_exchanges_or_parts_of_a_long_one_from_the_first_line_on(chat):
    lines = lines_of(chat)
    cut = chunks(lines)
    covered = [line for chunk in cut for line in chunk]
    assert covered == lines[: len(covered)]
    payloads = [line.message.payload for line in lines]
    starts = {lines[run.start].position for run in exchanges(payloads)}
    whole = {lines[run.start].position for run in atoms(payloads)}
    for chunk in cut:
        assert chunk[0].position in whole
        tokens = sum(line.tokens for line in chunk)
        assert tokens >= (CHUNK_TOKENS if chunk[-1].position + 1 in starts else 2 * CHUNK_TOKENS)


@given(st.integers(1, 60), st.integers(0, 60))
def test_chunks_of_one_long_exchange_are_the_same_however_much_of_it_is_there(first, more):
    said = [user(f"Part {number} of what I have to say about the vans of the fleet.") for number in range(first + more)]
    before = chunks(lines_of(said[:first]))
    assert chunks(lines_of(said))[: len(before)] == before


@given(st.integers(1, 60), st.integers(1, 60))
def test_chunks_only_get_appended_as_the_thread_grows(first, more):
    lines = lines_of(turns(first + more))
    before = chunks(lines[: 2 * first])
    assert chunks(lines)[: len(before)] == before


@given(chats(max_moves=25))
def test_a_summary_says_only_what_was_said_and_stays_short(chat):
    lines = lines_of(chat)
    if not lines:
        return
    summary = summarize(lines, count)
    assert (summary.first, summary.last, summary.method) == (lines[0].position, lines[-1].position, METHOD)
    assert summary.created_at == lines[-1].created_at
    assert sum(count(sentence) + 1 for sentence in summary.sentences) <= SUMMARY_TOKENS
    said = [f"{line.speaker}: {line.message.text}" for line in lines if line.message.role in ("user", "assistant")]
    for sentence in summary.sentences:
        speaker, _, words = sentence.partition(": ")
        assert any(text.startswith(f"{speaker}: ") and words in text for text in said)
    assert summarize(lines, count) == summary


def test_a_user_who_is_named_like_a_role_is_not_taken_for_it():
    lines = lines_of([user("I promised to refund Ada 500 euros on Monday.", name="assistant"), assistant("Did you?")])
    [sentence] = summarize(lines, count_stored).sentences
    assert sentence.startswith("user named assistant: I promised")


def test_figures_and_names_are_told_before_small_talk_and_questions():
    told = summarize(
        lines_of(
            [
                user("Hello there. How is the weather today at your place?"),
                assistant("Fine thanks, how are you doing today?"),
                user("The contract with Ferrari ends on 14 March."),
                calls("c1"),
                result("c1", "The tool said a lot about contracts and Ferrari."),
            ]
        ),
        count,
    )
    assert told.sentences[0] == "user: The contract with Ferrari ends on 14 March."
    assert not any("weather" in sentence or "tool" in sentence for sentence in told.sentences)


def test_a_figure_is_not_cut_at_its_point():
    told = summarize(
        lines_of([user("The van of 2019 costs 3.50 EUR a mile. See v1.2 of the plan by Rita! 车队有十二辆车。好")]),
        count,
    )
    assert told.sentences == (
        "user: The van of 2019 costs 3.50 EUR a mile.",
        "user: See v1.2 of the plan by Rita!",
        "user: 车队有十二辆车。",
    )


@given(st.integers(0, 90), st.integers(0, 200))
def test_a_cover_tells_each_chunk_before_the_window_once_in_few_runs(exchanges_count, before):
    parts = [summarize(chunk, count) for chunk in chunks(lines_of(turns(exchanges_count)))]
    left = [part for part in parts if part.last < before]
    covering = cover(parts, before)
    assert list(itertools.chain.from_iterable(covering)) == left
    sizes = [len(run) for run in covering]
    assert sizes == sorted(sizes, reverse=True)
    assert all(
        [part for quarter in quarters(run) for part in quarter] == (run if len(run) > 1 else []) for run in covering
    )
    digits, rest = 0, len(left)
    while rest:  # as many as the digits of their number in base four add up to
        rest, digit = divmod(rest, FAN_IN)
        digits += digit
    assert len(covering) == digits


def test_four_neighbors_become_one_of_the_same_size():
    parts = [summarize(chunk, count) for chunk in chunks(lines_of(turns(60, words=40)))][:FAN_IN]
    merged = merge(parts, count)
    assert (merged.first, merged.last) == (parts[0].first, parts[-1].last)
    assert set(merged.sentences) <= {sentence for part in parts for sentence in part.sentences}
    assert sum(count(sentence) + 1 for sentence in merged.sentences) <= SUMMARY_TOKENS


def test_a_run_that_is_not_made_is_split_as_far_as_parts_of_it_are():
    parts = [summarize(chunk, count) for chunk in chunks(lines_of(turns(300)))][:16]
    [run] = cover(parts, parts[-1].last + 1)
    made = {span_of(run[4:8]), span_of(run[8:9])}
    pieces = split(run, lambda piece: span_of(piece) in made)
    assert [len(piece) for piece in pieces] == [4, 4, 1, 1, 1, 1, 4]
    assert [part for piece in pieces for part in piece] == run
    assert split(run, lambda piece: False) == [run]
    assert split(run, lambda piece: True) == [run]
