"""The newest whole exchanges that fit: never too much, never too little, and standing still between its steps."""

import dataclasses

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from backscroll.exchanges import atoms, exchanges, sendable
from backscroll.types import Line
from backscroll.window import WindowLimits, window
from chats import assistant, calls, chats, lines_of, result, system, turns, user


def sent(chat) -> list[Line]:
    """The lines of a chat that may be sent, as a thread's whole history."""
    return lines_of([chat[place] for place in sendable(chat)])


def units_of(lines, unit) -> list[range]:
    return (atoms if unit == "message" else exchanges)([line.message.payload for line in lines])


@st.composite
def limits(draw: st.DrawFn) -> WindowLimits:
    """As assembling sets them: a step below the most, and room beyond it."""
    most = draw(st.integers(0, 2000))
    step = draw(st.sampled_from([0, most // 2, most // 4]))
    space = draw(st.integers(most, 4000))
    return WindowLimits(
        max_tokens=most,
        min_tokens=min(step, space),
        space_tokens=space,
        step_tokens=step,
        max_messages=draw(st.sampled_from([None, None, 0, 2, 5])),
        unit=draw(st.sampled_from(["exchange", "message"])),
        skip_oversized=draw(st.booleans()),
        from_first=True,
    )


@given(chats(), limits())
def test_whatever_the_limits_whole_units_stand_in_order_and_fit(chat, limits):
    lines = sent(chat)
    tokens = [line.tokens for line in lines]
    places = window(lines, tokens, limits)
    assert places == sorted(set(places))
    for atom in units_of(lines, "message"):
        assert set(atom) <= set(places) or not set(atom) & set(places)
    for unit in units_of(lines, limits.unit):
        is_oldest = bool(places) and places[0] in unit and bool(limits.step_tokens)  # its end fills a window too small
        assert set(unit) <= set(places) or not set(unit) & set(places) or is_oldest
    most = limits.space_tokens if limits.step_tokens and limits.max_messages is None else limits.max_tokens
    assert sum(tokens[place] for place in places) <= most


@given(chats(), limits())
def test_the_window_is_the_end_of_the_thread_unless_it_may_skip(chat, limits):
    lines = sent(chat)
    plain = dataclasses.replace(limits, skip_oversized=False)
    places = window(lines, [line.tokens for line in lines], plain)
    assert places == list(range(len(lines) - len(places), len(lines)))


@given(chats(), st.integers(0, 3000), st.sampled_from(["exchange", "message"]), st.booleans())
def test_newest_first_takes_what_the_obvious_loop_takes(chat, max_tokens, unit, skip_oversized):
    lines = sent(chat)
    tokens = [line.tokens for line in lines]
    expected: list[int] = []
    for run in reversed(units_of(lines, unit)):
        if sum(tokens[place] for place in [*expected, *run]) <= max_tokens:
            expected += run
        elif not skip_oversized:
            break
    free = WindowLimits(max_tokens, 0, max_tokens, 0, unit=unit, skip_oversized=skip_oversized)
    assert window(lines, tokens, free) == sorted(expected)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(40, 1200))
def test_the_window_holds_its_least_unless_one_exchange_does_not_fit(sizes, max_tokens):
    lines = lines_of([message for size in sizes for message in (user("van " * size), assistant("ok " * size))])
    tokens = [line.tokens for line in lines]
    half, quarter = max_tokens // 2, max_tokens // 4
    places = window(lines, tokens, WindowLimits(half, quarter, max_tokens, quarter, from_first=True))
    held = sum(tokens[place] for place in places)
    if held < quarter and len(places) < len(lines):
        older = range(len(lines) - len(places) - 2, len(lines) - len(places))
        assert held + sum(tokens[place] for place in older) > max_tokens
    if sum(tokens[-4:]) <= half:
        assert len(places) >= min(4, len(lines))


@given(st.lists(st.integers(1, 40), min_size=2, max_size=60), st.integers(100, 1200))
def test_growing_turn_by_turn_the_start_moves_forward_only_and_rarely(sizes, max_tokens):
    talk = [message for size in sizes for message in (user("van " * size), assistant("ok " * size))]
    lines = lines_of(talk)
    tokens = [line.tokens for line in lines]
    assume(max(tokens) * 2 <= max_tokens // 8)  # each exchange is small against a step
    limits = WindowLimits(max_tokens // 2, max_tokens // 4, max_tokens, max_tokens // 4, from_first=True)
    starts = []
    for length in range(2, len(lines) + 1, 2):
        places = window(lines[:length], tokens[:length], limits)
        starts.append(places[0])
    assert starts == sorted(starts)
    assert len(set(starts)) - 1 <= 2 * sum(tokens) / limits.step_tokens  # where it must hold more, it slides twice


def test_the_start_depends_on_the_lines_alone_and_not_on_how_many_were_read():
    lines = lines_of(turns(200))
    tokens = [line.tokens for line in lines]
    limits = WindowLimits(800, 400, 1600, 400, from_first=False)
    whole = window(lines, tokens, dataclasses.replace(limits, from_first=True))
    for read in (100, 101, 150, 303):
        shorter = window(lines[-read:], tokens[-read:], limits)
        assert [lines[-read:][place] for place in shorter] == [lines[place] for place in whole]


def test_a_thread_that_fits_is_in_the_window_whole_also_behind_a_system_prompt():
    lines = lines_of([system("Be brief."), *turns(20)])[1:]
    tokens = [line.tokens for line in lines]
    assert window(lines, tokens, WindowLimits(5000, 100, 5000, 100, from_first=True)) == list(range(40))


def test_the_first_exchange_is_left_out_where_it_may_lack_its_beginning():
    lines = lines_of(turns(3))[1:]
    tokens = [line.tokens for line in lines]
    assert window(lines, tokens, WindowLimits(5000, 100, 5000, 100, from_first=False)) == [1, 2, 3, 4]
    assert window(lines, tokens, WindowLimits(5000, 100, 5000, 100, from_first=True)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("max_messages", "expected"), [(0, []), (1, [6]), (2, [5, 6]), (3, [5, 6]), (5, [2, 3, 4, 5, 6])]
)
def test_a_window_of_so_many_messages_keeps_calls_whole(max_messages, expected):
    chat = [
        user("a"),
        assistant("b"),
        calls("c1", "c2"),
        result("c1", "d"),
        result("c2", "e"),
        user("f"),
        assistant("g"),
    ]
    lines = lines_of(chat)
    limits = WindowLimits(5000, 0, 5000, 0, max_messages=max_messages, unit="message")
    assert window(lines, [line.tokens for line in lines], limits) == expected


def test_a_call_with_more_results_than_messages_are_allowed_is_kept_whole():
    lines = lines_of([user("a"), calls("c1", "c2"), result("c1", "d"), result("c2", "e")])
    limits = WindowLimits(5000, 0, 5000, 0, max_messages=2, unit="message")
    assert window(lines, [line.tokens for line in lines], limits) == [1, 2, 3]


def test_a_thread_without_lines_has_an_empty_window():
    assert window([], [], WindowLimits(100, 50, 100, 50)) == []


def test_where_the_newest_exchange_does_not_fit_its_newest_messages_are_shown():
    run = [message for number in range(30) for message in (calls(f"c{number}"), result(f"c{number}", "km " * 60))]
    lines = sent([user("Refactor the billing."), *run, assistant("Done: Foo is Bar now.")])
    tokens = [line.tokens for line in lines]
    kept = window(lines, tokens, WindowLimits(1000, 500, 1900, 500, from_first=True))
    assert kept == list(range(kept[0], len(lines)))
    assert 500 <= sum(tokens[place] for place in kept) <= 1000
    assert lines[kept[0]].message.role == "assistant"  # a call, with its result


def test_many_messages_of_one_user_are_no_single_exchange_that_does_not_fit():
    lines = sent([user(f"Note {number}: van {number} is back.") for number in range(200)])
    tokens = [line.tokens for line in lines]
    kept = window(lines, tokens, WindowLimits(500, 250, 1000, 250, from_first=True))
    assert 250 <= sum(tokens[place] for place in kept) <= 500


def test_the_end_of_an_older_exchange_fills_a_window_that_holds_too_little():
    lines = sent([user("Begin."), *(assistant(f"Step {number} is done.") for number in range(200)), *turns(1)])
    tokens = [line.tokens for line in lines]
    kept = window(lines, tokens, WindowLimits(500, 250, 1000, 250, from_first=True))
    held = sum(tokens[place] for place in kept)
    assert 250 <= held < 250 + max(tokens)
    assert kept[-1] == len(lines) - 1
