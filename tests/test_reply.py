"""Replies: context, LLM, append. What is stored when all is well, when it fails, and when the process dies."""

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import backscroll
from backscroll import (
    BudgetError,
    ContextTooLongError,
    CutOffReplyError,
    EmptyReplyError,
    InMemoryStore,
    LLMError,
    LLMTimeoutError,
    LLMUnavailableError,
    MessageError,
    OpenAILLM,
    Retry,
    ScriptedLLM,
    ScriptedReply,
    Tool,
    Tools,
    Usage,
)
from backscroll.fingerprint import fingerprint
from backscroll.memory import Memory, Thread
from backscroll.messages import without_thought
from chats import TOOLS, all_text, assistant, calls, faults, recount, result, system, turns, user
from openai_server import OpenAIServer, hangs_up, raw, says, slow, status, streams

TESTS = Path(__file__).parent
SRC = str(Path(backscroll.__file__).parents[1])
KILLS = settings.default.max_examples * 2 // 3  # as Hypothesis: more in the long profile
VANS = {"find": lambda q="": f"12 vans for {q!r}"}


class Chat:
    """A memory with a script, and what is stored in its one thread."""

    def __init__(self, *script, **given) -> None:
        self.llm = ScriptedLLM(script, **given)
        self.memory: Memory = backscroll.open(":memory:", embedder="hashing", llm=self.llm)
        self.thread: Thread = self.memory.thread("chat")

    def __enter__(self) -> "Chat":
        return self

    def __exit__(self, *_: object) -> None:
        self.memory.embed()
        assert self.memory.check() == []
        self.memory.close()

    @property
    def stored(self) -> list[tuple[str, str]]:
        return [(line.message.role, line.message.text) for line in self.thread.lines()]

    @property
    def payloads(self) -> list:
        return [line.message.payload for line in self.thread.lines()]


def call(name: str = "find", **arguments) -> dict:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": name, "type": "function", "function": function}],
    }


# A turn


@pytest.mark.parametrize("stream", [False, True])
def test_prompt_and_reply_are_stored_together_with_what_the_reply_cost(stream):
    said = ScriptedReply("You have 12 vans.", usage=Usage(40, 6, 32))
    with Chat(said, model="gpt-4o") as chat:
        chat.thread.append([system("You plan routes."), user("My fleet has 12 vans."), assistant("Noted.")])
        if stream:
            replied = chat.thread.reply("How many vans?", max_tokens=300, stream=True)
            assert "".join(replied) == "You have 12 vans."
            turn = replied.turn
        else:
            turn = chat.thread.reply("How many vans?", max_tokens=300)
        assert str(turn) == turn.text == turn.message["content"] == "You have 12 vans."
        assert chat.stored[-2:] == [("user", "How many vans?"), ("assistant", "You have 12 vans.")]
        assert [source.position for source in turn.sources] == [3, 4]
        usage = {"prompt_tokens": 40, "completion_tokens": 6, "cached_tokens": 32}
        sent = {"context_tokens": turn.context.tokens, "preset": "backscroll"}
        metadata = dict(chat.thread.lines()[-1].message.metadata)
        assert metadata.pop("latency_ms") >= 0
        assert metadata == {"model": "gpt-4o", "finish_reason": "stop", "usage": usage, **sent}
        assert chat.llm.asked == [turn.context.messages]
        assert turn.context.messages[-1] == user("How many vans?")
        assert turn.context.report.counter == "o200k_base"


def test_prompt_and_reply_go_into_one_transaction():
    appended = []

    class Watched(InMemoryStore):
        def append(self, key, messages):
            appended.append([message.text for message in messages])
            return super().append(key, messages)

    with Chat("Twelve.") as chat:
        watched = Watched(lambda message: 1)
        memory = Memory(watched, chat.memory.embedder, lambda _: {95.0: 0.5, 99.9: 0.9}, llm=chat.llm)
        memory.thread("chat").reply("How many?", max_tokens=300)
        watched.close()
    assert appended == [["How many?", "Twelve."]]


def test_what_was_injected_is_not_stored_as_a_line():
    with Chat("At 4:30.") as chat:
        chat.memory.thread("monday").append(user("The depot gate opens at 4:30."))
        turn = chat.thread.reply("When does the depot gate open?", max_tokens=300)
        assert "<recalled>" in all_text(chat.llm.asked[0])
        assert chat.payloads == [user("When does the depot gate open?"), assistant("At 4:30.")]
        assert turn.context.sources[0].thread == "monday"


def test_none_asks_for_what_is_stored():
    with Chat("Twelve.") as chat:
        chat.thread.append(user("How many?"))
        turn = chat.thread.reply(max_tokens=300)
        assert chat.stored == [("user", "How many?"), ("assistant", "Twelve.")]
        assert [source.position for source in turn.sources] == [0, 1]


def test_none_asks_nobody_where_what_is_stored_is_answered():
    with Chat("Twelve.") as chat:
        chat.thread.reply("How many?", max_tokens=300)
        for later in ([], [system("Be brief.")]):
            chat.thread.append(later)
            with pytest.raises(MessageError, match="answered already"):
                chat.thread.reply(None, max_tokens=300)
        assert (len(chat.llm.asked), chat.stored[1:]) == (1, [("assistant", "Twelve."), ("system", "Be brief.")])


def test_none_goes_on_behind_a_result_whatever_was_said_before_its_call():
    with Chat("Twelve.") as chat:
        chat.thread.append([user("How many?"), assistant("I look."), calls("c1"), result("c1", "12")])
        assert chat.thread.reply(None, max_tokens=300).text == "Twelve."
        assert chat.llm.asked[0][-1] == result("c1", "12")
        assert len(chat.stored) == 5


def test_none_asks_nobody_while_a_call_waits_for_its_result():
    with Chat(calls("c1", "c2"), "Twelve.") as chat:
        chat.thread.reply("How many?", max_tokens=500, tools=TOOLS)
        for missing, given in (("c1, c2", result("c1", "5")), ("c2", result("c2", "7"))):
            with pytest.raises(MessageError, match=f"append the results of {missing} first"):
                chat.thread.reply(None, max_tokens=500, tools=TOOLS)
            chat.thread.append(given)
        assert chat.thread.reply(None, max_tokens=500, tools=TOOLS).text == "Twelve."


def test_without_a_prompt_and_without_lines_there_is_nothing_to_ask():
    with Chat() as chat:
        with pytest.raises(MessageError, match="give a prompt"):
            chat.thread.reply(max_tokens=300)
        with pytest.raises(MessageError, match="empty"):
            chat.thread.reply("  ", max_tokens=300)


def test_without_an_llm_the_error_says_how_to_give_one(memory):
    with pytest.raises(LLMError, match="llm="):
        memory.thread("chat").reply("Hello", max_tokens=300)


def test_the_tokens_are_counted_as_the_llms_model_counts_them():
    with Chat("Yes.", model="some-model") as chat:
        chat.thread.append(turns(50))
        turn = chat.thread.reply("And now?", max_tokens=500)
        assert turn.context.report.counter == "overestimate for some-model"
        assert recount(turn.context.messages) < turn.context.tokens <= 500


# What the model thought first


THOUGHT = "<think>\nTen and two make twelve.\n</think>\n\n"


@pytest.mark.parametrize("stream", [False, True])
def test_a_thought_in_front_of_a_reply_is_given_to_the_caller_and_neither_stored_nor_sent(stream):
    with Chat(f"{THOUGHT}You have 12 vans.", "Blue.") as chat:
        replied = chat.thread.reply("How many vans?", max_tokens=300, stream=stream)
        if stream:
            assert "".join(replied) == f"{THOUGHT}You have 12 vans."
        turn = replied.turn if stream else replied
        assert turn.text == turn.message["content"] == f"{THOUGHT}You have 12 vans."
        assert turn.reply.finish_reason == "stop"
        assert chat.stored == [("user", "How many vans?"), ("assistant", "You have 12 vans.")]
        chat.thread.reply("What color?", max_tokens=300)
        assert chat.llm.asked[-1][1] == assistant("You have 12 vans.")
        told = [user("How many vans?"), turn.message, user("What color?"), assistant("Blue."), user("Why?")]
        chat.thread.sync(told)
        assert [text for _, text in chat.stored[1:]] == ["You have 12 vans.", "What color?", "Blue.", "Why?"]


def test_a_call_with_a_thought_in_front_is_stored_as_the_call_alone():
    with Chat({**call(q="Bonn"), "content": THOUGHT}, "Twelve.") as chat:
        assert chat.thread.reply("How many?", max_tokens=500, tools=VANS).text == "Twelve."
        assert chat.payloads[1] == call(q="Bonn")


@pytest.mark.parametrize(
    "answer",
    [
        "It writes <think>so</think>.",
        "<think> and </think> are tags around a model's thought.",
        "<think> is the opening tag.",
        "<thinking></thinking> is what it writes,\nthen it answers.",
    ],
)
def test_an_answer_about_thoughts_keeps_its_words(answer):
    with Chat(answer) as chat:
        chat.thread.reply("How does it think?", max_tokens=300)
        assert chat.stored[1] == ("assistant", answer)


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<thinking>", "</thinking>", "\n", "\r\n", " ", "Ten.", "so "]))
)
def test_what_is_left_of_a_reply_without_its_thoughts_has_none_in_front(pieces):
    for is_partial in (False, True):
        left = without_thought("".join(pieces), is_partial)
        assert without_thought(left, is_partial) == left
        assert "".join(pieces).endswith(left)


def test_several_thoughts_in_front_of_an_answer_are_none_of_it():
    twice = "<think>\nTen.\n</think>\n<think>And two.</think>\n\nTwelve."
    assert without_thought(twice) == "Twelve."
    assert fingerprint(assistant(twice)) == fingerprint(assistant("Twelve."))


@pytest.mark.parametrize(
    ("pieces", "stored"), [(2, []), (4, []), (5, [("user", "How many?"), ("assistant", "Twelve")])]
)
def test_a_stream_that_is_left_stores_what_was_answered_and_nothing_of_a_thought(pieces, stored):
    with Chat(ScriptedReply(pieces=["<think>", "Ten and", " two.", "</think>\n\n", "Twelve", " vans."])) as chat:
        stream = chat.thread.reply("How many?", max_tokens=300, stream=True)
        for _ in range(pieces):
            next(stream)
        stream.close()
        assert chat.stored == stored


# Failures store nothing, or the prompt


FAILURES = [
    (LLMUnavailableError("no server"), LLMUnavailableError),
    (LLMTimeoutError("late"), LLMTimeoutError),
    (ScriptedReply("Half a rep", finish_reason="length"), CutOffReplyError),
    (ScriptedReply("Half a rep", finish_reason="content_filter"), CutOffReplyError),
    (ScriptedReply(calls("c1"), finish_reason="length"), CutOffReplyError),
    (ScriptedReply(""), EmptyReplyError),
    (ScriptedReply(" \n"), EmptyReplyError),
    (ScriptedReply("<think>Ten and two.</think>\n"), EmptyReplyError),
    (ScriptedReply("<think>\nTen and"), EmptyReplyError),
    (ScriptedReply(pieces=["Half ", "a rep"], error=LLMUnavailableError("cut")), LLMUnavailableError),
    (ValueError("a bug in a function"), ValueError),
    (KeyboardInterrupt(), KeyboardInterrupt),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("keep_prompt", [False, True])
@pytest.mark.parametrize(("fault", "error"), FAILURES, ids=lambda one: repr(one)[:30])
def test_a_failed_reply_stores_nothing_but_by_choice_the_prompt_and_a_retry_doubles_nothing(
    fault, error, keep_prompt, stream
):
    def ask() -> str:
        replied = chat.thread.reply("How many?", max_tokens=300, keep_prompt=keep_prompt, stream=stream)
        return "".join(replied) if stream else replied.text

    if isinstance(fault, KeyboardInterrupt):
        fault = ScriptedReply(error=fault)
    with Chat(fault, fault, "Twelve.", "Twelve again.") as chat:
        for _ in range(2):
            with pytest.raises(error):
                ask()
            assert chat.stored == ([("user", "How many?")] if keep_prompt else [])
        assert ask() == "Twelve."
        assert chat.stored == [("user", "How many?"), ("assistant", "Twelve.")]
        assert chat.llm.asked[0] == chat.llm.asked[2] == [user("How many?")]
        assert ask() == "Twelve again."  # an answered question may be asked again
        assert len(chat.stored) == 4


def test_a_failed_stream_tells_what_it_had_received():
    broken = ScriptedReply(pieces=["Half ", "a rep"], error=LLMUnavailableError("cut"))
    with Chat(broken, ScriptedReply("Half a rep", finish_reason="length")) as chat:
        for error in (LLMUnavailableError, CutOffReplyError):
            with pytest.raises(error) as caught:
                list(chat.thread.reply("How many?", max_tokens=300, stream=True))
            assert caught.value.received == "Half a rep"


def test_another_prompt_after_a_kept_one_is_stored_behind_it():
    with Chat(LLMTimeoutError("late"), "Yes.") as chat:
        with pytest.raises(LLMTimeoutError):
            chat.thread.reply("How many?", max_tokens=300, keep_prompt=True)
        chat.thread.reply("Are you there?", max_tokens=300)
        assert [text for _, text in chat.stored] == ["How many?", "Are you there?", "Yes."]
        assert faults(chat.llm.asked[1], alternating=True) == []


def test_a_prompt_with_an_id_is_answered_once():
    prompt = user("How many?", id="m1")
    with Chat("Twelve.", "Thirteen.") as chat:
        first = chat.thread.reply(prompt, max_tokens=300)
        again = chat.thread.reply(prompt, max_tokens=300)
        assert "".join(chat.thread.reply(prompt, max_tokens=300, stream=True)) == "Twelve."
        assert (again.text, again.sources, again.context) == (first.text, first.sources, None)
        assert len(chat.llm.asked) == 1
        chat.thread.append(turns(40))
        late = chat.thread.reply(prompt, max_tokens=200)
        assert (late.text, late.sources) == (first.text, first.sources)
        assert (len(chat.stored), len(chat.llm.asked)) == (82, 1)


@pytest.mark.parametrize("taken", ["m1", "m1/1"])
def test_a_prompt_with_the_id_of_another_line_is_refused(taken):
    with Chat("Twelve.", "Never asked.") as chat:
        chat.thread.reply(user("How many?", id="m1"), max_tokens=300)
        with pytest.raises(MessageError, match=f"the id '{taken}' is that of another line"):
            chat.thread.reply(user("And blue ones?", id=taken), max_tokens=300)
        parts = [{"type": "text", "text": "How many?"}]
        assert chat.thread.reply(user(parts, id="m1"), max_tokens=300).text == "Twelve."  # the same, written otherwise
        assert (len(chat.llm.asked), len(chat.stored)) == (1, 2)


def test_an_unanswered_prompt_with_an_id_that_the_chat_went_past_is_asked_again_and_not_stored_again():
    prompt = user("How many?", id="m1")
    with Chat(LLMTimeoutError("late"), "Yes.", call(), "Twelve.") as chat:
        with pytest.raises(LLMTimeoutError):
            chat.thread.reply(prompt, max_tokens=500, keep_prompt=True)
        chat.thread.reply("Are you there?", max_tokens=500)
        turn = chat.thread.reply(prompt, max_tokens=500, tools=VANS)
        assert chat.llm.asked[2][-1] == user("How many?")
        assert [role for role, _ in chat.stored] == ["user", "user", "assistant", "assistant", "tool", "assistant"]
        assert [source.position for source in turn.sources] == [0, 3, 4, 5]


def test_a_prompt_that_does_not_fit_is_told_before_anything_is_asked():
    with Chat("Yes.") as chat:
        with pytest.raises(BudgetError):
            chat.thread.reply("word " * 200, max_tokens=100)
        assert (chat.llm.asked, chat.stored) == ([], [])


# A context that is too long for the model


ITEM = "What about item 7 and item 70?"  # recalls as much as fits


@pytest.mark.parametrize("limit", [800, None])
def test_a_context_that_is_too_long_is_made_smaller_once(limit):
    with Chat(ContextTooLongError("too long", 400, limit), "Fine.") as chat:
        chat.thread.append(turns(100))
        turn = chat.thread.reply(ITEM, max_tokens=2000)
        first, second = map(recount, chat.llm.asked)
        most = first // 2 if limit is None else 600
        assert first > 1800
        assert most * 0.8 < second <= most
        assert turn.context.report.max_tokens == most
        assert chat.stored[-2:] == [("user", ITEM), ("assistant", "Fine.")]


def test_where_a_smaller_context_does_not_help_the_error_is_the_models():
    refusal = ContextTooLongError("too long", 400, 20)
    with Chat(ContextTooLongError("too long"), ContextTooLongError("too long"), refusal) as chat:
        chat.thread.append(turns(100))
        with pytest.raises(ContextTooLongError):
            chat.thread.reply(ITEM, max_tokens=2000)
        assert len(chat.llm.asked) == 2
        with pytest.raises(ContextTooLongError) as caught:
            chat.thread.reply("word " * 100, max_tokens=2000)
        assert isinstance(caught.value.__cause__, BudgetError)
        assert len(chat.stored) == 200


def test_the_smaller_budget_holds_for_the_rest_of_the_turn():
    with Chat(ContextTooLongError("too long", 400, 800), call(), "Fine.") as chat:
        chat.thread.append(turns(100))
        chat.thread.reply(ITEM, max_tokens=2000, tools=VANS)
        assert [recount(messages) <= 600 for messages in chat.llm.asked] == [False, True, True]


# Tools


@pytest.mark.parametrize("stream", [False, True])
def test_calls_are_answered_and_stored_with_their_results(stream):
    both = calls("c1", "c2", content="I look.", arguments='{"q": "fleet"}')
    with Chat(both, "Twelve.") as chat:
        replied = chat.thread.reply("How many?", max_tokens=500, tools=VANS, stream=stream)
        if stream:
            assert "".join(replied) == "I look.Twelve."
        turn = replied.turn if stream else replied
        told = "12 vans for 'fleet'"
        assert chat.payloads == [
            user("How many?"),
            both,
            result("c1", told),
            result("c2", told),
            assistant("Twelve."),
        ]
        assert chat.llm.asked[1] == chat.payloads[:4]
        assert [source.position for source in turn.sources] == [0, 1, 2, 3, 4]
        assert turn.tool_calls == ()
        schema = chat.llm.options[0].tools[0]["function"]
        assert (schema["name"], schema["parameters"]["properties"]) == ("find", {"q": {}})


def test_the_context_is_fitted_again_after_every_round():
    rounds = 6
    with Chat(*[call(q=str(number)) for number in range(rounds)], "Done.") as chat:
        chat.thread.append(turns(50))
        long = {"find": lambda q: f"result {q}: " + "word " * 150}
        turn = chat.thread.reply("Look everywhere.", max_tokens=700, tools=Tools(long, max_rounds=rounds))
        assert turn.text == "Done."
        for messages, options in zip(chat.llm.asked, chat.llm.options, strict=True):
            assert recount(messages, options.tools) <= 700
            assert faults(messages, alternating=True) == []
            assert "Look everywhere." in all_text(messages)
        assert "result 5" in all_text(chat.llm.asked[-1])
        assert len(chat.stored) == 100 + 1 + 2 * rounds + 1


@pytest.mark.parametrize("words", [1, 700])
@pytest.mark.parametrize("others", [[user("OTHERS ask"), assistant("OTHERS hear")], [user("OTHERS ask")]])
def test_what_others_store_while_a_tool_runs_is_not_taken_for_the_turns_own(others, words):
    rounds: list[int] = []

    def find(q: str) -> str:
        rounds.append(1)
        if len(rounds) > 1:
            chat.thread.append([{**one, "content": one["content"] + " word" * words} for one in others])
        return f"found {q}"

    with Chat(call(q="1"), call(q="2"), call(q="3"), "Twelve.") as chat:
        chat.thread.append(turns(10))
        turn = chat.thread.reply("How many?", max_tokens=600, tools={"find": find})
        for number, messages in enumerate(chat.llm.asked):
            assert recount(messages, chat.llm.options[0].tools) <= 600
            assert faults(messages, alternating=True) == []
            asked = next(i for i, one in enumerate(messages) if all_text([one]).endswith("How many?"))
            own = [pair for q in range(1, number + 1) for pair in (call(q=str(q)), result("find", f"found {q}"))]
            assert messages[asked + 1 :] == own
        assert ("OTHERS" in all_text(chat.llm.asked[2])) == (words == 1)
        assert [source.position for source in turn.sources][:3] == [20, 21, 22]
        assert chat.stored[-1] == ("assistant", "Twelve.")


def test_a_turn_whose_lines_are_deleted_while_its_tool_runs_says_so_and_asks_nobody():
    def find() -> str:
        if len(chat.stored) > 3:
            chat.thread.delete(2)
        return "12"

    with Chat("Yes.", call(), call(), "Never asked.") as chat:
        chat.thread.reply("Are you there?", max_tokens=500)
        with pytest.raises(LLMError, match="ask again"):
            chat.thread.reply("How many?", max_tokens=500, tools={"find": find})
        assert len(chat.llm.asked) == 3


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (call("fail"), "error: KeyError: 'gone'"),
        (call("unknown"), "error: there is no tool 'unknown', only find, fail, count, nothing, half"),
        (call("find", wrong=1), "error: TypeError"),
        (calls("c1", arguments="{not JSON"), "error: the arguments are not JSON"),
        (calls("c1", arguments="[1]"), "error: the arguments are not a JSON object"),
        (calls("c1", arguments=""), "12 vans for ''"),
        (call("count"), '{"vans": 12, "where": "Zürich"}'),
        (call("nothing"), "null"),
        (call("half"), "?"),
    ],
)
def test_the_model_is_told_what_a_tool_gave_or_why_it_failed(made, told):
    def fail():
        raise KeyError("gone")

    tools = {**VANS, "fail": fail, "count": lambda: {"vans": 12, "where": "Zürich"}, "nothing": lambda: None}
    tools["half"] = lambda: "\ud83d"
    with Chat(made, "So be it.") as chat:
        chat.thread.reply("How many?", max_tokens=500, tools=tools)
        assert chat.stored[2][0] == "tool"
        assert chat.stored[2][1].startswith(told)
        assert chat.stored[-1] == ("assistant", "So be it.")


def made_by(way: str, message: dict) -> backscroll.Memory:
    """A memory whose model gives a message, then words."""
    if way == "script":
        return backscroll.open(":memory:", embedder="hashing", llm=ScriptedLLM([message, "Twelve."]))
    said = iter([message, "Twelve."])
    return backscroll.open(":memory:", embedder="hashing", llm=lambda messages, tools: next(said))


@pytest.mark.parametrize("way", ["function", "script"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {}),
        ({"id": None}, {"id": ""}),
        ({"id": "c"}, {"id": "c"}),
        ({"id": 1, "index": 0}, {"id": 2, "index": 1}),
    ],
)
def test_each_call_has_its_result_whatever_ids_the_calls_came_with(way, first, second):
    made = [{"function": {"name": "find", "arguments": arguments}} for arguments in ({"q": "vans"}, '{"q": "🚚"}')]
    message = {"tool_calls": [{**first, **made[0]}, {**second, **made[1]}]}
    with made_by(way, message) as memory:
        thread = memory.thread("chat")
        assert thread.reply("How many?", max_tokens=500, tools=VANS).text == "Twelve."
        payloads = [line.message.payload for line in thread.lines()]
        assert faults(payloads, alternating=False) == []
        assert [one["content"] for one in payloads[2:4]] == ["12 vans for 'vans'", "12 vans for '🚚'"]
        assert [one["function"]["arguments"] for one in payloads[1]["tool_calls"]] == ['{"q": "vans"}', '{"q": "🚚"}']


@pytest.mark.parametrize("way", ["function", "script"])
@pytest.mark.parametrize(
    "message",
    [
        {"tool_calls": ["find"]},
        {"tool_calls": {"id": "c1"}},
        {"tool_calls": [{"id": "c1", "function": "find"}]},
        {"tool_calls": [{"id": "c1", "function": {"name": "find", "arguments": {"q": object()}}}]},
        {"content": 12},
    ],
)
def test_a_reply_that_is_no_message_is_the_models_error(way, message):
    with made_by(way, message) as memory:
        thread = memory.thread("chat")
        with pytest.raises(LLMError):
            thread.reply("How many?", max_tokens=500, tools=VANS, keep_prompt=True)
        assert [line.message.text for line in thread.lines()] == ["How many?"]


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"q": ' * 100_000, "{}"])
def test_a_call_that_cannot_be_read_or_fails_without_words_is_told_to_the_model(arguments):
    def find():
        raise UnspeakableError

    with Chat(calls("c1", arguments=arguments), "So be it.") as chat:
        chat.thread.reply("How many?", max_tokens=900_000, tools={"find": find})
        expected = "UnspeakableError" if arguments == "{}" else "error: the arguments are not JSON"
        assert expected in chat.stored[2][1]
        assert chat.stored[-1] == ("assistant", "So be it.")


def test_what_ends_the_program_goes_through_a_tool_and_leaves_no_half_pair():
    def leave():
        raise SystemExit(3)

    with Chat(call("leave")) as chat:
        with pytest.raises(SystemExit):
            chat.thread.reply("How many?", max_tokens=500, tools={"leave": leave}, keep_prompt=True)
        assert chat.stored == [("user", "How many?")]


def test_rounds_are_bounded_and_what_was_found_is_kept():
    asked = []
    tools = {"find": lambda: asked.append(1) or "12"}
    with Chat(*[call()] * 3, "Twelve.") as chat:
        with pytest.raises(LLMError, match="after 2 rounds"):
            chat.thread.reply("How many?", max_tokens=500, tools=Tools(tools, max_rounds=2))
        whole = len(chat.stored)
        assert (whole, len(asked)) == (5, 2)
        assert faults(chat.payloads, alternating=False) == []
        chat.thread.reply("How many?", max_tokens=500, tools=VANS)
        assert chat.stored[whole:] == [("assistant", "Twelve.")]


@pytest.mark.parametrize("given", [{}, {"id": "m1"}])
def test_a_turn_that_fails_after_a_round_goes_on_from_there(given):
    asked = []
    tools = {"find": lambda: asked.append(1) or "12"}
    with Chat(call(), LLMTimeoutError("late"), "Twelve.") as chat:
        with pytest.raises(LLMTimeoutError):
            chat.thread.reply(user("How many?", **given), max_tokens=500, tools=tools)
        assert [role for role, _ in chat.stored] == ["user", "assistant", "tool"]
        turn = chat.thread.reply(user("How many?", **given), max_tokens=500, tools=tools)
        assert [role for role, _ in chat.stored] == ["user", "assistant", "tool", "assistant"]
        assert [source.position for source in turn.sources] == [0, 1, 2, 3]
        assert asked == [1]


def test_a_caller_may_answer_the_calls():
    both = calls("c1", "c2")
    with Chat(both, "Twelve.", both, "Never mind.") as chat:
        turn = chat.thread.reply("How many?", max_tokens=500, tools=TOOLS)
        assert [made["id"] for made in turn.tool_calls] == ["c1", "c2"]
        assert chat.payloads == [user("How many?"), both]
        assert chat.thread.context("Hello!", max_tokens=500).messages == [user("How many?\n\nHello!")]
        chat.thread.append([result("c1", "5"), result("c2", "7")])
        assert chat.thread.reply(None, max_tokens=500, tools=TOOLS).text == "Twelve."
        assert chat.llm.asked[1] == [user("How many?"), both, result("c1", "5"), result("c2", "7")]
        chat.thread.reply("Look again.", max_tokens=500, tools=TOOLS)
        chat.thread.reply("No, leave it.", max_tokens=500, tools=TOOLS)  # calls that nobody answered
        assert faults(chat.llm.asked[3], alternating=True) == []


def test_a_result_may_be_the_prompt():
    with Chat(calls("c1"), LLMTimeoutError("late"), "Twelve.") as chat:
        chat.thread.reply("How many?", max_tokens=500, tools=TOOLS)
        with pytest.raises(LLMTimeoutError):
            chat.thread.reply(result("c1", "12"), max_tokens=500, tools=TOOLS, keep_prompt=True)
        chat.thread.reply(result("c1", "12"), max_tokens=500, tools=TOOLS)
        assert [role for role, _ in chat.stored] == ["user", "assistant", "tool", "assistant"]


def test_a_tools_schema_is_made_of_its_signature_or_given():
    def book(city: str, nights: int = 1, *, prices: list | None = None):
        """Book a room.

        More words.
        """

    made = Tool(book).schema("book")["function"]
    assert made == {
        "name": "book",
        "description": "Book a room.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "nights": {"type": "integer"}, "prices": {}},
            "required": ["city"],
        },
    }
    given = Tool(book, "Books.", {"type": "object"}).schema("book")["function"]
    assert (given["description"], given["parameters"]) == ("Books.", {"type": "object"})


def find_in(place: str, color: str, limit: int = 3) -> str:
    """Find vans."""
    return f"{limit} {color} vans in {place}"


class Finder:
    def __call__(self, color: str) -> str:
        """Find vans."""
        return f"{color} vans"


@pytest.mark.parametrize(
    ("tool", "properties", "told"),
    [
        (partial(find_in, "Bonn", limit=2), {"color": {"type": "string"}}, "2 blue vans in Bonn"),
        (partial(partial(find_in, limit=2), "Bonn"), {"color": {"type": "string"}}, "2 blue vans in Bonn"),
        (Finder(), {"color": {"type": "string"}}, "blue vans"),
    ],
)
def test_a_tool_may_be_a_partial_function_or_an_object_that_is_called(tool, properties, told):
    schema = Tool(tool).schema("find")["function"]
    assert schema["description"] == "Find vans."
    assert schema["parameters"] == {"type": "object", "properties": properties, "required": ["color"]}
    with Chat(call(color="blue"), "Two.") as chat:
        chat.thread.reply("How many?", max_tokens=500, tools={"find": tool})
        assert chat.stored[2] == ("tool", told)


def unreadable(color: "Color"):  # noqa: F821
    return color


@pytest.mark.parametrize("tool", [unreadable, type, partial(unreadable)])
def test_a_tool_whose_signature_cannot_be_read_is_refused_but_with_a_schema_of_its_own(tool):
    with Chat("Twelve.") as chat:
        with pytest.raises(MessageError, match=r"'find'.*give Tool\(function, description, parameters\)"):
            chat.thread.reply("How many?", max_tokens=500, tools={"find": tool}, keep_prompt=True)
        assert (chat.llm.asked, chat.stored) == ([], [])
        given = Tool(tool, "Finds.", {"type": "object"})
        assert chat.thread.reply("How many?", max_tokens=500, tools={"find": given}).text == "Twelve."


@pytest.mark.parametrize("tools", [{"find": 4}, {"find": asyncio.sleep}, ["find"]])
def test_tools_that_are_none_are_refused(tools):
    with Chat() as chat, pytest.raises(MessageError, match="tool"):
        chat.thread.reply("How many?", max_tokens=500, tools=tools)


# A stream that is left


def leave_by_close(chat: Chat) -> None:
    stream = chat.thread.reply("How many?", max_tokens=300, stream=True)
    assert [next(stream), next(stream)] == ["You", " have"]
    stream.close()
    assert stream.turn is None
    assert list(stream) == []


def leave_by_with(chat: Chat) -> None:
    with chat.thread.reply("How many?", max_tokens=300, stream=True) as stream:
        assert [next(stream), next(stream)] == ["You", " have"]


def leave_by_error(chat: Chat) -> None:
    with pytest.raises(ZeroDivisionError):
        for number, _ in enumerate(chat.thread.reply("How many?", max_tokens=300, stream=True)):
            1 / (1 - number)
    gc.collect()


def leave_by_interrupt(chat: Chat) -> None:
    def interrupted():
        yield from ["You", " have"]
        raise KeyboardInterrupt

    chat.llm.stream = lambda *_: interrupted()
    with pytest.raises(KeyboardInterrupt):
        list(chat.thread.reply("How many?", max_tokens=300, stream=True))


def leave_awaited(chat: Chat) -> None:
    async def leave() -> None:
        thread = backscroll.AsyncThread(chat.thread)
        pieces = aiter(thread.reply("How many?", max_tokens=300))
        assert [await anext(pieces), await anext(pieces)] == ["You", " have"]
        await pieces.aclose()

    asyncio.run(leave())


@pytest.mark.parametrize("leave", [leave_by_close, leave_by_with, leave_by_error, leave_by_interrupt, leave_awaited])
def test_a_stream_that_is_left_stores_what_was_received_as_partial(leave):
    with Chat("You have twelve vans.", "Go on.", model="gpt-4o") as chat:
        leave(chat)
        assert chat.stored == [("user", "How many?"), ("assistant", "You have")]
        assert chat.thread.lines()[1].message.metadata == {"model": "gpt-4o", "partial": True}
        if leave is not leave_by_interrupt:
            assert chat.thread.reply("And?", max_tokens=300).text == "Go on."
            assert chat.llm.asked[-1] == [user("How many?"), assistant("You have"), user("And?")]


def test_a_prompt_with_an_id_whose_reply_was_left_is_asked_again():
    prompt = user("How many?", id="m1")
    with Chat("You have twelve vans.", LLMTimeoutError("late"), "Twelve.") as chat:
        with chat.thread.reply(prompt, max_tokens=300, stream=True) as stream:
            next(stream)
        with pytest.raises(LLMTimeoutError):
            chat.thread.reply(prompt, max_tokens=300, keep_prompt=True)
        for turn in (chat.thread.reply(prompt, max_tokens=300), chat.thread.reply(prompt, max_tokens=300)):
            assert (turn.text, turn.reply.is_partial) == ("Twelve.", False)
        assert chat.llm.asked[2] == [user("How many?"), assistant("You"), user("How many?")]
        assert chat.stored == [("user", "How many?"), ("assistant", "You"), ("assistant", "Twelve.")]
        assert len(chat.llm.asked) == 3


@pytest.mark.parametrize("keep_prompt", [False, True])
def test_a_stream_that_is_left_before_its_first_word_stores_no_reply(keep_prompt):
    with Chat(ScriptedReply(pieces=[" ", "You"])) as chat:
        stream = chat.thread.reply("How many?", max_tokens=300, stream=True, keep_prompt=keep_prompt)
        next(stream)
        stream.close()
        assert chat.stored == ([("user", "How many?")] if keep_prompt else [])


def test_a_stream_that_is_left_between_the_halves_of_a_character_keeps_what_was_received():
    with Chat(ScriptedReply("A 🚚", pieces=["A ", "\ud83d", "\ude9a"])) as chat:
        stream = chat.thread.reply("What?", max_tokens=300, stream=True)
        assert [next(stream), next(stream)] == ["A ", "\ud83d"]
        stream.close()
        assert chat.stored == [("user", "What?"), ("assistant", "A \ufffd")]


def test_a_stream_that_was_never_begun_asks_nobody():
    with Chat("Yes.") as chat:
        chat.thread.reply("How many?", max_tokens=300, stream=True).close()
        assert (chat.llm.asked, chat.stored) == ([], [])


# Awaited


def test_a_reply_may_be_awaited_or_iterated_over():
    async def talk() -> tuple:
        async with backscroll.open_async(
            ":memory:", embedder="hashing", llm=ScriptedLLM(["One.", "Two words."])
        ) as chat:
            thread = chat.thread("chat")
            first = await thread.reply("First?", max_tokens=300)
            second = thread.reply("Second?", max_tokens=300)
            pieces = [piece async for piece in second]
            return first.text, pieces, second.turn.sources[1].position, len(await thread.lines())

    assert asyncio.run(talk()) == ("One.", ["Two", " words."], 3, 4)


def test_a_cancelled_task_leaves_what_it_received():
    async def talk(chat: Chat) -> None:
        received = asyncio.Event()

        async def listen() -> None:
            async for _ in backscroll.AsyncThread(chat.thread).reply("How many?", max_tokens=300):
                received.set()

        listening = asyncio.create_task(listen())
        await received.wait()
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening

    words = [f"word{number} " for number in range(200)]
    with Chat(ScriptedReply(pieces=words, delay_seconds=0.01)) as chat:
        asyncio.run(talk(chat))
        assert chat.stored[0] == ("user", "How many?")
        assert chat.stored[1][1].startswith("word0 ")
        assert len(chat.stored[1][1]) < len("".join(words))
        assert chat.thread.lines()[1].message.metadata["partial"]


# Through the official client


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    running = OpenAIServer()
    yield running
    running.stop()


@pytest.fixture
def served(server) -> Iterator[Thread]:
    llm = OpenAILLM("small", server.base_url, key_variable="", timeout_seconds=0.5, retry=Retry(2, 0.0))
    with backscroll.open(":memory:", embedder="hashing", llm={"reply": llm}) as memory:
        yield memory.thread("chat")


@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_with_calls_over_http(server, served, stream):
    server.steps = [says(calls("c1", arguments='{"q": "vans"}'))]
    replied = served.reply("How many?", max_tokens=900, tools=VANS, stream=stream)
    text = "".join(replied) if stream else replied.text
    assert text == "You said: How many?"
    assert [line.message.role for line in served.lines()] == ["user", "assistant", "tool", "assistant"]
    assert served.lines()[-1].message.metadata["usage"]["cached_tokens"] == 8
    assert server.bodies[1]["messages"][-1] == result("c1", "12 vans for 'vans'")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ([status(401, "no key")], LLMError),
        ([status(500, "oops")] * 2, LLMUnavailableError),
        ([hangs_up] * 2, LLMUnavailableError),
        ([slow(1.5)], LLMTimeoutError),
        ([raw(b"{not JSON")], LLMError),
        ([raw(b'{"choices": []}')], LLMError),
        ([streams([{"content": "One "}], then=lambda handler: handler.hang_up())] * 2, LLMError),
        ([says("One two", finish_reason="length")], CutOffReplyError),
        ([says("")], EmptyReplyError),
        ([status(400, "prompt is too long: 9 tokens > 8 maximum")] * 2, ContextTooLongError),
    ],
    ids=["401", "500", "hang up", "slow", "no JSON", "no choices", "cut", "length", "empty", "too long"],
)
def test_every_failure_over_http_keeps_the_prompt_alone_and_a_retry_answers_it(server, served, steps, error, stream):
    def ask() -> str:
        replied = served.reply("How many?", max_tokens=300, keep_prompt=True, stream=stream)
        return "".join(replied) if stream else replied.text

    server.steps = list(steps)
    with pytest.raises(error):
        ask()
    assert [line.message.role for line in served.lines()] == ["user"]
    server.steps = []
    assert ask() == "You said: How many?"
    assert [line.message.role for line in served.lines()] == ["user", "assistant"]


def test_a_stream_left_between_the_halves_of_a_character_over_http_keeps_the_text_before_it(server, served):
    server.steps = [streams([{"content": "A "}, {"content": "\ud83d"}, {"content": "\ude9a ok"}])]
    with served.reply("What?", max_tokens=300, stream=True) as stream:
        assert next(stream) == "A "
    server.steps = [streams([{"content": "A "}, {"content": "\ud83d"}, {"content": "\ude9a ok"}])]
    assert list(served.reply("What else?", max_tokens=300, stream=True)) == ["A ", "🚚 ok"]
    assert [line.message.text for line in served.lines()] == ["What?", "A ", "What else?", "A 🚚 ok"]


def test_a_server_that_takes_less_gets_less(server, served):
    served.append(turns(60))
    refusal = "This model's maximum context length is 800 tokens. However, your messages resulted in 1500 tokens."
    server.steps = [status(400, refusal, code="context_length_exceeded")]
    served.reply(ITEM, max_tokens=2000)
    first, second = (recount(body["messages"]) for body in server.bodies)
    assert second <= 600 < first


# A process that is killed


LOOP = """
import os, random, signal, sys, time
import backscroll
from chats import faults

path, kills, moments = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))

def answer(messages, tools):
    time.sleep(random.random() * 0.002)
    last = messages[-1]
    assert faults(messages, alternating=True) == [], messages
    if tools and (last["role"] == "user" or random.random() < 0.3):
        made = [{"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}} for n in range(2)]
        return {"role": "assistant", "content": None, "tool_calls": made}
    if random.random() < 0.1:
        raise backscroll.LLMUnavailableError("busy")
    return "Reply to the prompt."

def look():
    time.sleep(random.random() * 0.001)
    return "12"

def talk(number, acknowledge):
    random.seed(os.getpid())
    memory = backscroll.open(path, embedder="hashing", llm=answer)
    thread = memory.thread("chat")
    while True:
        prompt = {"role": "user", "content": f"Prompt {number}", "id": f"p{number}"}
        tools = backscroll.Tools({"look": look}, max_rounds=50) if number % 2 else None
        while True:
            try:
                replied = thread.reply(prompt, max_tokens=500, tools=tools, stream=number % 3 == 0, keep_prompt=True)
                list(replied) if number % 3 == 0 else None
                break
            except backscroll.LLMUnavailableError:
                continue
        os.write(acknowledge, f"{number}\\n".encode())
        number += 1

with backscroll.open(":memory:", embedder="hashing") as warm:  # what is loaded once is not loaded by each child
    warm.thread("chat").context("Hello", max_tokens=100)
acknowledged = []
for kill in range(kills):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        talk(acknowledged[-1] + 1 if acknowledged else 0, writing)
    os.close(writing)
    first = os.read(reading, 4096) if moments.random() < 0.8 else b""
    time.sleep(moments.random() * 0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    rest = first
    while part := os.read(reading, 65536):
        rest += part
    acknowledged += [int(number) for number in rest.split(b"\\n")[:-1]]
    os.close(reading)
print(*acknowledged)
"""


def test_a_process_that_is_killed_at_any_moment_loses_no_acknowledged_line_and_leaves_no_half_pair(tmp_path):
    path = str(tmp_path / "chat.db")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SRC, str(TESTS)])}
    command = [sys.executable, "-c", LOOP, path, str(KILLS), "7"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    acknowledged = [int(number) for number in run.stdout.split()]
    assert acknowledged == sorted(set(acknowledged))
    assert len(acknowledged) > KILLS / 2
    with backscroll.open(path, embedder="hashing") as memory:
        lines = memory.thread("chat").lines()
        payloads = [line.message.payload for line in lines]
        assert faults(payloads, alternating=False) == []  # every call stands with its results
        prompts = [line.id for line in lines if line.message.role == "user"]
        assert prompts == [f"p{number}" for number in range(len(prompts))]  # each once, in order
        answers = [
            next(
                (after for after in payloads[place + 1 :] if not after.get("tool_calls") and after["role"] != "tool"),
                {},
            )
            for place, line in enumerate(lines)
            if line.message.role == "user"
        ]
        replied = [answer.get("content") == "Reply to the prompt." for answer in answers]
        assert all(replied[number] for number in acknowledged)
        assert all(replied[:-1])
        memory.embed()
        assert memory.check() == []
