"""Search against slow, obvious references: every cosine by itself, BM25 as the textbook writes it."""

import math
import random
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backscroll.stores import InMemoryStore, SQLiteStore
from backscroll.stores.matrix import Matrix, encode
from backscroll.stores.text_index import TextIndex, pack
from backscroll.terms import terms
from backscroll.types import Candidates, Line, Message, Scope, ThreadKey

WORDS = "boat hull paint red blue green sail wind harbor rope anchor captain storm island map compass deck".split()
DIMENSION = 16
K1, B = 1.2, 0.75


def said(text: str, role: str = "user", name: str | None = None) -> Message:
    return Message(role, {"role": role, "content": text} | ({"name": name} if name else {}), text)


def open_memory() -> InMemoryStore:
    return InMemoryStore(lambda message: len(message.text) // 4 + 3)


@pytest.fixture
def store() -> Iterator[InMemoryStore]:
    store = open_memory()
    yield store
    assert [finding for finding in store.check() if "not embedded yet" not in finding.problem] == []
    store.close()


class Chat:
    """Random lines in a store, and what a reference needs to know of them."""

    def __init__(self, store: SQLiteStore, seed: int, key: ThreadKey = ThreadKey("alice", "boat")) -> None:
        self.store, self.key = store, key
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.lines: list[Line] = []
        self.passages: dict[int, np.ndarray] = {}  # row -> (passages, d)
        self.dimension = DIMENSION

    def say(self, count: int, thread: str | None = None) -> list[Line]:
        messages = [
            said(
                " ".join(self.random.choices(WORDS, k=self.random.randint(0, 12))),
                self.random.choice(["user", "assistant"]),
                self.random.choice([None, "Ann", "Ben"]),
            )
            for _ in range(count)
        ]
        lines = self.store.append(ThreadKey(self.key.user, thread or self.key.thread), messages)
        self.lines.extend(lines)
        return lines

    def embed(self, lines: list[Line]) -> None:
        vectors = [self.vectors(self.random.choice([1, 1, 1, 2, 3])) for _ in lines]
        spans = [[(n, n + 1) for n in range(len(one))] for one in vectors]
        self.store.add_vectors([line.row for line in lines], spans, np.concatenate(vectors))
        self.passages.update((line.row, one) for line, one in zip(lines, vectors, strict=True))

    def vectors(self, count: int) -> np.ndarray:
        drawn = self.numbers.normal(size=(count, self.dimension)).astype(np.float32)
        return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def as_stored(vectors: np.ndarray) -> np.ndarray:
    """What is left of vectors after they went through int8."""
    rounded = np.rint(vectors / np.abs(vectors).max(axis=1, keepdims=True) * 127)
    return rounded / np.linalg.norm(rounded, axis=1, keepdims=True)


def reference_dense(chat: Chat, vector: np.ndarray) -> dict[int, float]:
    return {row: max(float(one @ vector) for one in as_stored(found)) for row, found in chat.passages.items()}


def reference_bm25(lines: list[Line], asked: list[str]) -> dict[int, float]:
    bags = {line.row: Counter(terms(line.message.text)) for line in lines}
    mean = sum(bag.total() for bag in bags.values()) / len(bags)
    scores = dict.fromkeys(bags, 0.0)
    for term in set(asked):
        df = sum(term in bag for bag in bags.values())
        idf = math.log(1 + (len(bags) - df + 0.5) / (df + 0.5))
        for row, bag in bags.items():
            tf = bag[term]
            scores[row] += idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * bag.total() / mean)) if tf else 0
    return scores


def best(scores: dict[int, float], count: int) -> set[int]:
    """Rows of the highest scores; of equal ones the newest."""
    return set(sorted(scores, key=lambda row: (scores[row], row), reverse=True)[:count])


def assert_scores(found: Candidates, dense: dict[int, float], lexical: dict[int, float]) -> None:
    rows = found.row.tolist()
    assert found.dense.tolist() == pytest.approx([dense.get(row, 0) for row in rows], abs=1e-6)
    assert found.lexical.tolist() == pytest.approx([lexical[row] for row in rows], rel=1e-5)


def assert_columns(found: Candidates, lines: list[Line]) -> None:
    """Every column says what the line says, in the order of family and position."""
    by_row = {line.row: line for line in lines}
    expected = [by_row[row] for row in found.row.tolist()]
    assert [found.families[n] for n in found.family] == [(line.user, line.family) for line in expected]
    assert [found.speakers[n] for n in found.speaker] == [line.speaker for line in expected]
    assert found.position.tolist() == [line.position for line in expected]
    assert found.tokens.tolist() == [line.tokens for line in expected]
    assert found.is_user.tolist() == [line.message.role == "user" for line in expected]
    assert found.created_at.tolist() == pytest.approx([line.created_at.timestamp() for line in expected])
    places = list(zip(found.family.tolist(), found.position.tolist(), strict=True))
    assert places == sorted(set(places))


@pytest.mark.parametrize("seed", range(6))
def test_search_finds_what_the_slow_reference_finds(store, seed):
    chat = Chat(store, seed)
    for step in range(6):  # searched while it grows: lines first, their vectors later
        new = [*chat.say(chat.random.randint(1, 25)), *chat.say(chat.random.randint(1, 9), "hull")]
        pending = [line for line in chat.lines if line.row not in chat.passages]
        chat.embed(chat.random.sample(pending, len(pending) // 2))
        vector = chat.vectors(1)[0]
        asked = terms(" ".join(chat.random.sample(WORDS, 3)))
        dense, lexical = reference_dense(chat, vector), reference_bm25(chat.lines, asked)
        found = store.search(Scope("alice"), vector, asked, 7, 0)
        assert_scores(found, dense, lexical)
        assert_columns(found, chat.lines)
        expected = best(dense, 7) | best({row: score for row, score in lexical.items() if score > 0}, 7)
        assert set(found.row.tolist()) == (expected if len(chat.lines) > 7 else {line.row for line in new}), step


@pytest.mark.parametrize("seed", range(3))
def test_a_part_of_the_lines_is_searched_by_the_statistics_of_all_the_users_lines(store, seed):
    chat = Chat(store, seed)
    chat.say(40)
    chat.say(30, "hull")
    chat.embed(chat.lines)
    vector, asked = chat.vectors(1)[0], terms("red boat in the storm")
    dense, lexical = reference_dense(chat, vector), reference_bm25(chat.lines, asked)
    for scope in (Scope("alice", "hull"), Scope("alice", None, frozenset({"assistant"})), Scope("alice", "boat")):
        inside = {
            line.row
            for line in chat.lines
            if scope.thread in (None, line.family) and (not scope.roles or line.message.role in scope.roles)
        }
        found = store.search(scope, vector, asked, 5, 0)
        assert_scores(found, dense, lexical)
        by_terms = {row: lexical[row] for row in inside if lexical[row] > 0}
        assert set(found.row.tolist()) == best({row: dense[row] for row in inside}, 5) | best(by_terms, 5)
        assert set(store.search(scope, vector, asked, 500, 0).row.tolist()) == inside
        assert set(store.speakers(scope)) == {line.speaker for line in chat.lines if line.row in inside}


def test_neighbors_within_reach_come_along_with_their_scores(store):
    chat = Chat(store, 1)
    chat.say(30)
    [needle] = store.append(chat.key, [said("a zeppelin over the island")])
    chat.lines.append(needle)
    chat.say(30)
    chat.say(30, "hull")
    found = store.search(Scope("alice"), None, terms("zeppelin"), 3, 2)
    assert found.position.tolist() == [28, 29, 30, 31, 32]
    assert {found.families[n].thread for n in found.family} == {"boat"}
    assert_scores(found, {}, reference_bm25(chat.lines, terms("zeppelin")))
    first = store.search(Scope("alice", None, frozenset({"user"})), None, terms("zeppelin"), 3, 2)
    assert set(first.position.tolist()) < {28, 29, 30, 31, 32}
    assert first.is_user.all()


def test_neighbors_do_not_come_from_the_thread_beside(store):
    store.append(ThreadKey("alice", "a"), [said("filler")] * 5)
    store.append(ThreadKey("alice", "b"), [said("zeppelin")] + [said("filler")] * 5)
    store.append(ThreadKey("alice", "c"), [said("filler")] * 5)
    found = store.search(Scope("alice"), None, terms("zeppelin"), 1, 3)
    assert {found.families[n].thread for n in found.family} == {"b"}
    assert found.position.tolist() == [0, 1, 2, 3]


def test_the_nearest_passage_of_a_line_is_named(store):
    lines = store.append(ThreadKey("alice", "boat"), [said("one two three"), said("four")])
    axes = np.eye(4, dtype=np.float32)
    store.add_vectors([line.row for line in lines], [[(0, 3), (4, 7), (8, 13)], [(0, 4)]], axes)
    for place, expected in [(0, [0, 0]), (1, [1, 0]), (2, [2, 0]), (3, [0, 0])]:
        found = store.search(Scope("alice"), axes[place], (), 9, 0)
        assert found.passage.tolist() == expected
        assert found.dense.tolist() == pytest.approx([float(place < 3), float(place == 3)])


def test_a_term_asked_twice_counts_once(store):
    chat = Chat(store, 3)
    chat.say(20)
    once, twice = (store.search(Scope("alice"), None, asked, 99, 0) for asked in (["boat"], ["boat", "boat"]))
    assert once.lexical.tolist() == twice.lexical.tolist()


def test_an_empty_scope_finds_nothing(store):
    chat = Chat(store, 3)
    chat.embed(chat.say(20))
    vector = chat.vectors(1)[0]
    for scope in (Scope("bob"), Scope("alice", "hull"), Scope("alice", None, frozenset({"tool"}))):
        found = store.search(scope, vector, terms("boat"), 9, 2)
        assert [len(getattr(found, name)) for name in ("row", "dense", "lexical", "passage")] == [0, 0, 0, 0]
    assert len(store.search(Scope("alice"), None, (), 9, 2).row) == 0


def test_lines_of_others_change_nothing_and_never_come_out():
    alone, crowded = open_memory(), open_memory()
    chats = [Chat(store, 5) for store in (alone, crowded)]
    for step in range(4):
        for chat in chats:
            chat.embed(chat.say(20))
        other = Chat(crowded, 50 + step, ThreadKey(f"bob{step}", "boat"))
        other.embed(other.say(35))
    vector = chats[0].vectors(1)[0]
    found = [store.search(Scope("alice"), vector, terms("red boat"), 6, 1) for store in (alone, crowded)]
    assert found[0].position.tolist() == found[1].position.tolist()
    assert found[0].dense.tobytes() == found[1].dense.tobytes()
    assert found[0].lexical.tobytes() == found[1].lexical.tobytes()
    assert set(found[1].families) == {("alice", "boat")}
    alone.close()
    crowded.close()


def test_all_users_are_searched_only_where_no_user_is_named(store):
    chats = [Chat(store, seed, ThreadKey(user, "boat")) for seed, user in enumerate(("alice", "bob", "carol"))]
    for chat in chats:
        chat.embed(chat.say(20))
    vector = chats[0].vectors(1)[0]
    lines = [line for chat in chats for line in chat.lines]
    dense = {row: score for chat in chats for row, score in reference_dense(chat, vector).items()}
    found = store.search(Scope(None), vector, (), 5, 0)
    assert set(found.row.tolist()) == best(dense, 5)
    assert_columns(found, lines)
    assert len(store.search(Scope(None), vector, (), 100, 0).row) == 60
    assert {key.user for key in store.search(Scope("bob"), vector, (), 100, 0).families} == {"bob"}


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("我喜欢这个颜色，特别是红色的船", "颜色"),
        ("昨日は港で赤い船を見ました", "赤い船"),
        ("She was painting sunrises", "paints a sunrise"),
        ("Crème brûlée à Zürich", "creme zurich"),
    ],
)
def test_a_line_is_found_by_a_word_in_any_script(store, text, asked):
    store.append(ThreadKey("alice", "boat"), [said("nothing of it")] * 5 + [said(text)] + [said("今日は寒い")] * 5)
    found = store.search(Scope("alice"), None, terms(asked), 1, 0)
    assert found.position.tolist() == [5]


def test_more_postings_than_are_kept_unsorted_are_found_as_well(store):
    chat = Chat(store, 9)
    for count in (2500, 1500, 5, 400, 9000, 1000, 2500, 2500, 7):
        chat.say(count)
        asked = terms("captain storm")
        found = store.search(Scope("alice"), None, asked, 10_000, 0)
        assert_scores(found, {}, reference_bm25(chat.lines, asked))


def test_what_another_process_did_is_seen_by_the_next_search(tmp_path):
    mine, theirs = (SQLiteStore(tmp_path / "chat.db", lambda message: 3) for _ in range(2))
    key = ThreadKey("alice", "boat")
    lines = mine.append(key, [said("red boat"), said("blue boat")])

    def rows(asked: str = "boat", scope: Scope = Scope("alice")) -> list[int]:
        return mine.search(scope, np.array([1, 0], np.float32), terms(asked), 99, 0).row.tolist()

    assert rows() == [1, 2]
    theirs.append(key, [said("green boat")])
    theirs.append(ThreadKey("alice", "hull"), [said("a hull")])
    assert rows() == [1, 2, 3, 4]
    assert rows("hull", Scope("alice", "hull")) == [4]
    theirs.add_vectors([2], [[(0, 9)]], np.array([[1, 0]], np.float32))
    assert mine.search(Scope("alice"), np.array([1, 0], np.float32), (), 1, 0).row.tolist() == [2]
    theirs.fork(key, 1)
    assert rows() == [1, 4]
    theirs.append(key, [said("purple boat")])
    assert rows() == [1, 5, 4]
    theirs.switch(key, "boat")
    assert rows() == [1, 2, 3, 4]
    theirs.delete("alice", "boat", 1)
    assert rows() == [1, 3, 4]
    theirs.delete("alice")
    assert rows() == []
    assert theirs.append(key, [said("red boat")])[0].row > lines[1].row + 3
    assert len(rows()) == 1
    mine.close()
    theirs.close()


def test_searching_again_or_in_a_store_opened_again_gives_the_same_bytes(tmp_path):
    grown = SQLiteStore(tmp_path / "chat.db", lambda message: 3)
    chat = Chat(grown, 11)
    vector, asked = chat.vectors(1)[0], terms("red captain")
    for _ in range(9):
        chat.embed(chat.say(31))
        last = grown.search(Scope("alice"), vector, asked, 20, 2)
    again = SQLiteStore(tmp_path / "chat.db", lambda message: 3)
    read = again.search(Scope("alice"), vector, asked, 20, 2)
    for name in ("row", "dense", "lexical", "passage", "family", "speaker"):
        assert getattr(read, name).tobytes() == getattr(last, name).tobytes(), name
    grown.close()
    again.close()


def test_users_that_do_not_fit_in_ram_together_take_turns(tmp_path):
    store = SQLiteStore(tmp_path / "chat.db", lambda message: 3, max_cached_bytes=1)
    chats = [Chat(store, seed, ThreadKey(f"user {seed}", "boat")) for seed in range(3)]
    for chat in chats:
        chat.embed(chat.say(10))
    for _ in range(2):
        for chat in chats:
            found = store.search(Scope(chat.key.user), chat.vectors(1)[0], terms("boat"), 99, 0)
            assert found.row.tolist() == [line.row for line in chat.lines]
    store.close()


def test_the_rows_whose_signs_differ_least_are_taken_before_cosines_are_computed():
    numbers = np.random.default_rng(3)
    for count, dimension, most in ((1, 7, 40), (500, 64, 40), (70_000, 100, 2_000)):  # more than are compared at a time
        vectors = numbers.normal(size=(count, dimension)).astype(np.float32)
        matrix = Matrix(dimension)
        for part in np.array_split(vectors, 3):
            matrix.extend(encode(part))
        asked = numbers.normal(size=dimension).astype(np.float32)
        differing = ((np.rint(vectors / np.abs(vectors).max(axis=1, keepdims=True) * 127) > 0) != (asked > 0)).sum(1)
        for among in (None, np.arange(0, count, 3)):
            scanned = differing if among is None else differing[among]
            least = np.sort(scanned)[min(most, len(scanned)) - 1]
            expected = np.flatnonzero(differing <= least)
            found = matrix.nearest(asked, most, among)
            assert found.tolist() == (expected if among is None else np.intersect1d(expected, among)).tolist()


def test_the_rows_nearest_by_far_are_among_those_that_half_of_the_signs_keep_of_very_many():
    numbers = np.random.default_rng(4)
    vectors = numbers.normal(size=(70_000, 384)).astype(np.float32)
    asked = numbers.normal(size=384).astype(np.float32)
    near = np.arange(7, 70_000, 3_500)
    vectors[near] += 1.5 * asked
    matrix = Matrix(384)
    matrix.extend(encode(vectors))
    for among in (None, np.arange(1, 70_000, 2)):
        found = matrix.nearest(asked, 40, among)
        assert len(found) < 400
        assert np.isin(near if among is None else np.intersect1d(near, among), found).all()
        assert among is None or np.isin(found, among).all()


def test_among_more_vectors_than_cosines_are_computed_of_the_nearest_lines_are_found(store):
    chat = Chat(store, 12)
    chat.dimension = 64
    chat.embed(chat.say(5_000))
    chat.embed(chat.say(6_000, "hull"))
    for needle in (chat.lines[7], chat.lines[10_500]):
        vector = chat.passages[needle.row][0]
        dense = reference_dense(chat, vector)
        nearest = sorted(dense, key=dense.__getitem__, reverse=True)
        by_role = Scope("alice", None, frozenset({needle.message.role}))
        for scope in (Scope("alice"), Scope("alice", needle.thread), by_role):
            found = store.search(scope, vector, (), 50, 1)
            assert_columns(found, chat.lines)
            assert found.dense.tolist() == pytest.approx([dense[row] for row in found.row.tolist()], abs=1e-6)
            assert needle.row == found.row[np.argmax(found.dense)]
        assert len({*nearest[:50]} & {*store.search(Scope("alice"), vector, (), 50, 0).row.tolist()}) > 40


@given(st.text(max_size=80) | st.lists(st.sampled_from(["van", "vans", "a''b", "明天发车", "the", "é"])).map(" ".join))
@example("depot van " * 300)
def test_a_line_is_kept_with_the_hash_of_each_term_and_how_often_it_has_it(text):
    counts = Counter(terms(text))  # in the order of first places
    hashed = [(blake2b(term.encode(), digest_size=8).digest(), min(often, 255)) for term, often in counts.items()]
    assert pack(text) == (counts.total(), b"".join(one + bytes([often]) for one, often in hashed))


def test_the_text_index_finds_the_postings_of_all_ages_in_the_order_of_their_lines():
    index, chance, expected, first = TextIndex(), np.random.default_rng(5), {}, 0
    for count in (30_000, 2_500, 300, 1_800, 1_800, 1):  # many, few, and the newest
        drawn = [[f"w{n}" for n in row] for row in chance.integers(0, 300, size=(count, 10))]
        for number, words in enumerate(drawn, first):
            for word, often in Counter(words).items():
                expected.setdefault(word, []).append((number, often))
        index.add(first, [pack(" ".join(words))[1] for words in drawn])
        first += count
        for word in ("w0", "w17", "w299", "none"):
            found = zip(*(column.tolist() for column in index.postings(word)), strict=True)
            assert list(found) == expected.get(word, []), (first, word)
    index.settle()
    again = TextIndex(index.columns())
    assert [column.tolist() for column in again.postings("w17")] == [
        column.tolist() for column in index.postings("w17")
    ]
