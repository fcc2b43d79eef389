"""A caller's dict becomes a checked message, and what is wrong with it is said."""

from datetime import UTC, datetime

import pytest
from hypothesis import given

import backscroll
from backscroll.errors import MessageError
from backscroll.messages import is_empty, parse_message, parse_messages, parse_time, text_of
from chats import all_text, assistant, calls, chats, image, result, user


def test_a_message_keeps_what_is_sent_apart_from_what_is_ours():
    given_message = {**user("Hi!", name="Ann", custom={"a": [1]}), "id": "m1", "created_at": 0, "metadata": {"k": "v"}}
    message = parse_message(given_message)
    assert message.payload == {"role": "user", "content": "Hi!", "name": "Ann", "custom": {"a": [1]}}
    assert (message.id, message.created_at, message.metadata) == ("m1", datetime.fromtimestamp(0, UTC), {"k": "v"})


@given(chats())
def test_every_generated_message_is_kept_as_it_was_given(chat):
    assert [message.payload for message in parse_messages(chat)] == chat
    assert parse_messages(parse_messages(chat)) == parse_messages(chat)


def test_a_message_does_not_change_with_the_dict_that_it_was_made_from():
    given_message = user([{"type": "text", "text": "before"}])
    message = parse_message(given_message)
    given_message["content"][0]["text"] = "after"
    assert message.payload["content"][0]["text"] == message.text == "before"


def test_text_parts_calls_refusals_and_transcripts_can_be_searched():
    assert (
        parse_message(user([{"type": "text", "text": "One"}, image("x"), {"type": "text", "text": "two"}])).text
        == "One\ntwo"
    )
    assert parse_message(calls("c1", content="Wait.", arguments='{"q": "fleet"}')).text == 'Wait.\nfind {"q": "fleet"}'
    assert parse_message({"role": "assistant", "content": None, "refusal": "I cannot."}).text == "I cannot."
    spoken = {"role": "assistant", "content": None, "audio": {"id": "a1", "transcript": "Hello."}}
    assert parse_message(spoken).text == "Hello."
    assert text_of([image("x")]) == text_of(None) == ""


WRONG = {
    "not a dict": "Hello",
    "a list": [user("Hello")],
    "no role": {"content": "x"},
    "a role that does not exist": {"role": "king", "content": "x"},
    "no content": {"role": "user"},
    "content that is a number": user(7),
    "content that is a dict": user({"text": "x"}),
    "a part that is text": user(["x"]),
    "a part without a type": user([{"text": "x"}]),
    "a text part without text": user([{"type": "text"}]),
    "a text part of a number": user([{"type": "text", "text": 7}]),
    "a name that is a number": user("x", name=7),
    "a role that is a list": {"role": ["user"], "content": "x"},
    "a text alone": {"content": "x"},
    "a role alone": {"role": "user"},
    "a name with half of a surrogate pair": user("x", name="\ud83d"),
    "a tool without the call's id": {"role": "tool", "content": "x"},
    "calls of a user": {**calls("c1"), "role": "user", "content": "x"},
    "calls that are no list": assistant("x", tool_calls={"id": "c1"}),
    "a call without an id": assistant("x", tool_calls=[{"type": "function"}]),
    "a call of a number": assistant("x", tool_calls=[{"id": "c1", "function": 3}]),
    "an empty id": user("x", id=" "),
    "an id that is a number": user("x", id=7),
    "a time that is none": user("x", created_at="yesterday"),
    "a time that is a truth": user("x", created_at=True),
    "metadata that is text": user("x", metadata="k"),
    "a value that is no JSON": user("x", extra={1, 2}),
    "not a number": user("x", extra=float("nan")),
    "half of a surrogate pair": user("\ud83d"),
    "an assistant who says nothing": {"role": "assistant", "content": None},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_message_is_said(wrong):
    with pytest.raises(MessageError):
        parse_message(wrong)


def test_pruning_keeps_two_messages_of_one_id():
    history = [user("One.", id="same"), assistant("Two.", id="same"), user("Three.", id="other")]
    context = backscroll.prune(history, "Four?", max_tokens=500, embedder="hashing")
    assert [text for text in ("One.", "Two.", "Three.", "Four?") if text in all_text(context.messages)] == [
        "One.",
        "Two.",
        "Three.",
        "Four?",
    ]


def test_of_many_messages_the_wrong_one_is_named():
    with pytest.raises(MessageError, match="message 2: "):
        parse_messages([user("a"), user("b"), {"role": "king"}])
    with pytest.raises(MessageError):
        parse_messages("Hello")


@pytest.mark.parametrize(
    ("given_time", "expected"),
    [
        (None, None),
        (1.5, datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)),
        ("2026-05-01", datetime(2026, 5, 1, tzinfo=UTC)),
        ("2026-05-01T12:00:00Z", datetime(2026, 5, 1, 12, tzinfo=UTC)),
        (datetime(2026, 5, 1), datetime(2026, 5, 1, tzinfo=UTC)),  # noqa: DTZ001
    ],
)
def test_a_time_without_a_zone_is_taken_as_utc(given_time, expected):
    assert parse_time(given_time) == expected


def test_a_zone_that_is_given_is_kept():
    assert parse_time("2026-05-01T12:00:00+02:00").isoformat() == "2026-05-01T12:00:00+02:00"


@pytest.mark.parametrize("message", [user(""), user(" \n"), user([]), user([{"type": "text", "text": " "}])])
def test_a_message_is_empty_where_a_provider_would_be_sent_nothing(message):
    assert is_empty(message)


@pytest.mark.parametrize(
    "message",
    [
        user("x"),
        user([image("x")]),
        calls("c1"),
        result("c1", ""),
        {"role": "assistant", "content": None, "refusal": "I cannot."},
        {"role": "assistant", "content": None, "audio": {"id": "a1"}},
        {"role": "assistant", "content": " ", "refusal": "I cannot."},
        {**calls("c1"), "content": ""},
    ],
)
def test_a_message_with_anything_in_it_is_not_empty(message):
    assert not is_empty(message)
