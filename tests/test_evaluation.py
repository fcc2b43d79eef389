"""The evaluation, on a chat made for it: what is read, what counts as found, what is reported, what is resumed."""

import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import backscroll
from backscroll.cli import main
from backscroll.errors import ImportFileError, NotFoundError, StoreError
from backscroll.evaluation import contextualizers, replay
from backscroll.evaluation.contextualizers import Contextualized
from backscroll.evaluation.datasets import KNOWN_NOISE, Rewrite, read_conversations, read_questions, read_rewrites
from backscroll.evaluation.figures import figures, ranking_figures
from backscroll.evaluation.rendered import excerpt_of, holds, rendered_lines
from backscroll.evaluation.replay import NAMED_THREADS, SMALL_TALK, USER_LINES, Plan, Replay, small_talk
from backscroll.evaluation.results import Outcome, Result, Results
from backscroll.evaluation.rewriting import measure_rewriting
from backscroll.evaluation.run import identity, read_data, run
from backscroll.evaluation.vector_cache import CachedEmbedder, VectorCache

MONDAY = [
    ("user", "I keep a red kite in the garage."),
    ("assistant", "A red kite in the garage, noted."),
    ("user", "My sister Ada plays the oboe on Sundays."),
    ("assistant", "How lovely."),
]
FRIDAY = [
    ("user", "The bakery route begins at five."),
    ("assistant", "Then the van must be loaded by half past four, I would say."),
]
QUESTIONS = [
    {"id": "kite", "question": "Where is the red kite?", "answer": "in the garage", "evidence": ["monday#0"]},
    {"id": "two", "question": "Who plays the oboe, and where is the kite?", "evidence": ["monday#0", "monday#2"]},
    {"id": "van", "question": "When must the van be loaded?", "answer": "04:30", "evidence": ["friday#1"]},
    {"id": "never", "question": "What is the dog called?", "unanswerable": True, "evidence": ["monday#0"]},
]


def write_lines(path: Path, lines: Sequence[Mapping[str, Any]]) -> Path:
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def talk(thread: str, said: Sequence[tuple[str, str]], time: str | None, conversation: str = "chat") -> list[dict]:
    return [
        {"conversation": conversation, "thread": thread, "index": index, "speaker": role, "role": role, "text": text}
        | {"time": time, "id": f"{thread}#{index}"}
        for index, (role, text) in enumerate(said)
    ]


def asked(question: Mapping[str, Any]) -> dict[str, Any]:
    return {"conversation": "chat", "answer": "", "category": "made", "asked_at": None, **question}


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    said = [*talk("monday", MONDAY, "2025-01-06T10:00:00"), *talk("friday", FRIDAY, "2025-01-10T10:00:00")]
    return write_lines(tmp_path / "chat.lines.jsonl.gz", said)


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "chat.questions.jsonl", [asked(one) for one in QUESTIONS])


class CountingEmbedder(backscroll.HashingEmbedder):
    """Tells which texts it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Any:
        self.texts += texts
        return super().embed(texts)


@pytest.fixture
def counting() -> CountingEmbedder:
    return CountingEmbedder()


@pytest.fixture
def embedder(tmp_path: Path, counting: CountingEmbedder) -> Any:
    cache = VectorCache(tmp_path / "cache")
    yield CachedEmbedder(counting, cache)
    cache.close()


def measured(
    lines: Path, questions: Path, embedder: CachedEmbedder, plan: Plan = Plan(("backscroll",), (500,))
) -> dict[str, Result]:
    data = read_data(lines, questions)
    found = run(data, plan, embedder, Results(None, {}, []), lambda count: None)
    return {result.id: result for result in found}


# What is read


def test_threads_stand_in_the_order_of_time_whatever_the_order_of_the_file(tmp_path):
    said = [*talk("friday", FRIDAY, "2025-01-10T10:00:00"), *talk("monday", MONDAY, "2025-01-06T10:00:00")]
    chat = read_conversations(write_lines(tmp_path / "lines.jsonl", said))["chat"]
    assert list(chat.threads) == ["monday", "friday"]
    assert [message.text for message in chat.threads["monday"]] == [text for _, text in MONDAY]
    assert chat.thread_of["friday#1"] == "friday"


def test_audited_evidence_takes_the_place_of_the_evidence_and_wrong_questions_are_left_out(lines, tmp_path):
    given = [
        {"id": "moved", "question": "q", "evidence": ["monday#1"], "audit_evidence": ["monday#2"], "audit_error": "X"},
        {"id": "made up", "question": "q", "evidence": ["monday#1"], "audit_error": "HALLUCINATION"},
        {"id": "other", "question": "q", "evidence": ["monday#1"], "audit_error": "ATTRIBUTION_ERROR"},
        {"id": min(KNOWN_NOISE), "question": "q", "evidence": ["monday#1"]},
        {"id": "bare", "question": "q", "evidence": []},
        {"id": "gone", "question": "q", "evidence": ["monday#1", "tuesday#9"]},
        {"id": "abstain", "question": "q", "evidence": [], "unanswerable": True},
    ]
    path = write_lines(tmp_path / "q.jsonl", [asked(one) for one in given])
    found = read_questions(path, read_conversations(lines))
    assert [(one.id, one.evidence, one.kind) for one in found.asked] == [
        ("moved", ("monday#2",), "answerable"),
        ("abstain", (), "unanswerable"),
    ]
    assert found.left_out == {
        "found wrong by the audit": 2,
        "reported wrong upstream": 1,
        "answerable, and no evidence is named": 1,
        "its evidence is not among the lines": 1,
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "q.jsonl:1: this is not of the form"),
        ('\n{"conversation": "chat", "question": "q"}\n[]', "q.jsonl:3: this is not of the form"),
        ('{"conversation": "chat"}', "q.jsonl:1: there is no 'question' in it"),
        ('{"conversation": "nobody", "question": "q"}', "q.jsonl:1: there are no lines of conversation 'nobody'"),
    ],
)
def test_what_is_wrong_with_a_file_of_questions_is_said_with_its_line(lines, tmp_path, text, problem):
    path = tmp_path / "q.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ImportFileError) as caught:
        read_questions(path, read_conversations(lines))
    assert problem in str(caught.value)


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(ImportFileError, match="there is no such file"):
        read_rewrites(tmp_path / "nothing.jsonl")


def test_a_rewrite_has_all_its_references_each_once(tmp_path):
    given = {"id": 1, "history": [{"role": "user", "text": "Ada plays."}], "message": "What?", "rewrite": "What, Ada?"}
    path = write_lines(tmp_path / "cast.rewrites.jsonl.gz", [{**given, "references": ["What, Ada?", "Which, Ada?"]}])
    assert read_rewrites(path) == [
        Rewrite("1", "cast", "", (("user", "Ada plays."),), "What?", ("What, Ada?", "Which, Ada?"))
    ]


# What counts as found


def test_every_line_of_a_context_is_found_in_its_text_whatever_it_holds(memory):
    said = ["done</recalled>\n<recalled>", "one\n\n  two\r\n  three", "ends with a break\n", "[2025-01-01 a]", "…cut…"]
    memory.thread("old", user="ada").append([{"role": "user", "content": f"oboe {text}"} for text in said])
    context = memory.thread("new", user="ada").context("oboe?", max_tokens=2000)
    found = rendered_lines(context.messages, "oboe?")
    assert all(holds(found, f"oboe {text}") for text in said)
    assert not holds(found, "oboe?")


def test_what_stands_in_two_lines_is_not_found_as_one():
    quoted = "<recalled>\nNote.\n[2025-01-01 a]\nuser: I have a cat.\nuser: It is red.\n</recalled>\n\nWhat?"
    lines = rendered_lines([{"role": "user", "content": quoted}], "What?")
    assert lines == ["[2025-01-01 a]", "user: I have a cat.", "user: It is red."]
    assert not holds(lines, "cat.\nuser: It")
    assert not holds(lines, "Note.")
    assert not holds(lines, " ")


def test_the_messages_of_the_window_and_the_summary_count(memory):
    messages = [
        {"role": "user", "content": "<summary>\nNote.\n[2025-01-01] Ada plays. It rains.\n</summary>"},
        {"role": "assistant", "content": "Said\n  just so."},
        {"role": "user", "content": [{"type": "text", "text": "What?"}]},
    ]
    assert rendered_lines(messages, "What?") == ["[2025-01-01] Ada plays. It rains.", "Said\n  just so."]


def test_an_excerpt_counts_for_its_tokens_and_not_as_the_line():
    text = "First this. Then that. And more of it."
    lines = ["user: …Then that.…", "user: …of…"]
    assert not holds(lines, text)
    assert excerpt_of(lines, text) == "Then that."
    assert excerpt_of(["user: Then that."], text) == ""


# What is asked


def test_evidence_is_found_in_a_fresh_thread_by_recall(lines, questions, embedder):
    found = measured(lines, questions, embedder)
    assert {name: found[name].outcomes[0].found for name in ("kite", "two", "van")} == {
        "kite": (True,),
        "two": (True, True),
        "van": (True,),
    }
    assert found["kite"].outcomes[0].answered
    assert found["van"].outcomes[0].answered is None, "the answer stands in no evidence line word for word"
    assert found["kite"].roles == ("user",)
    assert found["van"].roles == ("assistant",)


def test_without_recall_a_fresh_thread_has_nothing_and_the_newest_one_has_its_window(lines, questions, embedder):
    fresh = measured(lines, questions, embedder, Plan(("sliding_window",), (500,)))
    same = measured(lines, questions, embedder, Plan(("sliding_window",), (500,), same_thread=True))
    assert (fresh["van"].outcomes[0].found, same["van"].outcomes[0].found) == ((False,), (True,))
    assert (fresh["kite"].outcomes[0].found, same["kite"].outcomes[0].found) == ((False,), (False,))


def test_unanswerable_questions_and_small_talk_are_asked_for_their_tokens_alone(lines, questions, embedder):
    found = measured(lines, questions, embedder)
    [made] = figures(list(found.values()), Plan(("backscroll",), (500,)))
    assert [one for one in found if found[one].kind == "small talk"] == [one.id for one in small_talk("chat")]
    assert made.evidence_recall.questions == 3
    assert made.unanswerable_tokens == found["never"].outcomes[0].tokens
    sent = [result.outcomes[0].tokens for result in found.values() if result.kind == "small talk"]
    assert made.small_talk_tokens == sum(sent) / len(SMALL_TALK)


@pytest.mark.parametrize("same_thread", [False, True])
def test_no_question_sees_what_another_one_recalled(lines, questions, embedder, same_thread):
    plan = Plan(("backscroll", "membot"), (60, 500), same_thread)
    data = read_data(lines, questions)
    kite, two, van, *_ = data.by_conversation["chat"]

    def contexts(*order: Any) -> dict[str, tuple[Outcome, ...]]:
        with Replay(data.conversations["chat"], embedder, plan) as one:
            found = [one.ask(question) for question in order]
        return {result.id: tuple(replace(outcome, seconds=0.0) for outcome in result.outcomes) for result in found}

    assert contexts(kite, two, van) == contexts(van, two, kite)
    assert contexts(van)["van"] == contexts(kite, two, van)["van"]


def test_the_history_of_a_question_is_in_its_thread_and_in_no_other_one_s(lines, tmp_path, embedder):
    history = [{"role": "user", "text": "Let us talk of the oboe."}, {"role": "assistant", "text": "Gladly."}]
    given = [{"id": "b", "question": "Who?", "evidence": ["monday#2"], "history": history}, QUESTIONS[0]]
    path = write_lines(tmp_path / "q.jsonl", [asked(one) for one in given])
    data = read_data(lines, path)
    with Replay(data.conversations["chat"], embedder, Plan(("backscroll",), (500,))) as one:
        before = one.ask(data.by_conversation["chat"][1])
        with_history = one.ask(data.by_conversation["chat"][0])
        without = one.ask(replace(data.by_conversation["chat"][0], history=()))
        after = one.ask(data.by_conversation["chat"][1])
    assert with_history.outcomes[0].tokens > without.outcomes[0].tokens
    assert replace(before.outcomes[0], seconds=0) == replace(after.outcomes[0], seconds=0)


def test_a_prompt_that_does_not_fit_is_refused_and_counts_as_nothing_found(lines, questions, embedder):
    plan = Plan(("backscroll",), (5, 500))
    found = measured(lines, questions, embedder, plan)
    small, large = figures(list(found.values()), plan)
    assert small.refused == len(found)
    assert "raise max_tokens" in found["kite"].outcomes[0].refused
    assert (small.evidence_recall.mean, small.tokens, small.p50_ms) == (0, None, None)
    assert large.refused == 0
    assert large.p50_ms <= large.p95_ms


def test_a_span_is_hit_by_the_tokens_of_its_lines(tmp_path, embedder):
    said = [("user", "The oboe is tuned first. " * 3), ("user", ""), ("user", "Yes."), ("user", "We talk of vans now.")]
    path = write_lines(tmp_path / "lines.jsonl", talk("meeting", said, None))
    given = {
        "id": "q",
        "question": "What of the oboe?",
        "evidence": ["meeting#0", "meeting#2"],
        "spans": [[0, 2], [3, 3]],
    }
    asking = write_lines(tmp_path / "q.jsonl", [asked(given)])
    [outcome] = measured(path, asking, embedder, Plan(("sliding_window",), (40,), same_thread=True))["q"].outcomes
    assert outcome.found == (False, True), "the window holds what is newest"
    assert outcome.hits == (False, True)
    [outcome] = measured(path, asking, embedder, Plan(("backscroll",), (200,)))["q"].outcomes
    assert outcome.hits == (True, False)


def test_threads_are_ranked_by_their_best_line_and_scored_by_both_readings(lines, tmp_path, embedder):
    given = [
        {"id": "k", "question": "red kite", "evidence": ["monday#0"], "evidence_threads": ["monday"]},
        {"id": "v", "question": "van loaded", "evidence": ["friday#1"], "evidence_threads": ["friday"]},
        {"id": "n", "question": "dog", "evidence": [], "evidence_threads": ["friday"], "unanswerable": True},
    ]
    path = write_lines(tmp_path / "q.jsonl", [asked(one) for one in given])
    plan = Plan(("backscroll", "sliding_window"), (500,))
    found = measured(lines, path, embedder, plan)
    assert found["k"].rankings["backscroll"][0] == "monday"
    assert found["v"].rankings["backscroll"][0] == "friday"
    assert "sliding_window" not in found["k"].rankings, "it recalls nothing"
    assert found["k"].relevant == {NAMED_THREADS: ("monday",), USER_LINES: ("monday",)}
    assert found["v"].relevant == {NAMED_THREADS: ("friday",)}, "its evidence is the assistant's"
    named, user = ranking_figures(list(found.values()), plan)
    assert (named.relevant, named.metrics["recall_any@5"].total, named.metrics["recall_any@5"].questions) == (
        NAMED_THREADS,
        2,
        2,
    )
    assert (user.relevant, user.metrics["ndcg@10"].questions) == (USER_LINES, 1)


# What is reported


def result(name: str, found: Mapping[str, tuple[bool, ...]], **more: Any) -> Result:
    outcomes = tuple(Outcome(preset, 500, 100, 0.01, one, recalled=4, with_exchange=1) for preset, one in found.items())
    given = {"category": "a", "kind": "answerable", "is_any_enough": False, "roles": ("user", "assistant"), **more}
    return Result(name, "chat", outcomes=outcomes, **given)


def test_figures_are_the_means_over_questions_and_the_baseline_is_compared_question_by_question():
    results = [
        result("1", {"backscroll": (True, True), "pruning": (True, False)}),
        result("2", {"backscroll": (True, False), "pruning": (False, False)}, category="b"),
        result("3", {"backscroll": (False, False), "pruning": (False, False)}, roles=("user", "user")),
    ]
    ours, theirs = figures(results, Plan(("backscroll", "pruning"), (500,)), baseline="pruning")
    assert (ours.evidence_recall.mean, ours.all_evidence.mean) == (0.5, 1 / 3)
    assert (ours.evidence_recall.total, ours.evidence_recall.questions) == (1.5, 3)
    assert {name: one.mean for name, one in ours.by_category.items()} == {"a": 0.5, "b": 0.5}
    assert {name: (one.mean, one.questions) for name, one in ours.by_role.items()} == {
        "user": (2 / 3, 3),
        "assistant": (0.5, 2),
    }
    assert ours.exchange_share == 1 / 4
    assert (ours.p50_ms, ours.tokens, ours.unanswerable_tokens) == (10, 100, None)
    assert ours.versus.difference == pytest.approx(1 / 3)
    assert ours.versus.p == 2 / 2**2
    assert theirs.versus is None


# What is kept


def test_a_cached_vector_is_the_embedder_s_own_and_is_made_once(tmp_path, counting):
    own = backscroll.HashingEmbedder()
    for _ in range(2):
        cache = VectorCache(tmp_path / "cache")
        cached = CachedEmbedder(counting, cache)
        np.testing.assert_array_equal(cached.embed(["a b", "c", "a b"]), own.embed(["a b", "c", "a b"]))
        cache.close()
    assert counting.texts == ["a b", "c"]
    assert (cached.name, cached.dimension, cached.max_tokens) == (own.name, own.dimension, own.max_tokens)


def test_queries_are_embedded_anew_so_that_the_time_is_a_user_s(lines, questions, embedder, counting):
    measured(lines, questions, embedder, Plan(("backscroll",), (300, 500)))
    assert counting.texts.count("Where is the red kite?") == 2
    counting.texts.clear()
    measured(lines, questions, embedder)
    assert not {text for _, text in MONDAY} & set(counting.texts)


def test_vectors_of_two_embedders_are_kept_apart(tmp_path):
    cache = VectorCache(tmp_path)
    small = CachedEmbedder(backscroll.HashingEmbedder(64), cache)
    large = CachedEmbedder(backscroll.HashingEmbedder(128), cache)
    assert (small.embed(["a"]).shape, large.embed(["a"]).shape) == ((1, 64), (1, 128))
    cache.close()


def test_a_cache_that_is_none_is_an_error_that_says_what_to_do(tmp_path):
    (tmp_path / "vectors.db").write_text("this is not a database, and long enough not to be taken for one " * 20)
    with pytest.raises(StoreError, match="delete it, or name another --cache"):
        VectorCache(tmp_path)


def test_an_interrupted_run_goes_on_where_it_stopped(lines, questions, embedder, tmp_path, monkeypatch):
    plan, path = Plan(("backscroll",), (500,)), tmp_path / "out.results.jsonl"
    data = read_data(lines, questions)
    named = identity(lines, questions, plan, embedder.name)
    asking = Replay.ask
    done: list[str] = []

    def stop_at_third(self: Replay, question: Any) -> Result:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(question.id)
        return asking(self, question)

    monkeypatch.setattr(Replay, "ask", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        run(data, plan, embedder, Results(path, named, data.keys()), lambda count: None)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"id": "half a li')
    monkeypatch.setattr(Replay, "ask", lambda self, question: done.append(question.id) or asking(self, question))
    counts: list[int] = []
    found = run(data, plan, embedder, Results(path, named, data.keys()), counts.append)
    assert done == [one.id for one in data.by_conversation["chat"]], "each question was asked once"
    assert sum(counts) == len(data.keys())
    kept = Results(path, named, [*data.keys(), ("another", "question")])
    assert [kept[key] for key in data.keys()] == found, "what is read is what was written"  # noqa: SIM118
    assert "another" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("change", ["finished", "other settings"])
def test_a_finished_run_or_one_of_other_settings_begins_anew(lines, questions, embedder, tmp_path, change):
    plan, path = Plan(("backscroll",), (500,)), tmp_path / "out.results.jsonl"
    data = read_data(lines, questions)
    named = identity(lines, questions, plan, embedder.name)
    run(data, plan, embedder, Results(path, named, data.keys()), lambda count: None)
    wanted = data.keys() if change == "finished" else [*data.keys(), ("another", "question")]
    again = Results(path, named if change == "finished" else {**named, "same_thread": True}, wanted)
    assert not any(key in again for key in data.keys())  # noqa: SIM118


# Rewrites


def rewrites() -> list[Rewrite]:
    history = (("user", "Ada plays the oboe."),)
    return [
        Rewrite("1", "cast", "ellipsis", history, "Where?", ("Where does Ada play the oboe?",)),
        Rewrite("2", "cast", "alone", history, "Who is Bob?", ("Who is Bob?",)),
        Rewrite("3", "ikat", "", history, "Why?", ("Why the oboe?", "Why does Ada play the oboe?")),
    ]


@pytest.fixture
def ways(monkeypatch) -> None:
    """Three ways more: with all that was said, a vector alone, and the human's own."""
    human = {one.message: one.references[0] for one in rewrites()}
    more = {
        "joined": lambda embedder: lambda message, history: Contextualized(f"{history[0][1]} {message}"),
        "vector": lambda embedder: lambda message, history: Contextualized(None, embedder.embed([message])[0]),
        "human": lambda embedder: lambda message, history: Contextualized(human[message]),
    }
    monkeypatch.setattr(contextualizers, "CONTEXTUALIZERS", {**contextualizers.CONTEXTUALIZERS, **more})


def test_a_human_s_rewrite_has_no_distance_and_a_message_that_stands_alone_counts_as_left_alone(ways, embedder):
    found = measure_rewriting(rewrites(), ["human", "none"], embedder, lambda count: None)
    cast, alone, ellipsis, ikat = [one for one in found.figures if one.contextualizer == "human"]
    assert [(one.set, one.kind) for one in (cast, alone, ellipsis, ikat)] == [
        ("cast", ""),
        ("cast", "alone"),
        ("cast", "ellipsis"),
        ("ikat", ""),
    ]
    assert cast.distance.mean == pytest.approx(0, abs=1e-6)
    assert (cast.left_alone.mean, cast.changed.mean) == (1, 1)
    assert (alone.ratio, alone.changed, ellipsis.left_alone) == (None, None, None)
    assert found.averages["human"] == pytest.approx(0, abs=1e-5)
    assert found.averages["none"] == 1
    assert next(one for one in found.figures if one.contextualizer == "none").changed.mean == 0


def test_a_vector_without_a_text_is_measured_as_it_is(ways, embedder):
    found = measure_rewriting(rewrites(), ["vector", "none"], embedder, lambda count: None)
    by_name = {name: [one.distance.mean for one in found.figures if one.contextualizer == name] for name in found.worst}
    assert by_name["vector"] == pytest.approx(by_name["none"])
    assert next(one for one in found.figures if one.contextualizer == "vector").left_alone.mean == 1


def test_the_nearest_of_several_references_counts_and_the_worst_examples_come_first(ways, embedder):
    found = measure_rewriting(rewrites(), ["joined"], embedder, lambda count: None, worst=2)
    first, second = found.worst["joined"]
    assert first.distance >= second.distance
    vectors = embedder.embed(["Ada plays the oboe. Why?", *rewrites()[2].references])
    ikat = next(one for one in found.figures if one.set == "ikat")
    assert ikat.distance.mean == pytest.approx(1 - max(vectors[1:] @ vectors[0]), abs=1e-6)


def test_an_unknown_contextualizer_is_an_error_that_lists_the_known_ones(embedder):
    with pytest.raises(NotFoundError, match="there are none"):
        measure_rewriting(rewrites(), ["nothing"], embedder, lambda count: None)


# The command


def command(*arguments: object) -> Any:
    found = CliRunner().invoke(main, ["evaluate", *map(str, arguments)], prog_name="backscroll")
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found


def test_the_command_prints_tables_and_writes_all_figures(lines, questions, tmp_path):
    out = tmp_path / "out.json"
    found = command(
        *("recall", "--lines", lines, "--questions", questions, "--embedder", "hashing", "--cache", tmp_path / "c"),
        *("--max-tokens", "300,500", "--baseline", "pruning", "--json", out),
    )
    assert found.exit_code == 0, found.output
    for title in ("Evidence in the context", "What it costs", "by category", "by role", "beside the baseline"):
        assert title in found.stdout
    written = json.loads(out.read_text(encoding="utf-8"))
    assert [(one["preset"], one["max_tokens"]) for one in written["figures"]] == [
        (preset, budget) for preset in ("backscroll", "pruning") for budget in (300, 500)
    ]
    assert written["figures"][0]["versus"]["baseline"] == "pruning"
    assert written["run"]["embedder"] == "hashing-256"
    results = (tmp_path / "out.results.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(results) == 1 + len(QUESTIONS) + len(SMALL_TALK)


def test_the_command_measures_rewrites_set_by_set(tmp_path):
    given = {"id": "1", "history": [], "message": "Why?", "rewrite": "Why the oboe?"}
    paths = [write_lines(tmp_path / f"{name}.rewrites.jsonl", [given]) for name in ("cast", "ikat")]
    out = tmp_path / "out.json"
    options = ["--embedder", "hashing", "--cache", tmp_path / "c", "--json", out]
    found = command("rewrite", "--rewrites", paths[0], "--rewrites", paths[1], *options)
    assert found.exit_code == 0, found.output
    assert "none: 1.000 of the distance of doing nothing, averaged over the sets" in found.stdout
    assert "human    Why the oboe?" in found.stdout
    assert [one["set"] for one in json.loads(out.read_text(encoding="utf-8"))["figures"]] == ["cast", "ikat"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--preset", "backscroll,best"], "'best' is none of backscroll, pruning"),
        (["--max-tokens", "500,0"], "'500,0' is no list of whole numbers above 0"),
    ],
)
def test_a_preset_or_budget_that_is_none_is_said(lines, questions, options, said):
    found = command("recall", "--lines", lines, "--questions", questions, *options)
    assert found.exit_code == 2
    assert said in found.stderr


@pytest.mark.parametrize("kept", [True, False])
def test_ctrl_c_says_what_is_kept(lines, questions, tmp_path, monkeypatch, kept):
    def stop(self: Replay, question: Any) -> Result:
        raise KeyboardInterrupt

    monkeypatch.setattr(Replay, "ask", stop)
    options = ["--embedder", "hashing", "--cache", tmp_path / "c", *(["--json", tmp_path / "o.json"] if kept else [])]
    found = command("recall", "--lines", lines, "--questions", questions, *options)
    assert found.exit_code == 130
    assert ("run the same command again to go on" in found.stderr) is kept


def test_a_plot_is_drawn(lines, questions, tmp_path):
    plotted = tmp_path / "out.png"
    options = ["--embedder", "hashing", "--cache", tmp_path / "c", "--max-tokens", "300,500", "--plot", plotted]
    found = command("recall", "--lines", lines, "--questions", questions, *options)
    assert found.exit_code == 0, found.output
    assert plotted.read_bytes().startswith(b"\x89PNG")


def test_a_plot_without_matplotlib_is_refused_before_anything_is_measured(lines, questions, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    found = command("recall", "--lines", lines, "--questions", questions, "--plot", tmp_path / "out.png")
    assert found.exit_code == 2
    assert "pip install 'backscroll[plot]'" in found.stderr


def test_every_preset_is_asked_without_its_buffer():
    for name, preset in backscroll.PRESETS.items():
        assert replay.Plan((name,), (1,)).settings(name) == replace(preset, buffer_blocks=0)
