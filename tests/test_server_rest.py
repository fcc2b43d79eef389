"""/api: the memory over HTTP, by a real socket."""

import json
import threading

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from schemathesis.specs.openapi.checks import positive_data_acceptance

import backscroll
from backscroll.llm.scripted import ScriptedLLM
from backscroll.server import shapes
from backscroll.server.app import create_app
from backscroll.server.bodies import read_json
from backscroll.server.settings import ServerSettings
from backscroll.settings import BY_MODEL, PRESETS
from openai_server import OpenAIServer
from serving import asking, served


@pytest.fixture
def client(memory):
    with asking(memory) as client:
        yield client


def said(role: str, text: str, **more: object) -> dict[str, object]:
    return {"role": role, "content": text, **more}


def events(response: httpx.Response) -> list[tuple[str, dict]]:
    found = []
    for block in response.text.strip().split("\n\n"):
        name, data = block.split("\n", 1)
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_what_is_stored_by_post_is_read_back_in_order(client):
    stored = client.post("/api/messages", params={"thread": "t"}, json={"messages": [said("user", "My van is red.")]})
    assert [source["position"] for source in stored.json()["sources"]] == [0]
    read = client.get("/api/messages", params={"thread": "t"}).json()
    assert [(line["position"], line["role"], line["text"]) for line in read["items"]] == [(0, "user", "My van is red.")]
    assert (read["first"], read["last"], read["total"]) == (0, 0, 1)


def test_a_line_is_deleted_and_the_others_keep_their_positions(client):
    place = {"thread": "t"}
    client.post("/api/messages", params=place, json={"messages": [said("user", f"Van {n}.") for n in range(30)]})
    assert client.delete("/api/messages", params={**place, "position": 3}).json() == {"deleted": 1}
    assert client.delete("/api/messages", params={**place, "position": 3}).status_code == 404
    read = client.get("/api/messages", params={**place, "limit": 4, "before": 6}).json()
    assert [line["position"] for line in read["items"]] == [1, 2, 4, 5]
    around = client.get("/api/messages", params={**place, "limit": 4, "around": 3}).json()
    assert [line["position"] for line in around["items"]] == [1, 2, 4, 5]
    after = client.get("/api/messages", params={**place, "limit": 3, "after": 27}).json()
    assert [line["position"] for line in after["items"]] == [28, 29]
    assert (after["first"], after["last"], after["total"]) == (0, 29, 29)


def test_lists_are_read_page_by_page_without_a_gap(client):
    for n in range(7):
        client.post("/api/messages", params={"thread": f"t{n}"}, json={"messages": [said("user", f"Van {n}.")]})
    for path in ("/api/threads", "/api/users"):
        found, cursor = [], None
        while True:
            given = {"limit": 3} | ({"cursor": cursor} if cursor else {})
            page = client.get(path, params=given).json()
            found += page["items"]
            cursor = page["next"]
            if cursor is None:
                break
        assert len(found) == (7 if path == "/api/threads" else 1)
    assert client.get("/api/users", params={"cursor": "eA=="}).status_code == 422


def test_storing_twice_with_one_key_is_storing_once(client):
    given = {"messages": [said("user", "Van 1."), said("assistant", "Noted.")]}
    for _ in range(2):
        stored = client.post("/api/messages", params={"thread": "t"}, json=given, headers={"Idempotency-Key": "k"})
        assert [source["position"] for source in stored.json()["sources"]] == [0, 1]


def test_a_reply_streams_as_events_and_is_stored():
    with (
        backscroll.open(":memory:", embedder="hashing", llm=ScriptedLLM(["It is red."])) as memory,
        asking(memory) as client,
    ):
        got = events(client.post("/api/reply", params={"thread": "t"}, json={"prompt": "Color?", "stream": True}))
        assert "".join(data["text"] for name, data in got if name == "delta") == "It is red."
        assert [name for name, _ in got if name != "delta"] == ["context", "done"]
        assert [line.message.text for line in memory.thread("t").lines()] == ["Color?", "It is red."]


def test_a_thread_goes_on_as_a_branch_from_any_line_and_the_old_lines_stay(client):
    lines = [said("user", "One"), said("assistant", "Two"), said("user", "Three"), said("assistant", "Four")]
    client.post("/api/messages", params={"thread": "t"}, json={"messages": lines})
    edited = {"message": said("user", "Drei")}
    stored = client.post("/api/branches", params={"thread": "t", "position": 2}, json=edited).json()["sources"]
    assert [(source["thread"], source["position"]) for source in stored] == [("t~1", 2)]
    read = {name: client.get("/api/messages", params={"thread": name}).json()["items"] for name in ("t", "t~0")}
    assert [line["text"] for line in read["t"]] == ["One", "Two", "Drei"]
    assert [line["text"] for line in read["t~0"]] == ["One", "Two", "Three", "Four"]
    cut = client.post("/api/branches", params={"thread": "t", "position": 1}, json={})
    assert cut.json() == {"sources": []}
    assert [line["text"] for line in client.get("/api/messages", params={"thread": "t"}).json()["items"]] == ["One"]


@pytest.mark.parametrize(("thread", "position"), [("t", 9), ("nobody", 0)])
def test_there_is_no_branch_where_there_is_no_line(client, thread, position):
    client.post("/api/messages", params={"thread": "t"}, json={"messages": [said("user", "One")]})
    refused = client.post(
        "/api/branches", params={"thread": thread, "position": position}, json={"message": said("user", "x")}
    )
    assert refused.status_code == 404
    assert len(client.get("/api/threads").json()["items"]) == 1


def test_replies_that_are_waited_for_do_not_stop_what_needs_no_model():
    may_answer = threading.Event()
    slow = lambda messages: "Yes." if may_answer.wait(30) else "No."  # noqa: E731
    with (
        backscroll.open(":memory:", embedder="hashing", llm={"reply": slow}) as memory,
        asking(memory, threads=2) as client,
    ):
        got: list[str] = []

        def ask(number: int) -> None:
            answer = client.post("/api/reply", params={"thread": f"t{number}"}, json={"prompt": "Ready?"})
            got.append(answer.json()["message"]["content"])

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        try:
            assert client.get("/api/users", timeout=20).status_code == 200
        finally:
            may_answer.set()
            for thread in threads:
                thread.join()
    assert got == ["Yes."] * 6


@pytest.mark.parametrize("path", ["/api/context", "/v1/chat/completions"])
def test_contexts_whose_query_a_model_writes_do_not_stop_what_needs_no_model(path):
    asked, may_answer = threading.Semaphore(0), threading.Event()

    def slow(messages):
        asked.release()
        return "What color is the van?" if may_answer.wait(30) else "Too late"

    [by_model, *_] = [name for name, preset in PRESETS.items() if preset.contextualizer in BY_MODEL]
    talk = [said("user", "My van is red."), said("assistant", "Noted.")]
    upstream = OpenAIServer()
    with (
        backscroll.open(":memory:", embedder="hashing", llm={"query": slow}) as memory,
        asking(memory, threads=2, upstream=upstream.base_url) as client,
    ):

        def ask(number: int) -> None:
            memory.thread(f"t{number}").append(talk)
            place = {"X-Backscroll-Thread": f"t{number}", "X-Backscroll-Preset": by_model}
            question = {"messages": [*talk, said("user", "What color is it?")], "model": "m"}
            context = {"prompt": "What color is it?", "preset": by_model}
            body = context if path == "/api/context" else question
            got.append(client.post(path, params={"thread": f"t{number}"}, headers=place, json=body).status_code)

        got: list[int] = []
        threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        try:
            assert all(asked.acquire(timeout=20) for _ in range(2))
            assert client.get("/api/users", timeout=10).status_code == 200
        finally:
            may_answer.set()
            for thread in threads:
                thread.join()
            upstream.stop()
    assert got == [200] * 3


WRONG_NOTES = {"latency_ms": "gate 4711", "usage": {"zz": "gate 4711"}, "model": 3, "context_tokens": "a", "preset": []}


def test_what_a_client_says_under_our_own_notes_is_not_taken(client, memory):
    noted = {**WRONG_NOTES, "partial": True, "replaces_system": "x", "finish_reason": [1], "mine": "kept"}
    talk = [said("user", "Color?", id="p"), said("assistant", "Red.", metadata=noted)]
    for method in ("POST", "PUT"):
        client.request(method, "/api/messages", params={"thread": method}, json={"messages": talk})
        assert memory.thread(method).lines()[1].message.metadata == {"mine": "kept"}


@pytest.mark.parametrize("notes", [WRONG_NOTES, {"usage": 5}])
def test_notes_of_an_old_file_that_are_none_are_left_out(notes):
    talk = [said("user", "Color?", id="p"), said("assistant", "Red.", metadata=notes)]
    with (
        backscroll.open(":memory:", embedder="hashing", llm=lambda messages: "Blue.") as memory,
        asking(memory) as client,
    ):
        memory.thread("t").append(talk)
        [turn] = client.get("/api/turns", params={"thread": "t"}).json()["items"]
        assert (turn["latency_ms"], turn["tokens_sent"], turn["model"]) == (None, None, None)
        assert client.get("/api/messages", params={"thread": "t"}).json()["items"][1]["text"] == "Red."
        prompt = said("user", "Color?", id="p")
        again = client.post("/api/reply", params={"thread": "t"}, json={"prompt": prompt})
        assert again.json()["message"]["content"] == "Red."


def test_what_does_not_fit_a_shape_is_not_said_in_its_error():
    with pytest.raises(ValidationError) as wrong:
        shapes.Deleted(deleted="gate 4711")
    assert "gate 4711" not in str(wrong.value)


# long bodies

LONG = "x" * 250_000
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(max_size=3), VALUES), st.sampled_from([None, 0, 2]), st.sampled_from(["utf-8", "utf-16"])
)
def test_a_long_body_is_read_as_a_short_one_is(body, indent, encoding):
    raw = json.dumps({**body, "long": LONG}, indent=indent).encode(encoding)
    assert read_json(raw) == json.loads(raw)


@given(
    st.text(alphabet='[]{}:,"1 \n', max_size=12), st.sampled_from(['{"a":%s}', "%s", '{"a":[1,2],%s}', '{"a":[%s]}'])
)
def test_what_is_wrong_with_a_long_body_is_told_as_of_a_short_one(text, form):
    raw = (form % text + " " * 250_000).encode()
    told = []
    for read in (json.loads, read_json):
        try:
            told.append(read(raw))
        except ValueError as error:
            told.append(str(error))
    assert told[0] == told[1]


def test_a_long_body_s_messages_are_stored_in_order_and_one_that_is_none_is_named(client):
    talk = [said("user" if n % 2 == 0 else "assistant", f"Van {n} is in Lyon. {'x' * 300}") for n in range(900)]
    stored = client.put("/api/messages", params={"thread": "t"}, json={"messages": talk}, timeout=60)
    assert [source["position"] for source in stored.json()["sources"]] == list(range(900))
    again = client.put("/api/messages", params={"thread": "t"}, json={"messages": talk})
    assert again.json()["sources"] == []
    refused = client.put("/api/messages", params={"thread": "t"}, json={"messages": [*talk, {"role": "king"}]})
    assert refused.status_code == 422
    assert "body.messages.900.role" in refused.json()["detail"]
    assert client.get("/api/messages", params={"thread": "t"}).json()["total"] == 900


def test_without_a_language_model_a_reply_is_refused_with_what_to_do(client):
    refused = client.post("/api/reply", params={"thread": "t"}, json={"prompt": "Color?"})
    assert refused.status_code == 501
    assert refused.headers["content-type"] == "application/problem+json"
    assert "--llm" in refused.json()["detail"]


def test_the_page_may_load_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]


# by its own description

DESCRIBED = schemathesis.openapi.from_dict(create_app(None, ServerSettings()).openapi())
OPERATIONS = {found.ok().label: found.ok() for found in DESCRIBED.get_all_operations()}


@pytest.fixture(scope="module")
def replying_url():
    with (
        backscroll.open(":memory:", embedder="hashing", llm=lambda messages: "Yes.") as memory,
        served(memory, requests_per_minute=0) as server,
    ):
        yield server.url


@pytest.mark.parametrize("label", OPERATIONS)
@pytest.mark.filterwarnings("ignore")
def test_whatever_fits_the_description_or_not_is_answered_as_it_says(label, replying_url):
    @given(OPERATIONS[label].as_strategy(), st.booleans())
    @settings(max_examples=10, suppress_health_check=list(HealthCheck), deadline=None, database=None)
    def holds(case, is_known_thread):
        if is_known_thread and case.query and "thread" in case.query:
            place = {"user": "default", "thread": "t"}
            talk = {"messages": [said("user", "My van is red.", id="m1"), said("assistant", "Noted.", id="m2")]}
            httpx.post(f"{replying_url}/api/messages", params=place, json=talk)
            case.query |= place
        answer = case.call(base_url=replying_url)
        assert answer.status_code < 500, answer.text
        # That all that fits is accepted cannot be held: a cursor is text, and not every text is one.
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])

    holds()
