"""One contract for all stores: each opener only says how it opens itself. `check` is clean after every test."""

import dataclasses
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

from backscroll.errors import MessageError, NotAStoreError, NotFoundError, StoreError
from backscroll.fingerprint import fingerprint
from backscroll.protocols import MemoryStore
from backscroll.stores import InMemoryStore, SQLiteStore, open_store
from backscroll.terms import terms
from backscroll.types import Line, Message, Scope, Span, Summary, ThreadKey, own_path

KEY = ThreadKey("alice", "boat")
OTHER = ThreadKey("bob", "boat")
NOON = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def count_message(message: Message) -> int:
    return len(message.text) // 4 + 3


def said(text: str, role: str = "user", **given) -> Message:
    name = given.pop("name", None)
    payload = {"role": role, "content": text} | ({"name": name} if name else {})
    return Message(role, payload, text, **given)


def texts(lines: list[Line]) -> list[str]:
    return [line.message.text for line in lines]


def unit(*numbers: float) -> np.ndarray:
    vector = np.array(numbers, np.float32)
    return vector / np.linalg.norm(vector)


def embed(store: MemoryStore, lines: list[Line], vectors: list[np.ndarray]) -> None:
    """One passage a line."""
    store.add_vectors(
        [line.row for line in lines], [[(0, len(line.message.text))] for line in lines], np.stack(vectors)
    )


def faults(store: MemoryStore) -> list:
    """What `check` finds, but for lines that nobody has embedded."""
    return [finding for finding in store.check() if "not embedded yet" not in finding.problem]


OPENERS: dict[str, Callable[[str], MemoryStore]] = {
    "sqlite": lambda folder: SQLiteStore(f"{folder}/chat.db", count_message),
    "sqlite url": lambda folder: open_store(f"sqlite:///{folder}/chat.db", count_message),
    "in memory": lambda folder: InMemoryStore(count_message),
}


@pytest.fixture(params=OPENERS)
def store(request, tmp_path) -> Iterator[MemoryStore]:
    store = OPENERS[request.param](str(tmp_path))
    yield store
    assert faults(store) == []
    store.close()


# appending and reading


def test_marks_tell_what_the_current_lines_say_and_of_system_prompts_what_is_noted(store):
    messages = [
        Message("system", {"role": "system", "content": "Be brief."}, "Be brief.", metadata={"times": 1}),
        said("a")._replace(metadata={"times": 2}),
        said("b"),
    ]
    store.append(KEY, messages)
    store.fork(KEY, 2)
    store.append(KEY, [said("c")])
    assert store.marks(KEY) == [
        (line.position, line.message.role, fingerprint(line.message.payload), noted)
        for line, noted in zip(store.read(KEY, 0, 9), [{"times": 1}, {}, {}], strict=True)
    ]
    assert store.marks(ThreadKey("alice", "nowhere")) == []


def test_what_is_appended_is_read_back_as_it_was_given(store):
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"q": "boat"}'}}
    messages = [
        Message("system", {"role": "system", "content": "Be brief."}, "Be brief.", metadata={"pin": [1, None]}),
        said("A boat — 小舟 \x00 😀", id="m1", created_at=NOON, name="Ann"),
        Message("assistant", {"role": "assistant", "content": None, "tool_calls": [call]}, "find {'q': 'boat'}"),
        Message("tool", {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "x"}]}, "x"),
    ]
    lines = store.append(KEY, messages)
    assert store.read(KEY, 0, 9) == lines == store.fetch([line.row for line in lines])
    assert [(line.message.role, dict(line.message.payload)) for line in lines] == [
        (message.role, dict(message.payload)) for message in messages
    ]
    assert texts(lines) == [message.text for message in messages]
    assert [line.message.metadata for line in lines] == [{"pin": [1, None]}, {}, {}, {}]
    assert [line.speaker for line in lines] == ["system", "Ann", "assistant", "tool"]
    assert [line.position for line in lines] == [0, 1, 2, 3]
    assert [line.tokens for line in lines] == [count_message(message) for message in messages]
    assert [line.offset for line in lines] == [sum(line.tokens for line in lines[:n]) for n in range(4)]
    assert (lines[1].id, lines[1].created_at) == ("m1", NOON)
    assert {(line.user, line.thread, line.family) for line in lines} == {("alice", "boat", "boat")}


def test_a_payload_keeps_the_order_of_its_keys(store):
    payload = {"content": "Hi!", "name": "Ann", "role": "user"}
    store.append(KEY, [Message("user", payload, "Hi!")])
    assert list(store.read(KEY, 0, 0)[0].message.payload) == ["content", "name", "role"]


def test_a_line_without_a_time_gets_the_time_of_storing(store):
    before = datetime.now(UTC)
    [line] = store.append(KEY, [said("now")])
    assert before <= line.created_at <= datetime.now(UTC)


def test_a_time_keeps_its_zone(store):
    given = datetime(2026, 5, 1, 9, 30, 0, 123456, tzinfo=timezone(timedelta(hours=-7)))
    store.append(KEY, [said("then", created_at=given)])
    [line] = store.read(KEY, 0, 0)
    assert (line.created_at, line.created_at.utcoffset()) == (given, given.utcoffset())


def test_a_time_without_a_zone_is_refused(store):
    with pytest.raises(MessageError, match="zone"):
        store.append(KEY, [said("then", created_at=datetime(2026, 5, 1))])  # noqa: DTZ001
    assert store.threads() == []


def test_text_that_is_no_text_is_refused_and_nothing_is_stored(store):
    with pytest.raises(MessageError):
        store.append(KEY, [said("fine"), said("half of a pair: \ud800")])
    assert store.read(KEY, 0, 9) == []


def test_an_id_given_twice_is_stored_once(store):
    first = store.append(KEY, [said("one", id="a"), said("two", id="b"), said("one again", id="a")])
    assert [line.position for line in first] == [0, 1, 0]
    again = store.append(KEY, [said("two changed", id="b"), said("three", id="c")])
    assert again[0] == first[1]
    assert texts(store.read(KEY, 0, 9)) == ["one", "two", "three"]


def test_a_line_is_found_by_its_id_on_the_current_path(store):
    assert store.find(KEY, "a") is None
    _, second = store.append(KEY, [said("one", id="a"), said("two", id="b")])
    assert store.find(KEY, "b") == second
    assert store.find(KEY, "c") is None
    assert store.find(ThreadKey(KEY.user, "another"), "b") is None
    store.fork(KEY, 1)
    assert store.find(KEY, "b") is None
    assert store.find(KEY, "a").position == 0


def test_the_same_id_in_another_thread_or_of_another_user_is_another_line(store):
    for key in (KEY, ThreadKey("alice", "hull"), OTHER):
        store.append(key, [said("one", id="a")])
    assert [info.lines for info in store.threads()] == [1, 1, 1]


def test_messages_without_an_id_get_one_and_are_always_added(store):
    lines = store.append(KEY, [said("ok"), said("ok")])
    assert lines[0].id != lines[1].id
    assert [line.position for line in lines] == [0, 1]


def test_ids_that_the_store_makes_are_uuids_that_begin_with_the_time(store):
    before = time.time_ns() // 1_000_000
    ids = [line.id for line in store.append(KEY, [said("a")] * 500)]
    after = time.time_ns() // 1_000_000
    assert len({one[12:] for one in ids}) == 500
    made = [uuid.UUID(one) for one in ids]
    assert [one.hex for one in made] == ids
    assert {(one.version, one.variant) for one in made} == {(7, uuid.RFC_4122)}
    assert all(before <= one.int >> 80 <= after for one in made)
    assert {one.hex[16] for one in made} == set("89ab")


def test_among_many_lines_those_that_are_there_or_come_twice_are_told_where_they_stand(store):
    [there] = store.append(KEY, [said("there", id="m1")])
    lines = store.append(KEY, [said("new"), said("x", id="m1"), said("y", id="m2"), said("z", id="m2"), said("last")])
    assert [line.position for line in lines] == [1, 0, 2, 2, 3]
    assert lines[1] == there
    assert store.read(KEY, 0, 9) == [there, lines[0], lines[2], lines[4]]
    assert [line.row for line in lines] == [there.row + n for n in (1, 0, 2, 2, 3)]


def test_the_row_of_a_deleted_line_is_never_given_again(store):
    lines = store.append(KEY, [said("a"), said("b")])
    store.delete("alice", "boat", 1)
    store.delete("alice")
    assert store.append(KEY, [said("c")])[0].row > lines[1].row


def test_nothing_appended_makes_no_thread(store):
    assert store.append(KEY, []) == []
    assert store.threads() == []


def test_a_thread_that_is_not_there_has_no_lines(store):
    assert store.read(KEY, 0, 9) == store.tail(KEY, 100) == store.pinned(KEY) == store.summaries(KEY) == []
    assert store.blocks(KEY, 9) == store.unembedded("alice", 9) == store.fetch([7]) == []
    assert store.unembedded_count("alice") == 0
    assert store.speakers(Scope("alice")) == ()


def test_the_tail_is_the_fewest_newest_lines_that_have_the_tokens(store):
    lines = store.append(KEY, [said("x" * 4 * n) for n in range(6)])  # 3 to 8 tokens
    for wanted in range(40):
        expected = next((lines[n:] for n in range(5, -1, -1) if sum(li.tokens for li in lines[n:]) >= wanted), lines)
        assert store.tail(KEY, wanted) == ([] if wanted == 0 else expected)


def test_lines_are_fetched_in_the_order_asked_without_those_that_are_gone(store):
    lines = store.append(KEY, [said(str(n)) for n in range(1200)])
    asked = [line.row for line in reversed(lines)]
    assert store.fetch([asked[0], 10**9, asked[0], *asked[1:]]) == [lines[-1], *reversed(lines)]


def test_pinned_lines_are_listed_in_order(store):
    store.append(KEY, [said("one"), said("two"), said("three")])
    assert store.pin(KEY, 2, True).pinned
    assert store.pin(KEY, 0, True).position == 0
    assert texts(store.pinned(KEY)) == ["one", "three"]
    assert store.pin(KEY, 0, False) == store.read(KEY, 0, 0)[0]
    assert texts(store.pinned(KEY)) == ["three"]
    with pytest.raises(NotFoundError):
        store.pin(KEY, 3, True)


def test_threads_are_listed_with_what_they_hold(store):
    store.append(OTHER, [said("hello", created_at=NOON)])
    lines = store.append(KEY, [said("one", created_at=NOON), said("two", created_at=NOON + timedelta(days=1))])
    assert [(info.user, info.thread) for info in store.threads()] == [("bob", "boat"), ("alice", "boat")]
    [info] = store.threads("alice")
    assert (info.lines, info.tokens) == (2, sum(line.tokens for line in lines))
    assert (info.first_at, info.last_at) == (NOON, NOON + timedelta(days=1))
    assert (info.parent, info.fork_position, info.head) == (None, None, "boat")
    assert store.threads("nobody") == []


# branches


def test_a_fork_goes_on_from_its_position_and_keeps_what_it_left(store):
    store.append(KEY, [said("a"), said("b"), said("c")])
    branch = store.fork(KEY, 1)
    store.append(KEY, [said("B"), said("C"), said("D")])
    assert branch == ("alice", "boat~1")
    assert texts(store.read(KEY, 0, 9)) == texts(store.read(branch, 0, 9)) == ["a", "B", "C", "D"]
    assert [line.position for line in store.read(KEY, 0, 9)] == [0, 1, 2, 3]
    assert [line.thread for line in store.read(KEY, 0, 1)] == ["boat", "boat~1"]
    assert {line.family for line in store.read(KEY, 0, 9)} == {"boat"}
    store.switch(KEY, "boat")
    assert texts(store.read(KEY, 0, 9)) == texts(store.tail(KEY, 99)) == ["a", "b", "c"]
    assert texts(store.read(branch, 0, 9)) == ["a", "B", "C", "D"]


def test_a_fork_of_a_fork_in_front_of_it_leaves_both(store):
    store.append(KEY, [said("a"), said("b"), said("c")])
    store.fork(KEY, 2)
    store.append(KEY, [said("C")])
    store.fork(KEY, 1)
    store.append(KEY, [said("bb")])
    assert texts(store.read(KEY, 0, 9)) == ["a", "bb"]
    infos = {info.thread: info for info in store.threads("alice")}
    assert {name: (info.parent, info.fork_position, info.lines, info.head) for name, info in infos.items()} == {
        "boat": (None, None, 2, "boat~2"),
        "boat~1": ("boat", 2, 3, "boat~1"),
        "boat~2": ("boat~1", 1, 2, "boat~2"),
    }


def test_an_id_on_the_path_is_known_and_one_that_was_left_is_not(store):
    store.append(KEY, [said("a", id="a"), said("b", id="b")])
    store.fork(KEY, 1)
    lines = store.append(KEY, [said("a?", id="a"), said("B", id="b")])
    assert [(line.message.text, line.thread) for line in lines] == [("a", "boat"), ("B", "boat~1")]
    assert store.append(KEY, [said("again", id="b")]) == [lines[1]]


def test_the_offset_goes_on_from_the_line_in_front_of_the_fork(store):
    lines = store.append(KEY, [said("a" * 40), said("b" * 80), said("c")])
    store.fork(KEY, 2)
    [line] = store.append(KEY, [said("C")])
    assert line.offset == lines[0].tokens + lines[1].tokens


def test_a_line_appended_to_a_branch_that_is_not_the_head_is_not_current(store):
    store.append(KEY, [said("a")])
    branch = store.fork(KEY, 1)
    store.append(branch, [said("red")])
    store.switch(KEY, "boat")
    store.append(branch, [said("blue")])
    assert texts(store.read(KEY, 0, 9)) == ["a"]
    assert texts(store.read(branch, 0, 9)) == ["a", "red", "blue"]


@pytest.mark.parametrize("name", ["boat~0", "boat~3", "~~12"])
def test_a_new_thread_cannot_be_named_like_a_branch(store, name):
    for make in (lambda key: store.append(key, [said("mine")]), lambda key: store.put_blocks(key, 0, [], 1)):
        with pytest.raises(MessageError, match="name the branches"):
            make(ThreadKey("alice", name))
    assert store.threads() == []


@pytest.mark.parametrize("name", ["boat~", "boat~x", "boat ~1x", "~", "2~", "1"])
def test_other_names_with_a_tilde_or_a_number_are_free(store, name):
    store.append(ThreadKey("alice", name), [said("mine")])
    assert [info.thread for info in store.threads()] == [name]


def test_nothing_is_added_to_the_lines_that_a_thread_had_before_it_branched(store):
    store.append(KEY, [said("a"), said("b")])
    branch = store.fork(KEY, 1)
    own = ThreadKey("alice", own_path("boat"))
    with pytest.raises(MessageError, match="add to 'boat'"):
        store.append(own, [said("c")])
    store.append(branch, [said("B")])
    assert texts(store.read(own, 0, 9)) == ["a", "b"]
    assert texts(store.read(KEY, 0, 9)) == ["a", "B"]


def test_what_cannot_be_forked_or_switched_says_why(store):
    with pytest.raises(NotFoundError, match="no thread 'boat'"):
        store.fork(KEY, 0)
    store.append(KEY, [said("a")])
    for position in (-1, 2):
        with pytest.raises(NotFoundError, match="0 to 1"):
            store.fork(KEY, position)
    with pytest.raises(NotFoundError, match="it has boat"):
        store.switch(KEY, "boat~7")


def test_the_abandoned_lines_are_not_found_until_the_thread_switches_back(store):
    lines = store.append(KEY, [said("red paint"), said("blue paint")])
    embed(store, lines, [unit(1, 0), unit(0, 1)])
    found = lambda: set(store.search(Scope("alice"), unit(1, 1), terms("paint"), 9, 3).row.tolist())  # noqa: E731
    assert found() == {line.row for line in lines}
    store.fork(KEY, 1)
    assert found() == {lines[0].row}
    [green] = store.append(KEY, [said("green paint")])
    assert found() == {lines[0].row, green.row}
    store.switch(KEY, "boat")
    assert found() == {line.row for line in lines}
    assert set(store.search(Scope("alice", "boat~1"), None, terms("paint"), 9, 3).row) == {lines[0].row, green.row}


def test_what_is_put_takes_the_place_of_the_line_with_its_id(store):
    store.append(KEY, [said("a", id="1"), said("b", id="2")])
    put = store.put(KEY, said("new", id="1"), pinned=True)
    assert (put.position, put.pinned) == (2, True)
    assert store.read(KEY, 0, 9)[1:] == [put]
    assert texts(store.read(KEY, 0, 9)) == ["b", "new"]
    assert [line.id for line in store.unembedded(None, 9)] == ["2", "1"]


def test_what_is_put_into_a_new_thread_is_its_first_line(store):
    put = store.put(KEY, said("a", id="1"), pinned=False)
    assert store.read(KEY, 0, 9) == [put]
    assert store.pinned(KEY) == []


def test_what_cannot_be_put_leaves_the_old_line(store):
    lines = store.append(KEY, [said("a", id="1")])
    with pytest.raises(MessageError):
        store.put(KEY, said("\ud83d", id="1"), pinned=False)
    assert store.read(KEY, 0, 9) == lines


def test_threads_that_are_searched_beside_bring_lines_without_neighbors(store):
    store.append(KEY, [said("the gate is blue"), said("b"), said("c")])
    beside = ThreadKey("bob", "known")
    store.append(beside, [said("the gate is red", "system"), said("e", "system"), said("f", "user")])
    store.append(OTHER, [said("the gate is green")])
    found = store.search(Scope("alice", None, frozenset({"user"}), (beside,)), None, terms("gate"), 9, 2)
    assert [line.message.text for line in store.fetch([int(row) for row in found.row])] == [
        *("the gate is blue", "b", "c"),
        *("the gate is red", "e", "f"),
    ]
    assert [found.families[code] for code in found.family] == [KEY] * 3 + [beside] * 3
    assert len(set(found.family[3:])) == 3
    assert [bool(score) for score in found.lexical] == [True, False, False, True, False, False]


# summaries, buffers, settings


def summary(first: int, last: int, *sentences: str, thread: str = "boat", method: str = "extractive-1") -> Summary:
    return Summary("alice", thread, first, last, sentences, method, NOON)


def test_lines_are_found_by_what_they_say_in_whatever_thread_and_never_another_users(store):
    store.append(OTHER, [said("Hi!")])
    first = store.append(KEY, [said("Hi!"), said("Hello!", role="assistant")])[0]
    again = store.append(ThreadKey("alice", "car"), [said("Hi! "), said("Hi?")])[0]
    store.fork(KEY, 0)
    assert [line.row for line in store.said("alice", said("Hi!"), 9)] == [again.row, first.row]
    assert [line.row for line in store.said("alice", said("Hi!"), 1)] == [again.row]
    assert store.said("carol", said("Hi!"), 9) == []


def test_one_thread_is_listed_with_its_branches(store):
    store.append(KEY, [said("a"), said("b")])
    store.append(ThreadKey("alice", "car"), [said("c")])
    branch = store.fork(KEY, 1)
    assert [info.thread for info in store.threads("alice", KEY.thread)] == [KEY.thread, branch.thread]
    assert store.threads("alice", "plane") == []


def test_summaries_come_by_first_position_then_longest_first(store):
    store.append(KEY, [said(str(n)) for n in range(9)])
    made = dataclasses.replace(summary(0, 3, "b", method="model-1"), made_at=NOON + timedelta(days=1))
    given = [summary(4, 6, "c"), made, summary(0, 3, "b"), summary(0, 7, "a", "with 小舟")]
    for one in given:
        store.add_summary(one)
    assert store.summaries(KEY) == given[::-1]


def test_a_summary_of_the_same_lines_by_the_same_method_is_replaced(store):
    store.append(KEY, [said("a"), said("b")])
    for one in (summary(0, 1, "old"), summary(0, 1, "new"), summary(0, 1, "other", method="llm-1")):
        store.add_summary(one)
    assert [one.sentences for one in store.summaries(KEY)] == [("new",), ("other",)]


def test_a_summary_of_a_thread_that_is_not_there_is_refused(store):
    with pytest.raises(NotFoundError):
        store.add_summary(summary(0, 1, "of nothing"))


def test_a_summary_of_lines_that_were_read_before_a_deletion_is_not_kept(store):
    store.append(KEY, [said(str(n)) for n in range(4)])
    mark = store.deletions("alice")
    store.append(KEY, [said("more")])
    store.append(OTHER, [said("elsewhere")])
    store.delete("bob")
    assert store.add_summary(summary(0, 1, "0 and 1"), mark)
    store.delete("alice", "boat", 3)
    assert not store.add_summary(summary(2, 3, "2 and 3"), mark)
    assert [one.sentences for one in store.summaries(KEY)] == [("0 and 1",)]
    assert store.add_summary(summary(2, 3, "2"), store.deletions("alice"))


def test_a_summary_of_a_deleted_user_is_not_kept_for_one_of_the_same_name(store):
    store.append(KEY, [said("old")])
    mark = store.deletions("alice")
    store.delete("alice")
    assert not store.add_summary(summary(0, 0, "old"), mark)
    store.append(KEY, [said("new")])
    assert not store.add_summary(summary(0, 0, "old"), mark)
    assert store.summaries(KEY) == []


def test_what_is_done_exclusively_is_stored_whole_or_not_at_all(store):
    store.append(KEY, [said("a"), said("b")])
    with store.exclusive():
        assert store.read(KEY, 1, 1)[0].position == 1
        store.fork(KEY, 1)
        store.append(KEY, [said("B")])
    with pytest.raises(KeyError), store.exclusive():
        store.fork(KEY, 0)
        [line] = store.append(KEY, [said("lost")])
        assert line.row in store.search(Scope("alice"), None, terms("lost"), 9, 0).row
        raise KeyError
    assert texts(store.read(KEY, 0, 9)) == ["a", "B"]
    assert [info.thread for info in store.threads()] == ["boat", "boat~1"]
    [found] = store.append(KEY, [said("kept")])
    assert not store.search(Scope("alice"), None, terms("lost"), 9, 0).lexical.any()
    assert found.row in store.search(Scope("alice"), None, terms("kept"), 1, 0).row


def test_a_call_that_fails_in_an_exclusive_block_takes_back_only_itself(store):
    with store.exclusive():
        store.append(KEY, [said("a")])
        with pytest.raises(MessageError):
            store.append(KEY, [said("fine"), said("half of a pair: \ud800")])
        with store.exclusive():
            store.append(KEY, [said("b")])
        store.append(KEY, [said("c")])
    assert texts(store.read(KEY, 0, 9)) == ["a", "b", "c"]


def test_summaries_and_blocks_of_abandoned_lines_are_out_of_sight_until_the_switch_back(store):
    store.append(KEY, [said(str(n)) for n in range(8)])
    for one in (summary(0, 2, "early"), summary(3, 5, "late")):
        store.add_summary(one)
    store.put_blocks(KEY, 4, [span(0, 1, 4), span(3, 3, 4)], 10)
    store.put_blocks(KEY, 7, [span(1, 2, 7)], 10)
    store.fork(KEY, 3)
    store.append(KEY, [said("other") for _ in range(4)])
    assert [one.sentences for one in store.summaries(KEY)] == [("early",)]
    assert store.blocks(KEY, 99) == []
    store.add_summary(summary(3, 5, "of the branch"))
    store.put_blocks(KEY, 5, [span(3, 4, 5)], 10)
    assert [one.sentences for one in store.summaries(KEY)] == [("early",), ("of the branch",)]
    assert store.blocks(KEY, 99) == [span(3, 4, 5)]
    store.switch(KEY, "boat")
    assert [one.sentences for one in store.summaries(KEY)] == [("early",), ("late",)]
    assert store.blocks(KEY, 99) == [span(0, 1, 4), span(3, 3, 4), span(1, 2, 7)]


def span(first: int, last: int, asked_at: int, key: ThreadKey = KEY) -> Span:
    return Span(key.user, key.thread, first, last, 0.5 + first, 0.25, asked_at)


def test_asking_again_at_a_position_replaces_what_was_recalled_there(store):
    store.append(KEY, [said(str(n)) for n in range(4)])
    store.put_blocks(KEY, 4, [span(0, 1, 4), span(3, 3, 4)], 10)
    store.put_blocks(KEY, 4, [span(2, 2, 4)], 10)
    assert store.blocks(KEY, 5) == [span(2, 2, 4)]
    assert store.blocks(KEY, 4) == []


def test_only_the_newest_blocks_up_to_there_are_kept(store):
    store.append(KEY, [said(str(n)) for n in range(9)])
    for asked_at in range(1, 6):
        store.put_blocks(KEY, asked_at, [span(0, 0, asked_at), span(1, 1, asked_at)], 5)
    assert store.blocks(KEY, 9) == [span(1, 1, 3)] + [span(n, n, at) for at in (4, 5) for n in (0, 1)]
    store.put_blocks(KEY, 4, [span(2, 2, 4)], 1)
    assert store.blocks(KEY, 9) == [span(2, 2, 4), span(0, 0, 5), span(1, 1, 5)]


def test_blocks_that_are_out_of_sight_take_no_room(store):
    hull = ThreadKey("alice", "hull")
    for key in (KEY, hull):
        store.append(key, [said(str(n)) for n in range(9)])
    store.put_blocks(KEY, 1, [span(0, 0, 1)], 2)
    store.put_blocks(KEY, 2, [span(8, 8, 2, hull)], 2)
    store.fork(hull, 4)
    store.put_blocks(KEY, 3, [span(1, 1, 3)], 2)
    assert store.blocks(KEY, 9) == [span(0, 0, 1), span(1, 1, 3)]
    store.switch(hull, "hull")
    assert store.blocks(KEY, 9) == [span(0, 0, 1), span(8, 8, 2, hull), span(1, 1, 3)]


def test_a_thread_may_be_asked_before_it_has_lines_and_is_not_listed_for_it(store):
    store.append(ThreadKey("alice", "hull"), [said("a"), said("b")])
    recalled = span(0, 1, 0, ThreadKey("alice", "hull"))
    store.put_blocks(KEY, 0, [recalled], 10)
    assert store.blocks(KEY, 1) == [recalled]
    assert [info.thread for info in store.threads("alice")] == ["hull"]
    assert store.append(KEY, [said("first")])[0].position == 0
    assert store.delete("alice", "hull") == 2
    assert store.blocks(KEY, 1) == []


def test_settings_are_kept_by_name(store):
    assert store.setting("embedder") is None
    store.put_setting("embedder", "hashing")
    store.put_setting("embedder", "local")
    assert store.setting("embedder") == "local"


# vectors


def test_lines_without_vectors_come_oldest_first(store):
    mine = store.append(KEY, [said("one"), said("two"), said("three")])
    [theirs] = store.append(OTHER, [said("four")])
    assert store.unembedded("alice", 2) == mine[:2]
    assert store.unembedded(None, 9) == [*mine, theirs]
    embed(store, mine[:1], [unit(1, 0)])
    assert store.unembedded("alice", 9) == mine[1:]
    assert (store.unembedded_count("alice"), store.unembedded_count(None)) == (2, 3)


def test_a_line_may_have_several_passages_or_none(store):
    long, empty = store.append(KEY, [said("first half, second half"), said("")])
    store.add_vectors([long.row, empty.row], [[(0, 10), (12, 23)], []], np.stack([unit(1, 0), unit(0, 1)]))
    assert store.unembedded_count(None) == 0
    assert (store.passage(long.row, 0), store.passage(long.row, 1)) == ((0, 10), (12, 23))
    with pytest.raises(NotFoundError):
        store.passage(long.row, 2)


def test_vectors_of_lines_that_are_gone_or_embedded_are_skipped(store):
    lines = store.append(KEY, [said("one"), said("two")])
    embed(store, lines[:1], [unit(1, 0)])
    store.delete("alice", "boat", 1)
    embed(store, lines, [unit(0, 1), unit(0, 1)])
    assert store.search(Scope("alice"), unit(1, 0), (), 9, 0).dense.tolist() == pytest.approx([1])


def test_vectors_of_several_users_and_of_a_row_twice_are_stored_by_their_lines(store):
    [mine, yours, also_mine] = [store.append(key, [said("one")])[0] for key in (KEY, OTHER, KEY)]
    rows = [mine.row, 999, yours.row, mine.row, also_mine.row]
    spans = [[(0, 1), (1, 3)], [(0, 3)], [(0, 3)], [(0, 3)], [(0, 2)]]
    store.add_vectors(rows, spans, np.stack([unit(1, 0), unit(0, 1), unit(-1, 0), unit(1, 1), unit(0, -1), unit(3, 4)]))
    assert [store.passage(mine.row, n) for n in (0, 1)] == [(0, 1), (1, 3)]
    assert (store.passage(yours.row, 0), store.passage(also_mine.row, 0)) == ((0, 3), (0, 2))
    found = store.search(Scope("alice"), unit(3, 4), (), 9, 0)
    assert dict(zip(found.row.tolist(), found.dense, strict=True)) == pytest.approx(
        {mine.row: 4 / 5, also_mine.row: 1}, abs=0.01
    )
    assert store.search(Scope("bob"), unit(1, 1), (), 9, 0).dense.tolist() == pytest.approx([1], abs=0.01)


def test_vectors_of_another_length_are_refused(store):
    lines = store.append(KEY, [said("one"), said("two")])
    embed(store, lines[:1], [unit(1, 0)])
    with pytest.raises(StoreError, match="2 numbers, these have 3"):
        embed(store, lines[1:], [unit(1, 0, 0)])
    with pytest.raises(StoreError, match="reembed"):
        store.search(Scope("alice"), unit(1, 0, 0), (), 9, 0)
    store.drop_vectors()
    assert store.unembedded_count(None) == 2
    embed(store, lines, [unit(1, 0, 0), unit(0, 1, 0)])
    assert store.search(Scope("alice"), unit(1, 0, 0), (), 9, 0).dense.tolist() == pytest.approx([1, 0])


def test_vectors_that_do_not_match_the_passages_are_a_mistake(store):
    [line] = store.append(KEY, [said("one")])
    with pytest.raises(ValueError, match="2 passages got 1"):
        store.add_vectors([line.row], [[(0, 1), (1, 2)]], np.stack([unit(1, 0)]))


# deleting


def test_a_deleted_line_leaves_a_hole_and_its_position_is_never_used_again(store):
    lines = store.append(KEY, [said("a"), said("b"), said("c")])
    assert store.delete("alice", "boat", 2) == store.delete("alice", "boat", 0) == 1
    [line] = store.append(KEY, [said("d")])
    assert line.position == 3
    assert line.row > lines[2].row
    assert texts(store.read(KEY, 0, 9)) == texts(store.tail(KEY, 99)) == ["b", "d"]


def test_deleting_a_line_takes_what_was_derived_from_it(store):
    lines = store.append(KEY, [said("red paint"), said("blue paint"), said("green paint")])
    embed(store, lines, [unit(1, 0), unit(0, 1), unit(1, 1)])
    for one in (summary(0, 1, "red, blue"), summary(2, 2, "green")):
        store.add_summary(one)
    store.put_blocks(KEY, 3, [span(0, 0, 3), span(1, 2, 3)], 9)
    store.search(Scope("alice"), None, terms("blue"), 9, 0)
    store.delete("alice", "boat", 1)
    found = store.search(Scope("alice"), unit(0, 1), terms("blue paint"), 9, 3)
    assert found.row.tolist() == [lines[0].row, lines[2].row]
    assert [one.sentences for one in store.summaries(KEY)] == [("green",)]
    assert store.blocks(KEY, 9) == [span(0, 0, 3)]


def test_several_lines_are_deleted_together_or_none(store):
    lines = store.append(KEY, [said("a"), said("b"), said("c")])
    for beyond in (3, 2**62, 10**20):
        with pytest.raises(NotFoundError, match=str(beyond)):
            store.delete("alice", "boat", [0, beyond])
    assert store.read(KEY, 0, 9) == lines
    assert store.delete("alice", "boat", []) == 0
    assert store.delete("alice", "boat", [0, 2]) == 2
    assert store.read(KEY, 0, 9) == lines[1:2]


def test_deleting_a_thread_by_its_roots_name_takes_all_its_branches(store):
    store.append(KEY, [said("a"), said("b")])
    store.fork(KEY, 1)
    store.append(KEY, [said("B"), said("C")])
    store.append(ThreadKey("alice", "hull"), [said("stays")])
    assert store.delete("alice", "boat") == 4
    assert [info.thread for info in store.threads()] == ["hull"]
    assert store.append(KEY, [said("anew")])[0].position == 0


def test_deleting_a_branch_takes_those_that_left_it_and_gives_the_name_back_to_its_parent(store):
    store.append(KEY, [said("a"), said("b")])
    branch = store.fork(KEY, 1)
    store.append(KEY, [said("B")])
    store.fork(KEY, 2)
    store.append(KEY, [said("C")])
    assert texts(store.read(KEY, 0, 9)) == ["a", "B", "C"]
    assert store.delete(*branch) == 2
    assert [info.thread for info in store.threads()] == ["boat"]
    assert texts(store.read(KEY, 0, 9)) == ["a", "b"]


def test_deleting_a_user_takes_everything_of_it_and_nothing_of_others(store):
    store.append(KEY, [said("a"), said("b")])
    store.append(ThreadKey("alice", "hull"), [said("c")])
    [theirs] = store.append(OTHER, [said("mine")])
    store.put_blocks(OTHER, 1, [span(0, 1, 1), span(0, 0, 1, OTHER)], 9)
    assert store.delete("alice") == 3
    assert store.threads("alice") == []
    assert store.read(OTHER, 0, 9) == [theirs]
    assert store.blocks(OTHER, 9) == [span(0, 0, 1, OTHER)]
    assert len(store.search(Scope("alice"), None, terms("a"), 9, 0).row) == 0


def test_what_is_not_there_cannot_be_deleted(store):
    store.append(KEY, [said("a")])
    for missing in (("bob",), ("alice", "hull"), ("alice", "boat", 1), ("alice", None, 0)):
        with pytest.raises(NotFoundError):
            store.delete(*missing)


# closing


def test_a_closed_store_says_so(tmp_path):
    store = SQLiteStore(tmp_path / "chat.db", count_message)
    store.close()
    store.close()
    for use in (
        lambda: store.append(KEY, [said("a")]),
        lambda: store.put_blocks(KEY, 0, [], 1),
        lambda: store.threads(),
        lambda: store.delete("alice"),
    ):
        with pytest.raises(StoreError, match="open it again"):
            use()


def test_lines_wait_for_the_disk_and_what_is_derived_of_them_does_not(tmp_path):
    store = SQLiteStore(tmp_path / "chat.db", count_message)
    connection = store._connection._connection
    committed: list[int] = []

    def traced(cursor: object, statement: str, bindings: object) -> bool:
        if statement == "COMMIT":
            connection.exec_trace = None
            committed.append(connection.pragma("synchronous"))
            connection.exec_trace = traced
        return True

    connection.exec_trace = traced
    [line] = store.append(KEY, [said("a")])
    store.add_vectors([line.row], [[(0, 1)]], np.array([unit(1, 0)], dtype=np.float32))
    store.put_blocks(KEY, 1, [], 1)
    with pytest.raises(MessageError):
        store.put_blocks(ThreadKey("alice", "boat~7"), 1, [], 1)
    store.append(KEY, [said("b")])
    with store.exclusive():
        store.put_blocks(KEY, 1, [], 1)
    full, normal = 2, 1
    assert committed == [full, normal, normal, full, full]
    store.close()


def test_a_file_opened_again_holds_what_was_stored(tmp_path):
    store = SQLiteStore(tmp_path / "chat.db", count_message)
    lines = store.append(KEY, [said("a"), said("b")])
    embed(store, lines, [unit(1, 0), unit(0, 1)])
    store.close()
    again = open_store(str(tmp_path / "chat.db"), count_message)
    assert again.read(KEY, 0, 9) == lines
    assert again.search(Scope("alice"), unit(1, 0), (), 9, 0).dense.tolist() == pytest.approx([1, 0])
    again.close()


def test_a_url_of_an_unknown_kind_names_the_known_ones(tmp_path):
    with pytest.raises(NotFoundError, match="sqlite:///"):
        open_store("redis://localhost", count_message)


def test_a_store_in_memory_is_its_own(tmp_path):
    first, second = open_store(":memory:", count_message), open_store("sqlite:///:memory:", count_message)
    first.append(KEY, [said("a")])
    assert second.threads() == []
    first.close()
    second.close()


def test_lines_are_frozen(store):
    [line] = store.append(KEY, [said("a")])
    with pytest.raises(AttributeError):
        line.position = 7


def test_a_store_of_another_program_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_bytes(b"These are notes, not a database.\n" * 99)
    with pytest.raises(NotAStoreError, match="not a store"):
        SQLiteStore(tmp_path / "notes.txt", count_message)
    assert (tmp_path / "notes.txt").read_bytes() == b"These are notes, not a database.\n" * 99
