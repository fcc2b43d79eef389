"""A history that the caller resends whole: what is new is stored once, and another way becomes a branch."""

import contextlib
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backscroll
from backscroll.errors import MessageError
from backscroll.fingerprint import fingerprint
from backscroll.memory import Memory, Thread
from backscroll.messages import parse_messages
from backscroll.resend import compare
from chats import all_text, assistant, calls, chats, result, system, turns, user

NAMES = iter(range(10**9))


def told(thread: Thread) -> list[dict]:
    return [dict(line.message.payload) for line in thread.lines()]


def stored_anywhere(memory: Memory) -> int:
    """Lines of all branches together."""
    rows = {line.row for info in memory.threads() for line in memory.thread(info.thread, info.user).lines()}
    return len(rows)


def branches(memory: Memory) -> list[tuple[str | None, int | None]]:
    return [(info.parent, info.fork_position) for info in memory.threads() if info.parent is not None]


TALK = [user("Where is van 7?"), assistant("In Lyon."), user("And van 8?"), assistant("In Turin.")]


# comparing


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_what_is_confirmed_and_what_is_new_make_up_what_was_resent(stored, resent):
    found = compare(list(map(ord, stored)), list(map(ord, resent)))
    kept = stored if not found.differs else stored[: found.same]
    after = [*kept, *resent[found.known :]]
    assert after[len(after) - len(resent) :] == resent if resent else after == []
    is_prefix = resent[: len(stored)] == stored
    assert not (is_prefix and found.differs)


def test_a_history_that_ends_earlier_goes_another_way():
    assert compare([1, 2, 3, 4], [1, 2, 3]).differs
    assert compare([1, 2, 3, 4], [1, 2, 3, 4]).known == 4


def test_a_history_cut_at_its_front_and_edited_goes_another_way_from_there():
    found = compare([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [4, 5, 6, 7, 77])
    assert (found.same, found.known, found.differs) == (8, 4, True)


def test_a_greeting_alone_does_not_say_where_a_history_goes_on():
    question, hello, other, answer, another = range(5)
    assert compare([question, hello, other, answer], [hello, another]).same == 0


# what is the same


@given(st.text(), st.sampled_from(["user", "assistant", "system"]), st.none() | st.text())
def test_a_message_of_text_alone_has_the_fingerprint_that_it_has_with_empty_keys_beside(text, role, name):
    plain = {"role": role, "content": text} | ({} if name is None else {"name": name})
    assert fingerprint(plain) == fingerprint({**plain, "name": name, "refusal": None})


# syncing


@pytest.mark.parametrize(
    "written",
    [
        user([{"type": "text", "text": "Where is van 7?"}]),
        {**user("Where is van 7?"), "name": None, "annotations": []},
        user(" Where is van 7?\n"),
    ],
)
def test_a_message_is_the_same_however_a_client_writes_it(memory, written):
    thread = memory.thread(f"chat {next(NAMES)}")
    thread.sync(TALK)
    assert thread.sync([written, *TALK[1:]]) == []


@pytest.mark.parametrize(
    "written",
    [
        assistant("<think>Which depot?</think>\n\nIn Lyon."),
        assistant(
            [{"type": "text", "text": "<thinking>Which depot?</thinking>"}, {"type": "text", "text": "In Lyon."}]
        ),
    ],
)
def test_a_reply_is_the_same_with_what_the_model_thought_in_front(memory, written):
    thread = memory.thread("chat")
    thread.sync(TALK)
    assert thread.sync([TALK[0], written, *TALK[2:]]) == []
    assert [line.message.text for line in memory.store.said("default", parse_messages(written)[0], 9)] == ["In Lyon."]


def test_a_call_is_the_same_with_what_the_model_thought_in_front(memory):
    thread = memory.thread("chat")
    thread.sync([TALK[0], calls("c1"), result("c1", "In Lyon.")])
    written = {**calls("c1"), "content": "<think>Which depot?</think>\n"}
    assert thread.sync([TALK[0], written, result("c1", "In Lyon.")]) == []


def test_what_a_user_writes_is_no_thought():
    resent = [user("<think>Hm.</think>Where is van 7?"), *TALK[1:]]
    assert compare(list(map(fingerprint, TALK)), list(map(fingerprint, resent))).same == 0


def test_a_call_is_the_same_with_other_spaces_in_its_arguments(memory):
    thread = memory.thread("calling")
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"van": 7, "now": true}'}}
    again = {**call, "function": {"name": "find", "arguments": '{"van":7,"now":true}'}}
    talk = [user("Where?"), {"role": "assistant", "content": None, "tool_calls": [call]}, result("c1", "In Lyon.")]
    thread.sync(talk)
    assert thread.sync([talk[0], {"role": "assistant", "content": "", "tool_calls": [again]}, talk[2]]) == []


def test_resending_the_whole_history_stores_nothing_twice(memory):
    thread = memory.thread("chat")
    assert [source.position for source in thread.sync(TALK)] == [0, 1, 2, 3]
    assert thread.sync(TALK) == []
    assert thread.sync([system("Be brief."), *TALK][1:]) == []
    assert [source.position for source in thread.sync([*TALK, user("And van 9?")])] == [4]
    assert told(thread) == [*TALK, user("And van 9?")]
    assert branches(memory) == []


@given(chat=chats())
def test_resending_any_history_growing_by_a_message_stores_each_once(shared_memory, chat):
    thread = shared_memory.thread("chat", user=f"resending {next(NAMES)}")
    for length in range(1, len(chat) + 1):
        thread.sync(chat[:length])
    first = next(
        (place for place, message in enumerate(chat) if message["role"] not in ("system", "developer")), len(chat)
    )
    assert told(thread)[first:] == chat[first:]
    assert not chat or thread.sync(chat) == []


def test_a_system_prompt_that_grows_before_anyone_speaks_is_stored_once(memory):
    thread = memory.thread("chat")
    thread.sync([system("S1")])
    thread.sync([system("S1"), system("S2")])
    assert told(thread) == [system("S1"), system("S2")]


def test_lines_whose_fingerprints_are_by_other_rules_are_known_all_the_same(tmp_path):
    with backscroll.open(tmp_path / "chat.db", embedder="hashing") as memory:
        thread = memory.thread("t")
        thread.sync(TALK)
        thread.sync([*TALK[:3], assistant("In Rome.")])
        with contextlib.closing(sqlite3.connect(tmp_path / "chat.db")) as other:
            other.execute("UPDATE lines SET fingerprint = row")
            other.commit()
        assert thread.sync([*TALK[:3], assistant("In Rome."), user("Thanks!")])[0].position == 4
        assert thread.sync(TALK) == []
        assert told(thread) == TALK
        assert len(branches(memory)) == 1
        memory.check(repair=True)


def test_of_system_prompts_that_change_with_every_turn_only_the_newest_is_held(memory):
    thread = memory.thread("chat")
    for hour in range(5):
        thread.sync([system(f"It is {hour}:00."), *TALK])
    assert [line.message.text for line in memory.store.pinned(thread.key)] == ["It is 4:00."]
    assert thread.context("Late?", max_tokens=500).messages[0] == system("It is 4:00.")


def test_an_empty_history_is_a_mistake_and_hides_nothing(memory):
    thread = memory.thread("chat")
    thread.sync(TALK)
    with pytest.raises(MessageError, match="not empty"):
        thread.sync([])
    assert told(thread) == TALK


def test_resending_the_newest_message_alone_stores_nothing(memory):
    thread = memory.thread("chat")
    thread.sync(TALK)
    assert thread.sync(TALK[-1:]) == []
    assert told(thread) == TALK


def test_a_caller_s_own_metadata_makes_no_system_prompt(memory):
    thread = memory.thread("chat")
    thread.append([system("Be kind."), {**user("hello"), "metadata": {"replaces_system": 5}}, assistant("hi")])
    thread.pin(1)
    context = thread.context("And?", max_tokens=500)
    assert context.messages[0] == system("Be kind.")
    assert "hello" in all_text(context.messages)


def test_an_edited_message_makes_a_branch_and_the_abandoned_lines_stay(memory):
    thread = memory.thread("chat")
    thread.sync(TALK)
    edited = [*TALK[:2], user("And the zeppelin?"), assistant("In the hangar.")]
    assert [source.position for source in thread.sync(edited)] == [2, 3]
    assert told(thread) == edited
    assert branches(memory) == [("chat", 2)]
    assert stored_anywhere(memory) >= 4
    texts = {hit.line.message.text for hit in memory.thread("new").recall("Where is van 8, Turin, the zeppelin?", k=20)}
    assert "In Turin." not in texts
    assert "And the zeppelin?" in texts
    context = memory.thread("new").context("Is van 8 in Turin?", max_tokens=1000)
    assert "In Turin." not in all_text(context.messages)


def test_going_back_to_the_old_history_makes_its_branch_current_again(memory):
    thread = memory.thread("chat")
    thread.sync(TALK)
    edited = [*TALK[:2], user("And the zeppelin?"), assistant("In the hangar.")]
    thread.sync(edited)
    assert thread.sync(TALK) == []
    assert told(thread) == TALK
    assert [source.position for source in thread.sync([*TALK, user("Thanks.")])] == [4]
    assert thread.sync(edited) == []
    assert told(thread) == edited
    assert len(branches(memory)) == 1
    texts = {hit.line.message.text for hit in memory.thread("new").recall("Where is van 8, Turin, the zeppelin?", k=20)}
    assert "In Turin." not in texts
    assert "And the zeppelin?" in texts


def test_a_shorter_history_asks_for_the_answer_again(memory):
    thread = memory.thread("chat")
    thread.sync(TALK)
    assert thread.sync(TALK[:3]) == []
    assert told(thread) == TALK[:3]
    assert thread.context(max_tokens=500).messages == TALK[:3]
    thread.append(assistant("In Genoa."))
    assert told(thread) == [*TALK[:3], assistant("In Genoa.")]
    assert thread.sync([*TALK[:3], assistant("In Genoa."), user("Thanks.")])[0].position == 4
    assert branches(memory) == [("chat", 3)]


def test_three_ways_from_one_place_are_three_branches(memory):
    thread = memory.thread("chat")
    ways = [[*TALK[:2], user(f"Way {number}?"), assistant(f"Answer {number}.")] for number in range(3)]
    for way in ways:
        thread.sync(way)
    assert told(thread) == ways[2]
    for way in [*ways, *reversed(ways)]:
        assert thread.sync(way) == []
        assert told(thread) == way
    assert len(branches(memory)) == 2


def test_a_branch_of_a_branch_goes_back_to_either(memory):
    thread = memory.thread("chat")
    first = TALK
    second = [*TALK[:2], user("Second?"), assistant("2."), user("More?"), assistant("22.")]
    third = [*second[:4], user("Third?"), assistant("3.")]
    for way in (first, second, third):
        thread.sync(way)
    for way in (first, third, second, first):
        assert thread.sync(way) == []
        assert told(thread) == way


def test_a_changed_system_prompt_is_taken_over_without_a_branch(memory):
    thread = memory.thread("chat")
    for prompt in ("Be brief.", "Be verbose.", "Be kind.", "Be brief."):
        thread.sync([system(prompt), *TALK])
        assert thread.sync([system(prompt), *TALK]) == []
        context = thread.context("And?", max_tokens=1000)
        assert context.messages == [system(prompt), *TALK, user("And?")]
    assert branches(memory) == []
    thread.sync([system("Be brief."), *TALK, user("And van 9?")])
    assert thread.context(max_tokens=1000).messages == [system("Be brief."), *TALK, user("And van 9?")]


def test_a_system_prompt_that_comes_later_leads_from_then_on(memory):
    thread = memory.thread("chat")
    thread.sync(TALK)
    thread.sync([system("Be brief."), *TALK])
    assert thread.context("And?", max_tokens=1000).messages == [system("Be brief."), *TALK, user("And?")]
    assert branches(memory) == []


def test_the_system_prompt_follows_an_edited_history(memory):
    thread = memory.thread("chat")
    thread.sync([system("Be brief."), *TALK])
    thread.sync([system("Be verbose."), *TALK])
    edited = [system("Be verbose."), *TALK[:2], user("And the zeppelin?")]
    thread.sync(edited)
    assert thread.context(max_tokens=1000).messages == edited


def test_a_pinned_system_message_is_not_taken_for_the_prompt(memory):
    thread = memory.thread("chat")
    talk = [system("Be brief."), *TALK[:2], system("The user is in Rome."), *TALK[2:]]
    thread.sync(talk)
    thread.pin(3)
    assert thread.sync(talk) == []
    assert len(thread.lines()) == len(talk)


def test_a_client_that_drops_its_oldest_messages_goes_on_without_a_branch(memory):
    thread = memory.thread("chat")
    talk = [system("Be brief."), *turns(10)]
    thread.sync(talk)
    for turn in range(5):
        resent = [talk[0], *talk[-4:], user(f"And now {turn}?"), assistant(f"Now {turn}.")]
        assert len(thread.sync(resent)) == 2
        assert thread.sync(resent) == []
        talk += resent[-2:]
        assert told(thread) == talk
        assert branches(memory) == []


def test_calls_and_results_are_matched_like_other_messages(memory):
    thread = memory.thread("chat")
    run = [user("How far?"), calls("c1", "c2"), result("c2", "3 km"), result("c1", "12 km"), assistant("12 km.")]
    thread.sync(run[:2])
    thread.sync(run[:4])
    thread.sync(run)
    assert told(thread) == run
    assert branches(memory) == []


def test_ids_and_times_are_kept_and_need_not_be_resent(memory):
    thread = memory.thread("chat")
    thread.sync([user("Hello.", id="m1", created_at="2026-05-01T12:00:00+02:00"), assistant("Hi.", id="m2")])
    assert thread.sync([user("Hello."), assistant("Hi."), user("Bye.", id="m3")])[0].id == "m3"
    assert [line.id for line in thread.lines()] == ["m1", "m2", "m3"]
    assert thread.lines()[0].created_at.isoformat() == "2026-05-01T12:00:00+02:00"


def test_an_edited_message_with_the_id_it_had_is_stored_in_the_branch(memory):
    thread = memory.thread("chat")
    thread.sync([user("Where?", id="m1"), assistant("Lyon.", id="m2"), user("Sure?", id="m3")])
    edited = [user("Where?", id="m1"), assistant("Turin.", id="m2"), user("Sure?", id="m3")]
    assert [source.position for source in thread.sync(edited)] == [1, 2]
    assert [line.message.text for line in thread.lines()] == ["Where?", "Turin.", "Sure?"]


@given(st.data())
def test_after_any_edits_the_thread_reads_as_it_was_resent_last(shared_memory, data):
    thread = shared_memory.thread("chat", user=f"editing {next(NAMES)}")
    history: list[dict] = []
    for _ in range(data.draw(st.integers(1, 7))):
        kept = data.draw(st.integers(0, len(history)))
        more = data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3))
        added = [(user if place % 2 == 0 else assistant)(text) for place, text in enumerate(more, start=kept)]
        history = [user("Start."), *[*history[1:kept], *added]]
        thread.sync(history)
        assert told(thread) == history
        assert [line.position for line in thread.lines()] == list(range(len(history)))
        assert thread.sync(history) == []


def test_what_was_recalled_on_an_abandoned_branch_is_not_in_the_buffer(memory):
    memory.thread("old").append(user("The zeppelin is in the hangar."))
    thread = memory.thread("chat")
    thread.sync(TALK)
    thread.context("Where is the zeppelin?", max_tokens=500)
    thread.sync([*TALK, user("Where is the zeppelin?"), assistant("In the hangar.")])
    thread.sync([*TALK[:1], assistant("In Nice.")])
    found = thread.context("Xyzzy?", max_tokens=500)
    assert "zeppelin" not in all_text(found.messages)


@pytest.mark.parametrize("given_messages", ["text", 7, [user("Fine."), {"role": "user"}]])
def test_what_is_no_history_is_refused_and_changes_nothing(memory, given_messages):
    thread = memory.thread("chat")
    thread.sync(TALK)
    with pytest.raises(ValueError, match="message"):
        thread.sync(given_messages)
    assert told(thread) == TALK
