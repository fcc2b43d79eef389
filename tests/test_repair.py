"""Messages become such that every provider takes them, and doing it twice changes nothing."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backscroll.exchanges import sendable
from backscroll.repair import OPENING, repair
from chats import MARK, TEXTS, all_text, assistant, calls, chats, faults, image, marks_in, result, system, text_in, user


@given(chats(), st.booleans())
def test_any_messages_become_valid_and_stay_so(chat, merge_roles):
    before = copy.deepcopy(chat)
    once = repair(chat, merge_roles)
    assert faults(once, alternating=merge_roles) == []
    assert repair(once, merge_roles) == once
    assert chat == before


@given(chats(), st.booleans())
def test_all_that_may_be_sent_is_in_it_once_and_in_order(chat, merge_roles):
    sent = [mark for place in sendable(chat) for mark in marks_in(text_in(chat[place]))]
    text = all_text(repair(chat, merge_roles))
    given_text = all_text([chat[place] for place in sendable(chat)])
    assert sorted(marks_in(text)) == sorted(sent)
    assert MARK.findall(text) == MARK.findall(given_text) or merge_roles
    assert sorted(MARK.findall(text)) == sorted(MARK.findall(given_text))


def test_without_merging_valid_messages_pass_as_they_are():
    talk = [system("Be brief."), user("a"), user("b", name="Ann"), calls("c1"), result("c1", ""), assistant("c")]
    assert repair(talk, merge_roles=False) == talk


def test_neighbors_of_the_same_role_become_one_message():
    assert repair([user("a"), user("b"), assistant("c"), assistant("d")], merge_roles=True) == [
        user("a\n\nb"),
        assistant("c\n\nd"),
    ]


def test_where_different_people_spoke_each_is_named_in_the_text():
    said = [user("a", name="Ann"), user("b", name="Ann"), user("c", name="Bob"), user("d"), user("e", name="Ann")]
    assert repair(said[:2], merge_roles=True) == [user("a\n\nb", name="Ann")]
    assert repair(said, merge_roles=True) == [user("Ann: a\n\nb\n\nBob: c\n\nd\n\nAnn: e")]


def test_parts_stay_parts_when_messages_become_one():
    picture = image("https://example.com/van.png")
    assert repair([user("See:"), user([picture], name="Ann")], merge_roles=True) == [
        user([{"type": "text", "text": "See:"}, {"type": "text", "text": "Ann:"}, picture])
    ]


@pytest.mark.parametrize(("said", "together"), [(None, "Wait."), ("", "Wait."), ("Now.", "Wait.\n\nNow.")])
def test_what_an_assistant_says_before_a_call_goes_into_the_message_of_the_call(said, together):
    talk = [user("How far?"), assistant("Wait."), calls("c1", content=said), result("c1", "12 km"), assistant("12 km.")]
    assert repair(talk, merge_roles=True) == [talk[0], calls("c1", content=together), *talk[3:]]


def test_keys_that_say_nothing_are_no_reason_to_speak_twice():
    dumped = {"role": "assistant", "content": "b", "refusal": None, "tool_calls": None, "annotations": []}
    assert repair([user("a"), dumped, assistant("c")], merge_roles=True) == [user("a"), assistant("b\n\nc")]


def test_a_user_opens_where_the_first_message_would_be_the_assistants():
    assert repair([system("Be brief."), assistant("Hi.")], merge_roles=True) == [
        system("Be brief."),
        user(OPENING),
        assistant("Hi."),
    ]


@given(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=4))
def test_one_users_texts_are_joined_to_the_letter(texts):
    assert repair([user(text) for text in texts], merge_roles=True) == [user("\n\n".join(texts))]


def test_of_nothing_comes_nothing():
    assert repair([], merge_roles=True) == repair([user(" ")], merge_roles=True) == []
