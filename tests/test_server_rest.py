"""/api: the memory over HTTP, by a real socket."""

import json

import httpx
import pytest

import backscroll
from backscroll.llm.scripted import ScriptedLLM
from serving import asking


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


def test_a_reply_streams_as_events_and_is_stored():
    with (
        backscroll.open(":memory:", embedder="hashing", llm=ScriptedLLM(["It is red."])) as memory,
        asking(memory) as client,
    ):
        got = events(client.post("/api/reply", params={"thread": "t"}, json={"prompt": "Color?", "stream": True}))
        assert "".join(data["text"] for name, data in got if name == "delta") == "It is red."
        assert [name for name, _ in got if name != "delta"] == ["context", "done"]
        assert [line.message.text for line in memory.thread("t").lines()] == ["Color?", "It is red."]


def test_without_a_language_model_a_reply_is_refused_with_what_to_do(client):
    refused = client.post("/api/reply", params={"thread": "t"}, json={"prompt": "Color?"})
    assert refused.status_code == 501
    assert refused.headers["content-type"] == "application/problem+json"
    assert "--llm" in refused.json()["detail"]


def test_the_page_may_load_nothing_from_elsewhere(client):
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
