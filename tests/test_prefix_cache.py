"""What a prefix cache would serve of a replayed chat: counted against requests that are laid side by side here."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import backscroll
from backscroll.cli import main
from backscroll.context import Context, Report
from backscroll.evaluation.datasets import Conversation
from backscroll.evaluation.prefix_cache import measure_cache, one_thread, replay, request
from backscroll.evaluation.vector_cache import CachedEmbedder, VectorCache
from backscroll.messages import parse_messages
from backscroll.tokens import message_tokens, open_counter
from chats import assistant, recount, user

COUNTER = open_counter()
TURNS = 60


@pytest.fixture
def embedder(tmp_path: Path) -> Iterator[CachedEmbedder]:
    cache = VectorCache(tmp_path / "cache")
    yield CachedEmbedder(backscroll.HashingEmbedder(), cache)
    cache.close()


def long_chat(turns: int = TURNS) -> Conversation:
    said = []
    for turn in range(turns):
        said += [user(f"Van {turn} needs new tires and a road test."), assistant(f"Noted: tires for van {turn}.")]
    messages = parse_messages([{**one, "id": str(place)} for place, one in enumerate(said)])
    half = len(messages) // 4 * 2
    return Conversation("alice", {"monday": messages[:half], "friday": messages[half:]}, {}, {})


def context_of(*messages: dict) -> Context:
    report = Report(1000, 0, 0, "", "", "", "", "", tuple)
    return Context(list(messages), 0, (), report)


def test_what_both_requests_begin_with_is_served():
    first = [user("one " * 20), assistant("two " * 20), user("three " * 20)]
    second = [*first, assistant("four"), user("five")]
    made = request(first, context_of(*second), COUNTER)
    costs = [message_tokens(message, COUNTER) for message in second]
    assert made.tokens == recount(second) - COUNTER.tokens_per_reply
    assert made.served == made.front_served == sum(costs[:3])
    assert made.front == sum(costs[:4])


def test_behind_the_first_difference_nothing_is_served():
    first = [user("one " * 20), assistant("two " * 20), user("three")]
    changed = [user("another"), *first[1:]]
    assert request(first, context_of(*changed), COUNTER).served == 0
    assert request((), context_of(*first), COUNTER).served == 0
    assert request(first, context_of(assistant("one " * 20)), COUNTER).served == 0


def test_of_a_message_that_differs_its_common_beginning_is_served():
    common = "The van needs new tires. " * 10
    made = request([user(common + "Soon.")], context_of(user(common + "Now!")), COUNTER)
    assert made.served == COUNTER.count(common) - 1
    assert made.front == 0


def test_the_front_ends_where_anything_recalled_stands(embedder):
    with backscroll.open(":memory:", embedder="hashing") as memory:
        thread = memory.thread("chat")
        thread.append([message for part in long_chat().threads.values() for message in part])
        block = thread.context("Which tires does van 3 need?", max_tokens=600)
        preface = thread.context("Which tires does van 3 need?", max_tokens=2000, preset="membot")
        said = thread.context("Which tires does van 3 need?", max_tokens=600, preset="pruning")
    for context, place in ((block, len(block) - 1), (preface, 0), (said, 0)):
        assert any(entry.part == "recalled" and entry.included for entry in context.report.entries)
        assert request((), context, COUNTER).front == sum(
            message_tokens(one, COUNTER) for one in context.messages[:place]
        )


def test_threads_are_replayed_as_one_chat_with_a_request_before_each_line_of_a_user(embedder):
    chat = one_thread(long_chat(8))
    assert [message.role for message in chat] == ["user", "assistant"] * 8
    told = []
    made = replay(chat, "backscroll", 4000, embedder, told.append)
    assert told == [1] * 8
    fronts = [
        recount([dict(one.payload) for one in chat[:place]]) - COUNTER.tokens_per_reply for place in range(0, 16, 2)
    ]
    assert [one.front for one in made] == fronts  # all of it fits
    asked = [recount([dict(one.payload) for one in chat[: place + 1]]) for place in range(0, 14, 2)]
    told_before = [tokens - COUNTER.tokens_per_reply for tokens in asked]
    assert [one.front_served for one in made] == [0, *told_before]  # the request before, with its prompt


def test_a_window_that_slides_in_steps_is_served_and_one_that_drops_a_line_a_turn_is_not(embedder):
    chats = [long_chat()]
    ours, sliding = measure_cache(chats, ["backscroll", "sliding_window"], [800], embedder, lambda count: None)
    assert ours.requests == sliding.requests == TURNS
    assert ours.front_served > 0.7
    assert sliding.front_served < 0.45  # served is what comes before the budget is full
    late = replay(one_thread(chats[0]), "sliding_window", 800, embedder, lambda count: None)[-10:]
    assert all(one.front_served < 0.05 * one.front for one in late)


def test_a_prompt_that_does_not_fit_is_counted_apart(embedder):
    [found] = measure_cache([long_chat(3)], ["backscroll"], [5], embedder, lambda count: None)
    assert (found.requests, found.refused, found.tokens, found.served) == (0, 3, 0, 0)


def test_the_command_prints_a_table_and_writes_the_figures(tmp_path):
    lines = tmp_path / "chat.lines.jsonl"
    with lines.open("w", encoding="utf-8") as file:
        for name in ("alice", "bob"):
            for index, message in enumerate(one_thread(long_chat(4))):
                place = {"conversation": name, "thread": "t", "index": index, "speaker": message.role, "time": None}
                file.write(json.dumps({**place, "role": message.role, "text": message.text, "id": str(index)}) + "\n")
    out = tmp_path / "out.json"
    given = ("evaluate", "cache", "--lines", lines, "--max-tokens", "300,600", "--limit", 1, "--json", out)
    more = ("--embedder", "hashing", "--cache", tmp_path, "--preset", "backscroll")
    ran = CliRunner().invoke(main, [str(one) for one in (*given, *more)], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    assert "served in front" in ran.stdout
    assert [one["max_tokens"] for one in json.loads(out.read_text())["cache"]] == [300, 600]
    assert json.loads(out.read_text())["cache"][0]["requests"] == 4
