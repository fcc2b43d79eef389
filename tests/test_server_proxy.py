"""/v1: chat clients with a memory in between, over real sockets to a small real upstream."""

import asyncio
import contextlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from langchain_openai import ChatOpenAI

import openai_server
from backscroll.memory import Memory
from backscroll.server.settings import ServerSettings, base_url_of
from backscroll.server.upstream import Upstream
from chats import assistant, calls, result, system, user
from openai_server import OpenAIServer, chunk, hangs_up, says, status, streams
from serving import served

PATH = "/v1/chat/completions"


@pytest.fixture
def upstream(monkeypatch) -> Iterator[OpenAIServer]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = OpenAIServer()
    server.otherwise = repeats_the_prompt
    yield server
    server.stop()


def repeats_the_prompt(handler: openai_server.Handler, body: openai_server.Body) -> None:
    """Say again what the user said, and not what was recalled for it."""
    prompt = body["messages"][-1]["content"]
    words = prompt.rpartition("</recalled>")[2].strip() if isinstance(prompt, str) else "a picture"
    says(f"You said: {words}")(handler, body)


@pytest.fixture
def url(memory, upstream) -> Iterator[str]:
    with served(memory, upstream=upstream.base_url) as server:
        yield server.url


@pytest.fixture
def client(url) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="the client's", base_url=f"{url}/v1", max_retries=0) as client:
        yield client


def ask(url: str, messages: list[dict], headers: dict[str, str] | None = None, **body: object) -> httpx.Response:
    given = {"model": "small", "messages": messages, **body}
    return httpx.post(url + PATH, json=given, headers=headers, timeout=30)


def talks(memory: Memory, who: str = "default") -> list[list[str]]:
    """What was said in each thread of a user, branches left out."""
    roots = [info.thread for info in memory.threads(who) if info.parent is None]
    return [[line.message.text for line in memory.thread(name, who).lines()] for name in roots]


# what goes through


def test_the_client_gets_the_upstreams_answer_byte_for_byte(url, upstream):
    data = b'{ "choices": [ {"index":0, "message": {"role":"assistant","content":"Yes \\u00e9."}} ],\n "odd":  1.50 }'
    upstream.steps = [openai_server.raw(data)]
    got = ask(url, [user("Ready?")])
    assert (got.status_code, got.content) == (200, data)


def test_a_stream_goes_through_byte_for_byte(url, upstream):
    upstream.steps = [streams([": a comment", {"content": "a"}, {"content": "b é"}])]
    body = {"model": "small", "messages": [user("Ready?")], "stream": True}
    direct = httpx.post(f"{upstream.base_url}/chat/completions", json=body)
    upstream.steps = [streams([": a comment", {"content": "a"}, {"content": "b é"}])]
    through = httpx.post(url + PATH, json=body)
    assert through.content == direct.content
    assert through.headers["content-type"] == direct.headers["content-type"]


def test_what_a_client_asks_for_beside_the_messages_reaches_the_upstream_as_it_is(url, upstream):
    tool = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}
    more = {"temperature": 0.25, "n": 2, "tools": [tool], "user": "alice", "metadata": {"a": "b"}, "odd": [1, None]}
    ask(url, [user("Ready?")], **more)
    sent = upstream.bodies[0]
    assert {key: sent[key] for key in more} == more
    assert sent["model"] == "small"


def test_images_go_through_and_are_stored(url, upstream, memory):
    parts = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": "data:image/png,x"}}]
    ask(url, [user(parts)])
    assert upstream.bodies[0]["messages"] == [user(parts)]
    [thread] = memory.threads("default")
    assert memory.thread(thread.thread).lines()[0].message.payload["content"] == parts


def test_what_the_upstream_sets_for_one_user_is_not_sent_for_another(url, upstream):
    upstream.steps = [status(429, "slow down", {"Set-Cookie": "session=alice; Path=/"})]
    ask(url, [user("Ready?")])
    ask(url, [user("Ready?")])
    assert len(upstream.headers) == 2
    assert not any("cookie" in headers for headers in upstream.headers)


@pytest.mark.parametrize(("code", "words"), [(401, "wrong key"), (429, "slow down"), (500, "oops"), (404, "no model")])
def test_an_error_of_the_upstream_goes_through_with_its_status_and_bytes(url, upstream, memory, code, words):
    upstream.steps = [status(code, words, {"Retry-After": "7"})]
    got = ask(url, [user("Ready?")])
    assert (got.status_code, got.json()["error"]["message"], got.headers["retry-after"]) == (code, words, "7")
    assert talks(memory) == [["Ready?"]]


def test_the_models_are_the_upstreams(client):
    assert [model.id for model in client.models.list()] == [openai_server.MODEL]


def test_nothing_else_of_the_upstream_is_passed_on(url, upstream, client):
    with pytest.raises(openai.NotFoundError, match="chat/completions"):
        client.embeddings.create(model="small", input="x")
    assert upstream.bodies == []


# clients


def test_the_official_client_chats_streams_and_is_remembered(client, upstream, memory):
    upstream.steps = [says("My name is Small."), says("You asked for my name.")]
    first = client.chat.completions.create(model="small", messages=[user("Who are you?")])
    talk = [user("Who are you?"), first.choices[0].message.model_dump(), user("What did I ask?")]
    pieces = client.chat.completions.create(model="small", messages=talk, stream=True)
    assert (
        "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices) == "You asked for my name."
    )
    assert talks(memory) == [["Who are you?", "My name is Small.", "What did I ask?", "You asked for my name."]]
    assert (
        memory.thread(memory.threads("default")[0].thread).lines()[1].message.metadata["usage"]["prompt_tokens"] == 11
    )


def test_the_official_client_calls_tools_and_each_line_is_stored_once(client, upstream, memory):
    upstream.steps = [says(calls("c1", arguments='{"van":7}')), says("It is in Lyon.")]
    talk = [user("Where is van 7?")]
    called = client.chat.completions.create(model="small", messages=talk).choices[0].message
    talk += [called.model_dump(exclude_none=True), result("c1", "Lyon")]
    client.chat.completions.create(model="small", messages=talk)
    assert [message["role"] for message in upstream.bodies[1]["messages"]] == ["user", "assistant", "tool"]
    [said] = talks(memory)
    assert said[0::2] == ["Where is van 7?", "Lyon"]
    assert said[3] == "It is in Lyon."


def test_langchain_calls_tools_streams_and_each_line_is_stored_once(url, upstream, memory):
    model = ChatOpenAI(model="small", base_url=f"{url}/v1", api_key="none", max_retries=0)
    upstream.steps = [says(calls("c1", arguments='{"van":7,"now":true}')), says("It is in Lyon.")]
    talk = [("user", "Where is van 7?")]
    called = model.invoke(talk)
    pieces = model.stream([*talk, called, {"role": "tool", "tool_call_id": "c1", "content": "Lyon"}])
    assert "".join(str(piece.content) for piece in pieces) == "It is in Lyon."
    [said] = talks(memory)
    assert len(said) == 4


def test_several_choices_reach_the_client_and_the_one_it_goes_on_with_is_the_chat(client, upstream, memory):
    deltas = [chunk({"content": "red"}), chunk({"content": "blue"}).replace('"index": 0', '"index": 1')]
    upstream.steps = [streams(deltas), says("Blue it is.")]
    pieces = client.chat.completions.create(model="small", messages=[user("Color?")], n=2, stream=True)
    said = {choice.index: choice.delta.content for piece in pieces for choice in piece.choices if choice.delta.content}
    assert said == {0: "red", 1: "blue"}
    assert talks(memory) == [["Color?", "red"]]
    thread = memory.threads("default")[0].thread
    named = {"X-Backscroll-Thread": thread}
    client.chat.completions.create(
        model="small", messages=[user("Color?"), assistant("blue"), user("Sure?")], extra_headers=named
    )
    assert talks(memory) == [["Color?", "blue", "Sure?", "Blue it is."]]


@pytest.mark.parametrize(("name", "turns"), [("openai", 100), ("langchain", 25)])
def test_a_chat_of_many_turns_stays_within_a_window_of_4k_tokens(memory, upstream, name, turns):
    longer = 100 // turns  # so that as much is said in all
    upstream.max_tokens = 4000
    upstream.otherwise = says("Noted. " + "That is good to know, and I will keep it in mind for later. " * 3 * longer)
    with served(memory, upstream=upstream.base_url, max_tokens=3900) as server:
        answer = answering(name, f"{server.url}/v1")
        talk = [system("You plan routes.")]
        for turn in range(turns):
            fact = "The depot's gate code is 4711." if turn == 3 else f"Stop {turn} takes {turn + 5} minutes to unload."
            talk.append(
                user(f"{fact} The lorry needs a ramp there, and somebody who signs for the delivery. " * 2 * longer)
            )
            talk.append(assistant(answer(talk)))
        plain = openai_server.tokens({"messages": talk})
        assert plain > 2 * upstream.max_tokens
        talk.append(user("What is the gate code of the depot?"))
        answer(talk)
    assert all(openai_server.tokens(body) <= 3900 for body in upstream.bodies)
    assert "4711" in json.dumps(upstream.bodies[-1]["messages"])
    assert upstream.bodies[-1]["messages"][0] == talk[0]
    [said] = talks(memory)
    assert said[:-1] == [message["content"] for message in talk]


def answering(name: str, base_url: str) -> Callable[[list[dict]], str]:
    """A client of the name, as a function of the history that it resends."""
    if name == "langchain":
        model = ChatOpenAI(model="gpt-4o", base_url=base_url, api_key="none", max_retries=0)
        return lambda talk: str(model.invoke(talk).content)
    client = openai.OpenAI(api_key="none", base_url=base_url, max_retries=0)
    return lambda talk: client.chat.completions.create(model="gpt-4o", messages=talk).choices[0].message.content or ""


# whose thread it is


def test_a_thread_is_named_by_headers_of_any_characters(url, memory):
    got = ask(url, [user("Hi")], {"X-Backscroll-User": "J%C3%BCrgen%20%26%20Co", "X-Backscroll-Thread": "a/b%25"})
    assert (got.headers["x-backscroll-user"], got.headers["x-backscroll-thread"]) == (
        "J%C3%BCrgen%20%26%20Co",
        "a/b%25",
    )
    assert [line.message.text for line in memory.thread("a/b%", "Jürgen & Co").lines()] == ["Hi", "You said: Hi"]


def test_a_thread_is_named_by_the_body_and_what_is_ours_stays_here(url, memory, upstream):
    ask(url, [user("Hi")], user="bob", metadata={"backscroll_thread": "boat", "k": "v"})
    ask(url, [user("Ho")], metadata={"backscroll_thread": "boat", "backscroll_user": "carol"})
    assert len(memory.thread("boat", "bob").lines()) == 2
    assert len(memory.thread("boat", "carol").lines()) == 2
    assert [body.get("metadata") for body in upstream.bodies] == [{"k": "v"}, None]


def test_a_header_goes_before_the_body(url, memory):
    ask(url, [user("Hi")], {"X-Backscroll-User": "ann"}, user="bob")
    assert {info.user for info in memory.threads()} == {"ann"}


def test_chats_that_begin_with_the_same_words_are_two_and_each_is_found_again(url, memory):
    first, second = [user("Hi")], [user("Hi")]
    for talk in (first, second):
        talk.append(ask(url, talk).json()["choices"][0]["message"])
    for talk, words in ((first, "Boats?"), (second, "Cars?")):
        talk.append(user(words))
        ask(url, talk)
    assert sorted(talks(memory)) == [
        ["Hi", "You said: Hi", "Boats?", "You said: Boats?"],
        ["Hi", "You said: Hi", "Cars?", "You said: Cars?"],
    ]


def test_an_edit_and_a_regeneration_are_branches_of_the_one_thread(url, memory, upstream):
    talk = [user("Name a boat."), assistant("You said: Name a boat."), user("Another.")]
    ask(url, talk[:1])
    ask(url, talk)
    upstream.steps = [says("The Argo.")]
    ask(url, talk)  # regenerated
    assert talks(memory) == [[*(message["content"] for message in talk), "The Argo."]]
    ask(url, [*talk[:2], user("A bigger one.")])  # edited
    assert talks(memory)[0][2:] == ["A bigger one.", "You said: A bigger one."]
    assert len(talks(memory)) == 1


def test_a_system_prompt_that_changes_with_every_request_stands_in_front_also_where_one_is_repeated(url, upstream):
    talk = [user("First."), assistant("You said: First."), user("Second.")]
    ask(url, [system("It is noon."), *talk[:1]])
    for told in ("It is one.", "It is two."):
        ask(url, [system(told), *talk])
        assert [message["role"] for message in upstream.bodies[-1]["messages"]] == [
            "system",
            "user",
            "assistant",
            "user",
        ]
        assert upstream.bodies[-1]["messages"][0]["content"] == told


def test_a_history_that_the_client_cut_at_its_front_is_found(url, memory):
    talk: list[dict] = []
    for n in range(6):
        talk.append(user(f"Stop {n}?"))
        talk.append(ask(url, talk[-5:]).json()["choices"][0]["message"])
    assert talks(memory) == [[message["content"] for message in talk]]


def test_asking_again_after_a_failure_stores_nothing_twice(url, memory, upstream):
    upstream.steps = [status(500, "oops"), hangs_up]
    assert ask(url, [user("Hi")]).status_code == 500
    assert ask(url, [user("Hi")]).status_code == 502
    assert ask(url, [user("Hi")]).status_code == 200
    assert talks(memory) == [["Hi", "You said: Hi"]]


def test_a_named_thread_takes_new_messages_alone(url, memory, upstream):
    named = {"X-Backscroll-Thread": "boat"}
    for words in ("My boat is called Argo.", "It is 9 m long.", "What is it called?"):
        ask(url, [system("Be brief."), user(words)], named)
    assert len(memory.thread("boat").lines()) == 7
    assert [message["content"] for message in upstream.bodies[-1]["messages"]][:2] == [
        "Be brief.",
        "My boat is called Argo.",
    ]
    ask(url, [user("My boat is called Argo.")], {**named, "X-Backscroll-History": "new"})
    assert len(memory.thread("boat").lines()) == 9


def test_recall_reaches_the_users_other_threads_and_no_other_users(url, upstream):
    ask(url, [user("The gate code of the depot is 4711.")], user="alice")
    ask(url, [user("What is the gate code of the depot?")], user="alice")
    assert "4711" in json.dumps(upstream.bodies[-1]["messages"])
    ask(url, [user("What is the gate code of the depot?")], user="bob")
    assert "4711" not in json.dumps(upstream.bodies[-1]["messages"])


def test_a_client_cannot_write_what_is_noted_here_of_a_message(url, memory):
    ours = {"partial": True, "usage": {"x": 1}, "latency_ms": "x", "context_tokens": "x", "preset": 1, "model": 2}
    ours |= {"finish_reason": 3, "replaces_system": 9}
    ask(url, [user("Hi", metadata={**ours, "mood": "good"})], {"X-Backscroll-Thread": "t"})
    assert memory.thread("t").lines()[0].message.metadata == {"mood": "good"}
    assert httpx.get(f"{url}/api/turns", params={"thread": "t"}).status_code == 200


# several at once


def test_many_answers_at_once_are_read_and_their_connections_are_used_again():
    connections: list[asyncio.Task] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while asked := await reader.readuntil(b"\r\n\r\n"):
                name = asked.partition(b"x-name: ")[2].partition(b"\r\n")[0]
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(name), name))
                await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def ask_all(url: str) -> None:
        asked = Upstream(ServerSettings(upstream=url))
        for _ in range(2):
            answers = [await asked.get("/models", {"x-name": str(n)}) for n in range(40)]
            assert [await one.aread() for one in answers] == [b"%d" % n for n in range(40)]
            for one in answers:
                await one.aclose()
                await one.aclose()
        assert len(connections) == 40
        await asked.close()

    async def run() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        await ask_all(f"http://{host}:{port}/v1")
        await asyncio.gather(*connections)
        server.close()
        await server.wait_closed()

    asyncio.run(run())


def test_a_reply_is_embedded_though_nobody_asks_again(url, memory):
    ask(url, [user("Where is the key?")])
    until = time.monotonic() + 20
    while memory.store.unembedded_count(None) and time.monotonic() < until:
        time.sleep(0.01)
    assert memory.store.unembedded_count(None) == 0


def repeats_the_last_paragraph(handler: openai_server.Handler, body: openai_server.Body) -> None:
    """Say again what was asked last: prompts that wait for an answer stand in one message."""
    says("You said: " + body["messages"][-1]["content"].rpartition("\n\n")[2])(handler, body)


def test_requests_at_once_in_one_thread_each_get_the_answer_to_their_own_prompt(url, memory, upstream):
    upstream.otherwise = repeats_the_last_paragraph
    begin = threading.Barrier(8)
    got = {}

    def go(n: int) -> None:
        begin.wait()
        for words in (f"first of {n}", f"second of {n}", f"third of {n}"):
            got[words] = ask(url, [user(words)], {"X-Backscroll-Thread": "t"}).json()["choices"][0]["message"][
                "content"
            ]

    going = [threading.Thread(target=go, args=(n,)) for n in range(8)]
    for one in going:
        one.start()
    for one in going:
        one.join()
    assert got == {words: f"You said: {words}" for words in got}
    assert answered(memory, "t") == got


def answered(memory: Memory, family: str) -> dict[str, str]:
    """Each prompt of a thread, in whatever branch, with the reply behind it."""
    infos = memory.store.threads("default", family)
    paths = [[line.message for line in memory.thread(info.thread).lines()] for info in infos]
    pairs = [pair for path in paths for pair in pairwise(path)]
    return {prompt.text: reply.text for prompt, reply in pairs if (prompt.role, reply.role) == ("user", "assistant")}


def test_a_reply_that_comes_when_the_thread_has_gone_on_stands_beside_and_is_gone_on_from(url, memory, upstream):
    asked, go_on = threading.Event(), threading.Event()
    named = {"X-Backscroll-Thread": "t"}

    def late(handler: openai_server.Handler, body: openai_server.Body) -> None:
        asked.set()
        go_on.wait(10)
        says("It comes late.")(handler, body)

    upstream.steps, upstream.otherwise = [late], repeats_the_last_paragraph
    first = threading.Thread(target=ask, args=(url, [user("One?")], named))
    first.start()
    assert asked.wait(10)
    ask(url, [user("Two?")], named)
    go_on.set()
    first.join()
    assert talks(memory) == [["One?", "Two?", "You said: Two?"]]
    assert answered(memory, "t") == {"One?": "It comes late.", "Two?": "You said: Two?"}
    ask(url, [user("One?"), assistant("It comes late."), user("Three?")], named)
    assert talks(memory) == [["One?", "It comes late.", "Three?", "You said: Three?"]]
    assert len(memory.thread("t~1").lines()) == 4
    ask(url, [user("One?"), user("Two?"), assistant("You said: Two?"), user("Four?")], named)
    assert talks(memory) == [["One?", "Two?", "You said: Two?", "Four?", "You said: Four?"]]


# what the model thought first


THOUGHT = "<think>\nIt had fifty oars.\n</think>\n\n"


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_thought_in_front_of_a_reply_goes_through_and_is_neither_stored_nor_sent(url, memory, upstream, is_stream):
    said = f"{THOUGHT}The Argo."
    upstream.steps = [streams([{"content": piece} for piece in (THOUGHT, "The Argo.")]) if is_stream else says(said)]
    asked = user("Name a boat.")
    assert r"<think>\nIt had" in ask(url, [asked], stream=is_stream).text
    assert talks(memory) == [["Name a boat.", "The Argo."]]
    ask(url, [asked, assistant(said), user("And another?")])  # as the client has it
    assert upstream.bodies[-1]["messages"][:2] == [asked, assistant("The Argo.")]
    assert talks(memory) == [["Name a boat.", "The Argo.", "And another?", "You said: And another?"]]


def test_a_reply_that_is_a_thought_alone_is_not_stored(url, memory, upstream):
    broken = streams([{"content": "<think>It had fi"}], then=lambda handler: handler.hang_up())
    upstream.steps = [says("<think>Hm.</think>"), broken]
    ask(url, [user("Name a boat.")])
    with pytest.raises(httpx.RemoteProtocolError):
        ask(url, [user("Name a boat.")], stream=True)
    eventually(lambda: 'replies_total{end="empty"} 2.0' in httpx.get(f"{url}/metrics").text)
    assert talks(memory) == [["Name a boat."]]


# when it ends otherwise


def test_what_was_streamed_until_the_upstream_broke_is_stored_as_partial(url, memory, upstream):
    upstream.steps = [streams([{"content": "The Ar"}], then=lambda handler: handler.hang_up())]
    with (
        pytest.raises(httpx.RemoteProtocolError),
        httpx.stream(
            "POST", url + PATH, json={"model": "small", "messages": [user("Name a boat.")], "stream": True}
        ) as got,
    ):
        got.read()
    eventually(lambda: talks(memory) == [["Name a boat.", "The Ar"]])
    assert memory.thread(memory.threads("default")[0].thread).lines()[1].message.metadata["partial"]


def test_a_streamed_reply_that_quotes_the_mark_of_an_end_is_stored_whole(url, memory, upstream):
    pieces = ["A stream ends with data: [DONE] and ", "goes on."]
    upstream.steps = [streams([{"content": piece} for piece in pieces])]
    httpx.post(url + PATH, json={"model": "small", "messages": [user("How?")], "stream": True})
    assert talks(memory) == [["How?", "".join(pieces)]]


def test_a_streamed_reply_is_stored_at_the_mark_of_its_end(url, memory, upstream):
    """Clients stop reading there; what the upstream does afterwards is not waited for."""
    hold = threading.Event()

    def lingers(handler: openai_server.Handler) -> None:
        handler.event(chunk({}, "stop"))
        handler.event("[DONE]")
        hold.wait(10)

    upstream.steps = [streams([{"content": "The Argo."}], then=lingers)]
    asked = {"model": "small", "messages": [user("Name a boat.")], "stream": True}
    with httpx.stream("POST", url + PATH, json=asked) as got:
        assert "data: [DONE]" in got.iter_lines()
        assert talks(memory) == [["Name a boat.", "The Argo."]]
        hold.set()


def test_a_piece_that_is_nested_too_deep_breaks_no_stream(url, memory, upstream):
    upstream.steps = [streams([{"content": "The Ar"}, "[" * 100_000, {"content": "go."}])]
    got = httpx.post(url + PATH, json={"model": "small", "messages": [user("Name a boat.")], "stream": True})
    assert got.text.rstrip().endswith("data: [DONE]")
    assert talks(memory) == [["Name a boat.", "The Argo."]]


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_store_that_fails_breaks_no_answer(url, memory, upstream, is_stream):
    def closes(handler: openai_server.Handler, body: openai_server.Body) -> None:
        memory.store.close()
        says("The Argo.")(handler, body)

    upstream.steps = [closes]
    got = ask(url, [user("Name a boat.")], stream=is_stream)
    assert (got.status_code, "Argo." in got.text) == (200, True)
    assert 'backscroll_replies_total{end="lost"} 1.0' in httpx.get(f"{url}/metrics").text


def test_what_was_streamed_until_the_client_left_is_stored_as_partial(url, memory, upstream):
    left = threading.Event()
    upstream.steps = [streams([{"content": "The Ar"}], then=lambda handler: left.wait(10))]
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    body = json.dumps({"model": "small", "messages": [user("Name a boat.")], "stream": True})
    connection.request("POST", PATH, body, {"Content-Type": "application/json"})
    assert connection.getresponse().readline()
    connection.close()
    eventually(lambda: talks(memory) == [["Name a boat.", "The Ar"]])
    left.set()
    ask(url, [user("Name a boat."), assistant("The Ar"), user("Go on.")])
    assert talks(memory)[0][:3] == ["Name a boat.", "The Ar", "Go on."]
    assert len(talks(memory)) == 1


def eventually(holds, seconds: float = 10) -> None:
    """Wait until it holds; what is not on the clock of the test may need a moment."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.01)


def test_a_context_that_the_model_refuses_is_sent_once_more_smaller(memory, upstream):
    upstream.max_tokens = 300
    with served(memory, upstream=upstream.base_url, max_tokens=2000) as server:
        for n in range(20):
            assert (
                ask(
                    server.url,
                    [user(f"Stop {n} is at mile {n}, with a ramp and a gate. " * 3)],
                    user="a",
                    metadata={"backscroll_thread": "t"},
                ).status_code
                == 200
            )
    refused = [body for body in upstream.bodies if openai_server.tokens(body) > 300]
    assert refused
    assert len(upstream.bodies) == 20 + len(refused)


def test_the_reply_has_room_in_the_models_window(memory, upstream):
    with served(memory, upstream=upstream.base_url, limit_tokens=1000, reply_tokens=400) as server:
        for n in range(30):
            words = [user(f"Stop {n} is at mile {n}, with a ramp and a gate. " * 3)]
            ask(server.url, words, {"X-Backscroll-Thread": "t"}, **({"max_completion_tokens": 700} if n == 29 else {}))
    assert all(openai_server.tokens(body) <= 600 for body in upstream.bodies)
    assert openai_server.tokens(upstream.bodies[-1]) <= 300


# what is refused here, in OpenAI's form


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"messages": []}',
        b'{"messages": "Hi"}',
        b'{"messages": [{"role": "bot", "content": "x"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "tools": 3}',
        b'{"model": "/etc/x.json", "messages": [{"role": "user", "content": "x"}]}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": 3}]}]}',
        b'{"messages": [{"role": "user", "content": "x", "tool_call_id": 5}]}',
        b'{"messages": [{"role": "assistant", "content": "x", "refusal": {"a": 1}}]}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_chat_completion_is_refused_in_openais_form(url, upstream, body):
    got = httpx.post(url + PATH, content=body, headers={"Content-Type": "application/json"})
    assert got.status_code == 400
    assert got.json()["error"]["type"] == "invalid_request_error"
    assert upstream.bodies == []


def test_a_prompt_that_cannot_fit_is_an_error_that_the_client_knows(memory, upstream):
    with (
        served(memory, upstream=upstream.base_url, max_tokens=50) as server,
        openai.OpenAI(api_key="none", base_url=f"{server.url}/v1", max_retries=0) as client,
        pytest.raises(openai.BadRequestError) as refused,
    ):
        client.chat.completions.create(model="small", messages=[user("word " * 200)])
    assert refused.value.code == "context_length_exceeded"


def test_an_upstream_that_is_not_there_is_said_so(memory):
    with served(memory, upstream="http://127.0.0.1:9/v1") as server:
        got = ask(server.url, [user("Hi")])
    assert got.status_code == 502
    assert got.json()["error"]["type"] == "server_error"


def test_without_an_upstream_the_proxy_says_how_to_name_one(memory):
    with served(memory) as server:
        got = ask(server.url, [user("Hi")])
    assert got.status_code == 501
    assert "--upstream" in got.json()["error"]["message"]
    assert memory.threads() == []


def test_an_upstream_that_answers_something_else_goes_through_and_only_the_prompt_is_stored(url, memory, upstream):
    for data in (b"<html>", b"[1]", b'{"choices": [{"message": 3}]}', b'{"choices": 3}', b"null"):
        upstream.steps = [openai_server.raw(data)]
        assert ask(url, [user("Hi")]).content == data
    assert talks(memory) == [["Hi"]]


@pytest.mark.parametrize(
    "more",
    [
        b'"stop": "\\ud83d"',
        b'"user": "\\ud83d"',
        b'"metadata": {"backscroll_thread": "\\ud83d"}',
        b'"user": "' + b"u" * 501 + b'"',
        b'"metadata": {"backscroll_thread": "' + b"t" * 501 + b'"}',
        b'"metadata": {"backscroll_user": "' + b"t" * 501 + b'"}',
    ],
)
def test_what_cannot_be_sent_on_or_is_no_name_is_refused_before_anything_is_stored(url, upstream, memory, more):
    body = b'{"model": "small", "messages": [{"role": "user", "content": "x"}], ' + more + b"}"
    got = httpx.post(url + PATH, content=body, headers={"Content-Type": "application/json"})
    assert (got.status_code, got.json()["error"]["type"]) == (400, "invalid_request_error")
    assert (upstream.bodies, memory.threads()) == ([], [])


def test_headers_of_any_bytes_go_through_both_ways(url, upstream):
    odd = "Jürgen ✓".encode()
    data = json.dumps({"choices": [{"index": 0, "message": assistant("Yes.")}]}).encode()
    upstream.steps = [lambda handler, _: handler.answer(200, data, {"X-Odd": odd.decode("latin-1")})]
    got = httpx.post(url + PATH, json={"model": "small", "messages": [user("Hi")]}, headers={b"X-Odd": odd})
    assert got.status_code == 200
    assert dict(got.headers.raw)[b"x-odd"] == odd
    assert upstream.headers[0]["x-odd"].encode("latin-1") == odd


def test_headers_of_the_upstream_command_no_browser(url, upstream):
    data = json.dumps({"choices": [{"index": 0, "message": assistant("Yes.")}]}).encode()
    commands = {"Access-Control-Allow-Origin": "*", "Clear-Site-Data": '"*"', "Refresh": "0; url=http://evil.example"}
    told = {**commands, "X-Backscroll-Odd": "1", "X-Request-Id": "7"}
    upstream.steps = [lambda handler, _: handler.answer(200, data, told)]
    got = ask(url, [user("Hi")])
    assert got.headers["x-request-id"] == "7"
    assert not {name.lower() for name in told} & set(got.headers) - {"x-request-id"}


# keys


def test_the_clients_own_key_reaches_the_upstream_where_the_server_has_none(client, upstream):
    client.chat.completions.create(model="small", messages=[user("Hi")])
    assert upstream.keys == ["Bearer the client's"]


def test_the_servers_key_takes_the_place_of_the_clients(memory, upstream, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "the server's")
    with served(memory, upstream=upstream.base_url) as server:
        ask(server.url, [user("Hi")], {"Authorization": "Bearer the client's", "Cookie": "a=b", "X-Stainless-OS": "L"})
    assert upstream.keys == ["Bearer the server's"]
    assert "cookie" not in upstream.headers[0]
    assert upstream.headers[0]["x-stainless-os"] == "L"
    assert not [name for name in upstream.headers[0] if name.startswith("x-backscroll")]


def test_the_upstream_is_the_one_of_the_language_model_unless_another_is_named(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert base_url_of(ServerSettings(llm="openai:m@http://localhost:1/v1")) == "http://localhost:1/v1"
    assert base_url_of(ServerSettings(llm="openai:m")) == "https://api.openai.com/v1"
    assert base_url_of(ServerSettings(llm="openai:m", upstream="http://b/v1/")) == "http://b/v1"
    assert base_url_of(ServerSettings()) == ""
