"""Language models: the official client against a real server that fails in every way, functions, scripts."""

import json
import logging
import sys
import time
import traceback
from collections.abc import Iterator

import pytest

import backscroll
from backscroll import (
    CallableLLM,
    ContextTooLongError,
    LLMError,
    LLMTimeoutError,
    LLMUnavailableError,
    NotFoundError,
    OpenAILLM,
    Reply,
    Retry,
    ScriptedLLM,
    ScriptedReply,
    Usage,
)
from backscroll.llm import open_llm
from backscroll.llm.deltas import Deltas
from backscroll.llm.wordings import limit_in, says_too_long
from backscroll.types import ReplyOptions
from chats import TOOLS, calls, user
from openai_server import MODEL, OpenAIServer, chunk, hangs_up, raw, says, slow, status, streams

KEY = "sk-test-0123456789"
HELLO = [user("Hello there")]
AT_ONCE = Retry(attempts=3, first_wait_seconds=0.0)
SSE_END = '{"error": {"message": "upstream went away", "code": 502}}'


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    running = OpenAIServer()
    yield running
    running.stop()


@pytest.fixture
def llm(server, monkeypatch) -> Iterator[OpenAILLM]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    opened = OpenAILLM("small", server.base_url, retry=AT_ONCE, timeout_seconds=30)
    yield opened
    opened.close()


def both_ways(llm, messages=HELLO, options=ReplyOptions()) -> list[Reply]:
    """The reply at once and as a stream."""
    *pieces, streamed = llm.stream(messages, options)
    assert "".join(pieces) == streamed.text
    return [llm.complete(messages, options), streamed]


# What is sent and what comes


def test_a_reply_has_text_model_usage_and_cached_tokens(llm):
    for reply in both_ways(llm):
        assert reply.message == {"role": "assistant", "content": "You said: Hello there"}
        assert (reply.model, reply.finish_reason, reply.usage) == (MODEL, "stop", Usage(11, 3, 8))


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_cache_hit_tokens": 4},
        {"cache_read_input_tokens": 4},
        {"cached_tokens": 4},
        {"prompt_tokens_details": {"cached_tokens": 4}},
    ],
)
def test_cached_tokens_are_found_under_the_providers_names(server, llm, usage):
    server.steps = [says("Yes.", usage={"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10, **usage})]
    assert llm.complete(HELLO).usage == Usage(9, 1, 4)


def test_a_reply_without_usage_says_so(server, llm):
    server.steps = [says("Yes.", usage=None)] * 2
    assert [reply.usage for reply in both_ways(llm)] == [None, None]


def test_a_request_carries_model_messages_tools_and_the_key(server, llm):
    both_ways(llm, options=ReplyOptions(tools=TOOLS, temperature=0.0, reply_tokens=7))
    whole, streamed = sorted(server.bodies, key=lambda body: bool(body.get("stream")))
    assert whole == {"model": "small", "messages": HELLO, "tools": list(TOOLS), "temperature": 0.0, "max_tokens": 7}
    assert streamed == {**whole, "stream": True, "stream_options": {"include_usage": True}}
    assert server.keys == [f"Bearer {KEY}"] * 2


def test_own_fields_are_sent_and_none_takes_one_out(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    fields = {"top_k": 3, "temperature": 0.2, "seed": 5, "stream_options": None}
    both_ways(OpenAILLM("small", server.base_url + "/", fields=fields))
    for body in server.bodies:
        assert {"top_k": 3, "temperature": 0.2, "seed": 5}.items() <= body.items()
        assert "stream_options" not in body
    assert KEY not in str(server.keys)


def test_calls_come_whole_and_put_together_from_a_stream(server, llm):
    made = calls("c1", "c2", arguments='{"q": "vans"}')
    pieces = [
        {"role": "assistant", "content": None},
        {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "find", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"q": '}}]},
        {"tool_calls": [{"index": 1, "id": "c2", "type": "function", "function": {"name": "find"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"vans"}'}}]},
        {"tool_calls": [{"index": 1, "function": {"arguments": '{"q": "vans"}'}}]},
    ]
    server.steps = [streams(pieces, "tool_calls"), says(made)]
    for reply in both_ways(llm):
        assert reply.message == made
        assert reply.finish_reason == "tool_calls"


def test_calls_that_a_server_numbers_alike_or_leaves_without_ids_stay_apart():
    deltas = Deltas()
    for name in ("find", "look"):
        part = {"index": 0, "id": f"id-{name}", "function": {"name": name, "arguments": {"q": name}}}
        deltas.add(json.loads(chunk({"tool_calls": [part]})))
    first, second = deltas.reply().message["tool_calls"]
    assert [first["function"]["name"], second["function"]["name"]] == ["find", "look"]
    assert first["function"]["arguments"] == '{"q": "find"}'
    nameless = Deltas()
    parts = [{"index": i, "id": "", "function": {"name": "find", "arguments": ""}} for i in range(2)]
    nameless.add(json.loads(chunk({"tool_calls": parts})))
    made = nameless.reply().message["tool_calls"]
    assert len({call["id"] for call in made}) == 2
    assert [call["function"]["arguments"] for call in made] == ["{}", "{}"]


def test_an_answer_that_is_not_streamed_though_asked_so_is_one_piece(server, llm):
    made = calls("c1", "c2", content="I look.")
    server.steps = [lambda handler, _: says(made)(handler, {})]
    piece, reply = llm.stream(HELLO)
    assert (piece, reply) == ("I look.", Reply(made, "tool_calls", Usage(11, 3, 8), MODEL))


def test_a_character_streamed_in_two_halves_is_one_character(server, llm):
    halves = [chunk({"content": "A \ud83d"}), chunk({"content": "\ude9a ok"})]
    server.steps = [streams(halves)]
    *pieces, reply = llm.stream(HELLO)
    assert (pieces, reply.text) == (["A ", "🚚 ok"], "A 🚚 ok")


def test_half_a_character_that_stays_alone_is_replaced(server, llm):
    server.steps = [streams([chunk({"content": "A \ud83d"}), chunk({"content": " van"}), chunk({"content": "\ud83d"})])]
    *pieces, reply = llm.stream(HELLO)
    assert ("".join(pieces), reply.text) == ("A \ufffd van\ufffd", "A \ufffd van\ufffd")


def test_what_the_model_thought_is_not_in_the_message(server, llm):
    server.steps = [says({"role": "assistant", "content": "4.", "reasoning_content": "2 + 2", "annotations": []})]
    assert llm.complete(HELLO).message == {"role": "assistant", "content": "4."}


def test_a_refusal_is_kept_as_one(server, llm):
    server.steps = [streams([{"refusal": "I may "}, {"refusal": "not."}])]
    *pieces, reply = llm.stream(HELLO)
    assert pieces == ["I may ", "not."]
    assert reply.message == {"role": "assistant", "content": None, "refusal": "I may not."}


# What fails and passes


@pytest.mark.parametrize(
    "fault",
    [
        status(429, "slow down", {"Retry-After": "0"}),
        status(500, "oops"),
        status(503, "Loading model"),
        status(529, "overloaded"),
        hangs_up,
        raw(json.dumps({"error": {"message": "upstream", "code": 502}}).encode()),
    ],
    ids=["429", "500", "503", "529", "hang up", "502 in a 200"],
)
@pytest.mark.parametrize("way", ["whole", "stream"])
def test_a_failure_that_may_pass_is_asked_again(server, llm, fault, way):
    server.steps = [fault, fault]
    reply = llm.complete(HELLO) if way == "whole" else list(llm.stream(HELLO))[-1]
    assert reply.text == "You said: Hello there"
    assert len(server.bodies) == 3


@pytest.mark.parametrize("fault", [status(500, "oops"), status(429, "slow down"), hangs_up])
def test_a_failure_that_does_not_pass_ends_after_the_attempts(server, llm, fault):
    server.steps = [fault] * 9
    with pytest.raises(LLMUnavailableError) as caught:
        llm.complete(HELLO)
    assert isinstance(caught.value, ConnectionError)
    assert len(server.bodies) == AT_ONCE.attempts
    assert caught.value.status in (500, 429, None)


def test_the_wait_is_the_servers_where_it_asks_for_one_and_bounded(server, monkeypatch):
    waits: list[float] = []
    retry = Retry(attempts=4, first_wait_seconds=0.5, max_wait_seconds=5.0, sleep=waits.append)
    llm = OpenAILLM("small", server.base_url, key_variable="", retry=retry)
    server.steps = [
        status(429, "slow down", {"Retry-After": "3"}),
        status(503, "busy"),
        status(429, "slow down", {"Retry-After": "600"}),
    ]
    assert llm.complete(HELLO).text == "You said: Hello there"
    assert waits == [3.0, 1.0, 5.0]


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        (status(401, "Incorrect API key provided"), "OPENAI_API_KEY"),
        (status(403, "no"), "may not use"),
        (status(404, "The model does not exist"), "model's name"),
        (status(400, "temperature is not supported"), "what it takes"),
        (status(429, "You exceeded your current quota", code="insufficient_quota"), "nothing left"),
    ],
)
def test_a_refusal_that_stays_is_told_at_once(server, llm, fault, advice):
    for ask in (llm.complete, lambda messages: list(llm.stream(messages))):
        server.bodies.clear()
        server.steps = [fault]
        with pytest.raises(LLMError, match=advice) as caught:
            ask(HELLO)
        assert type(caught.value) is LLMError
        assert caught.value.status in (400, 401, 403, 404, 429)
        assert caught.value.__cause__ is not None
        assert len(server.bodies) == 1


def test_no_answer_in_time_is_an_error_of_its_own_and_not_asked_again(server, monkeypatch):
    llm = OpenAILLM("small", server.base_url, key_variable="", timeout_seconds=0.1, retry=AT_ONCE)
    server.steps = [slow(0.5)]
    with pytest.raises(LLMTimeoutError) as caught:
        llm.complete(HELLO)
    assert isinstance(caught.value, TimeoutError)
    assert len(server.bodies) == 1
    server.steps = [streams([{"content": "One "}], then=lambda _: time.sleep(0.5))]
    stream = llm.stream(HELLO)
    assert next(stream) == "One "
    with pytest.raises(LLMTimeoutError):
        next(stream)


def test_the_time_limit_of_one_call_comes_before_the_llms_own(server, llm):
    server.steps = [slow(0.5)]
    with pytest.raises(LLMTimeoutError):
        llm.complete(HELLO, ReplyOptions(timeout_seconds=0.1))


@pytest.mark.parametrize(
    "step",
    [
        streams([{"content": "One "}], then=lambda handler: handler.hang_up()),
        streams([{"content": "One "}], finish_reason=None),
        streams([{"content": "One "}, SSE_END]),
    ],
    ids=["cut", "ended early", "an error event"],
)
def test_a_stream_that_breaks_is_an_error_and_not_a_short_reply(server, llm, step):
    server.steps = [step]
    stream = llm.stream(HELLO)
    assert next(stream) == "One "
    with pytest.raises(LLMUnavailableError):
        next(stream)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "step",
    [
        raw(b'{"choices": [{"mess'),
        raw(b"<html>Welcome</html>", "text/html"),
        raw(b"[]"),
        raw(b"null"),
        streams(["{not JSON"]),
    ],
    ids=["cut JSON", "a page", "a list", "null", "an event that is not JSON"],
)
def test_an_answer_that_is_none_is_an_error(server, llm, step):
    for ask in (llm.complete, lambda messages: list(llm.stream(messages))):
        server.steps = [step]
        with pytest.raises(LLMError):
            ask(HELLO)


BYTES_THAT_ARE_NO_TEXT = b'{"choices": [{"index": 0, "message": {"content": "\xff\xfe"}}]}'
DEEP = b'{"choices": ' + b"[" * 100_000


@pytest.mark.parametrize("data", [BYTES_THAT_ARE_NO_TEXT, DEEP, DEEP[:612] + b"]" * 600 + b"}"])
def test_an_answer_that_cannot_be_read_is_an_error(server, llm, data):
    for ask in (llm.complete, lambda messages: list(llm.stream(messages))):
        for step in (raw(data), raw(b"data: " + data + b"\n\n", "text/event-stream")):
            server.steps = [step]
            with pytest.raises(LLMError):
                ask(HELLO)
            assert server.steps == []


@pytest.mark.parametrize(
    "choices",
    [
        "Yes.",
        [None],
        ["Yes."],
        [{"message": "Yes.", "delta": "Yes."}],
        [{"message": {"content": 5}, "delta": {"content": 5}}],
        [{"message": {"refusal": 5}, "delta": {"refusal": 5}}],
        [{"message": {"tool_calls": ["find"]}, "delta": {"tool_calls": ["find"]}}],
        [{"message": {"tool_calls": {"id": "c1"}}, "delta": {"tool_calls": {"id": "c1"}}}],
        [{"message": {"tool_calls": [{"function": "find"}]}, "delta": {"tool_calls": [{"function": "find"}]}}],
    ],
)
def test_an_answer_of_another_form_is_an_error_that_shows_it(server, llm, choices):
    data = json.dumps({"choices": choices})
    server.steps = [raw(data.encode()), raw(data.encode())]
    for ask in (llm.complete, lambda messages: list(llm.stream(messages))):
        with pytest.raises(LLMError, match=r"does not speak the protocol.*It sent: .*choices"):
            ask(HELLO)
    server.steps = [streams([{"content": "One "}, data])]
    stream = llm.stream(HELLO)
    assert next(stream) == "One "
    with pytest.raises(LLMError, match="does not speak the protocol"):
        next(stream)


@pytest.mark.parametrize("usage", [5, [], {"prompt_tokens": "many"}, {"prompt_tokens": 1e400}, {"prompt_tokens": {}}])
def test_a_usage_that_is_none_does_not_cost_the_reply(server, llm, usage):
    server.steps = [says("Yes.", usage=usage)] * 2
    assert [(reply.text, reply.usage) for reply in both_ways(llm)] == [("Yes.", None)] * 2


def test_calls_whose_ids_are_numbers_have_them_as_text(server, llm):
    made = calls("7")
    made["tool_calls"][0]["id"] = 7
    server.steps = [says(made)] * 2
    assert [reply.message for reply in both_ways(llm)] == [calls("7")] * 2


def test_a_server_that_is_not_there_is_said_so(server, llm):
    server.stop()
    with pytest.raises(LLMUnavailableError, match=r"cannot be reached.*check the address"):
        llm.complete(HELLO)


# The key


def test_the_key_is_in_no_error_no_log_and_no_representation(server, llm, caplog):
    caplog.set_level(logging.DEBUG)
    server.steps = [status(401, f"Incorrect API key provided: {KEY}"), status(500, KEY), status(500, KEY), hangs_up]
    told = []
    for _ in range(2):
        with pytest.raises(LLMError) as caught:
            llm.complete(HELLO)
        told.append("".join(traceback.format_exception(caught.value)))
    assert KEY not in "".join(told) + caplog.text + repr(llm) + str(llm)
    assert "***" in told[0]


def test_without_a_key_the_error_names_the_variable(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(LLMError, match="OPENAI_API_KEY"):
        OpenAILLM("gpt-4o")
    monkeypatch.setenv("MY_KEY", "two\nlines")
    with pytest.raises(LLMError, match="MY_KEY"):
        OpenAILLM("gpt-4o", key_variable="MY_KEY")
    monkeypatch.setenv("MY_KEY", KEY + "\n")
    assert OpenAILLM("gpt-4o", key_variable="MY_KEY").model == "gpt-4o"


@pytest.mark.parametrize("address", ["localhost:11434/v1", "http://me:secret@host/v1", "ftp://host/v1", "http://"])
def test_an_address_that_is_none_or_holds_a_password_is_refused(address):
    with pytest.raises(LLMError) as caught:
        OpenAILLM("small", address)
    assert "secret" not in str(caught.value)


def test_the_address_may_stand_in_the_environment(server, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert OpenAILLM("small").complete(HELLO).text == "You said: Hello there"


def test_a_missing_extra_says_what_to_type(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(LLMError, match=r"pip install 'backscroll\[openai\]'"):
        OpenAILLM("small", "http://localhost/v1")


# A context that is too long


TOO_LONG = {  # as providers say it -> the limit that they name
    "This model's maximum context length is 4097 tokens. However, your messages resulted in 13393 tokens.": 4097,
    "This model's maximum context length is 128000 tokens. However, you requested 1124171 tokens.": 128000,
    "Your input exceeds the context window of this model. Please adjust your input and try again.": None,
    "Input tokens exceed the configured limit of 272,000 tokens. Your messages resulted in 311391 tokens.": 272000,
    "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40212.": 30000,
    "prompt is too long: 207791 tokens > 200000 maximum": 200000,
    "input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length": 200000,
    "The prompt is too long: 140000, model maximum context length: 131071": 131071,
    "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).": 1048576,
    "the request exceeds the available context size, try increasing it": None,
    "request (14429 tokens) exceeds the available context size (8192 tokens), try increasing it": 8192,
    "Requested tokens (2285) exceed context window of 2048": 2048,
    "the input length exceeds the context length": None,
    "Input length 1581 exceeds context length 1500": 1500,
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length": 32768,
    "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 6354.": 4081,
    "total tokens exceeds the model's max of 4096": 4096,
    "This endpoint's maximum context length is 200000 tokens. However, you requested about 250000 tokens.": 200000,
    "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.": 131040,
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.": 131072,
    "Please reduce the length of the messages or completion.": None,
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.": 4096,
    "The prompt (total length 5000) is too long to fit into the model (context length 4096).": 4096,
    "max_tokens must be at least 1, got -186.": None,
    "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens": 4096,
    "The input (210000 tokens) is longer than the model's context length (8192 tokens).": 8192,
    "Input is too long for requested model.": None,
    "Your request exceeded model token limit: 262144 (requested: 291351)": 262144,
    "prompt token count of 130000 exceeds the limit of 128000": 128000,
    "invalid params, context window exceeds limit (2013)": None,
    "Range of input length should be [1, 30720]": 30720,
    "The total length of all messages is too long.": None,
    "Prompt exceeds max length": None,
    "ContextWindowExceededError: no model has room for this call": None,
    "number of tokens to keep from the initial prompt is greater than the context length": None,
}


@pytest.mark.parametrize(("said", "limit"), TOO_LONG.items(), ids=lambda one: str(one)[:40])
def test_a_context_that_is_too_long_is_known_by_the_providers_words(said, limit):
    assert says_too_long(said)
    assert limit_in(said) == limit


@pytest.mark.parametrize(
    "said",
    [
        "Rate limit reached for gpt-4o on requests per min: Limit 3, Used 3",
        "Too many tokens, please wait before trying again.",
        "Invalid value for 'temperature'",
        "messages: at least one message is required",
        "max_tokens is too large: 5000. This model supports at most 4096 completion tokens",
        "the server is overloaded",
    ],
)
def test_other_refusals_are_not_taken_for_one(said):
    assert not says_too_long(said)


@pytest.mark.parametrize(
    ("step", "limit"),
    [
        (status(400, "This model's maximum context length is 8192 tokens.", code="context_length_exceeded"), 8192),
        (status(400, "no", code="context_length_exceeded"), None),
        (status(413, "Payload too large"), None),
        (status(500, "exceeds the available context size", type="exceed_context_size_error", n_ctx=256), 256),
        (status(429, "Request too large for small on tokens per min (TPM): Limit 6000, Requested 7000"), 6000),
        (raw(json.dumps({"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}).encode()), 8),
    ],
)
def test_a_context_that_is_too_long_is_one_error_whatever_the_status(server, llm, step, limit):
    for ask in (llm.complete, lambda messages: list(llm.stream(messages))):
        server.steps = [step]
        server.bodies.clear()
        with pytest.raises(ContextTooLongError) as caught:
            ask(HELLO)
        assert caught.value.limit == limit
        assert len(server.bodies) == 1


# By name; functions; scripts


def test_an_llm_is_opened_by_name(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert open_llm(f"openai:org/small@2@{server.base_url}").complete(HELLO).text == "You said: Hello there"
    assert server.bodies[0]["model"] == "org/small@2"
    assert open_llm("openai:gpt-4o").model == "gpt-4o"
    for name in ("gpt-4o", "openai:", "ollama:llama3"):
        with pytest.raises(NotFoundError, match="openai:MODEL@BASE_URL"):
            open_llm(name)


def test_an_llm_that_is_one_is_taken_as_it_is_and_a_function_is_wrapped():
    scripted = ScriptedLLM([])
    assert open_llm(scripted) is scripted
    [reply, streamed] = both_ways(open_llm(lambda messages: messages[0]["content"].upper()))
    assert reply == streamed == Reply({"role": "assistant", "content": "HELLO THERE"})


def test_a_function_may_return_a_message_and_take_tools():
    seen = []

    def answer(messages, tools):
        seen.append(tools)
        return calls("c1")

    reply = CallableLLM(answer, model="gpt-4o").complete(HELLO, ReplyOptions(tools=TOOLS))
    assert (reply.message, reply.finish_reason) == (calls("c1"), "tool_calls")
    assert seen == [list(TOOLS)]


def test_a_function_that_returns_neither_is_an_error_and_what_it_raises_goes_through():
    with pytest.raises(LLMError, match="text or a message, not int"):
        CallableLLM(lambda messages: 4).complete(HELLO)
    with pytest.raises(ZeroDivisionError):
        CallableLLM(lambda messages: 1 / 0).complete(HELLO)


def test_a_script_is_said_line_by_line_and_keeps_what_it_was_asked():
    llm = ScriptedLLM(["One.", ScriptedReply(pieces=["T", "wo."]), calls("c1"), LLMTimeoutError("late")])
    assert llm.complete(HELLO).text == "One."
    *pieces, reply = llm.stream(HELLO)
    assert (pieces, reply.text) == (["T", "wo."], "Two.")
    assert llm.complete(HELLO).finish_reason == "tool_calls"
    with pytest.raises(LLMTimeoutError):
        llm.complete(HELLO)
    with pytest.raises(LLMError, match="4 replies"):
        llm.complete(HELLO)
    assert llm.asked == [HELLO] * 4


def test_a_scripted_stream_gives_all_of_its_text_and_then_its_error():
    broken = ScriptedReply("One two  three.\n", error=LLMUnavailableError("gone"))
    stream = ScriptedLLM([broken]).stream(HELLO)
    received = []
    with pytest.raises(LLMUnavailableError):
        received.extend(iter(stream.__next__, None))
    assert [*ScriptedLLM(["One two  three.\n", ""]).stream(HELLO)][:-1] == ["One", " two", "  three.\n"]
    assert list(ScriptedLLM([""]).stream(HELLO))[:-1] == []


def test_importing_the_package_and_opening_a_memory_loads_no_client(tmp_path):
    import subprocess

    code = (
        "import sys, backscroll; backscroll.open(':memory:', embedder='hashing', llm=lambda m: 'x');"
        "print('openai' in sys.modules)"
    )
    environment = {"PYTHONPATH": str(backscroll.__path__[0]).removesuffix("backscroll")}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
