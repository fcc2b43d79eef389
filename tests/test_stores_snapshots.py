"""Columns kept beside the store: the next process begins with them, and trusts the store."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import apsw
import numpy as np
import pytest

from backscroll.errors import StoreBusyError
from backscroll.stores import SQLiteStore, snapshot
from backscroll.stores.column import Column
from backscroll.terms import terms
from backscroll.types import Candidates, Message, Scope, ThreadKey

KEY = ThreadKey("alice", "boat")
WORDS = "boat hull paint red blue green sail wind harbor rope anchor captain storm island".split()
DIMENSION = 70  # its signs fill one word, and a part of another


def open_file(path: Path, min_snapshot_lines: int = 50) -> SQLiteStore:
    return SQLiteStore(path, lambda message: 3, min_snapshot_lines=min_snapshot_lines)


def unit(seed: int, count: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, DIMENSION)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def fill(store: SQLiteStore, count: int, seed: int = 0, key: ThreadKey = KEY) -> None:
    """Lines of two speakers; each third one is not embedded, and each fifth one has two passages."""
    chance = np.random.default_rng(seed)
    texts = [" ".join(chance.choice(WORDS, 6)) for _ in range(count)]
    said = [
        Message("user", {"role": "user", "content": text, "name": "AB"[n % 2]}, text) for n, text in enumerate(texts)
    ]
    lines = [line for n, line in enumerate(store.append(key, said)) if n % 3]
    spans = [[(0, 3), (3, 6)][: 1 + (n % 5 == 0)] for n in range(len(lines))]
    store.add_vectors([line.row for line in lines], spans, unit(seed, sum(map(len, spans))))


def searched(store: SQLiteStore, user: str = "alice") -> Candidates:
    return store.search(Scope(user), unit(99, 1)[0], terms("red boat in the storm"), 20, 2)


def assert_same(found: Candidates, expected: Candidates) -> None:
    for name in ("row", "position", "tokens", "dense", "lexical", "passage", "created_at", "is_user"):
        assert getattr(found, name).tobytes() == getattr(expected, name).tobytes(), name
    assert [found.families[n] for n in found.family] == [expected.families[n] for n in expected.family]
    assert [found.speakers[n] for n in found.speaker] == [expected.speakers[n] for n in expected.speaker]


def kept(path: Path) -> list[Path]:
    folder = Path(f"{path}-columns")
    return sorted(folder.iterdir()) if folder.is_dir() else []


@pytest.fixture
def path(tmp_path) -> Path:
    """A store of 300 lines, with its snapshot."""
    store = open_file(tmp_path / "chat.db")
    fill(store, 300)
    store.close()
    assert [one.name for one in kept(tmp_path / "chat.db")] == ["1.columns"]
    return tmp_path / "chat.db"


def as_if_read(path: Path) -> Candidates:
    """What is found without any snapshot."""
    store = open_file(path, 10**9)
    for one in kept(path):
        shutil.move(one, path.parent / one.name)
    found = searched(store)
    store.close()
    for one in path.parent.glob("*.columns"):
        shutil.move(one, Path(f"{path}-columns") / one.name)
    return found


def test_what_is_found_by_a_snapshot_is_what_is_found_by_reading_the_lines(path):
    expected = as_if_read(path)
    store = open_file(path)
    assert_same(searched(store), expected)
    store.close()


def test_the_lines_of_a_snapshot_are_not_read_again(path):
    store = open_file(path)
    searched(store)
    store.close()
    statements: list[str] = []
    counting = open_file(path)
    counting._connection._connection.exec_trace = lambda cursor, sql, bindings: (
        statements.append((sql, bindings)) or True
    )  # type: ignore[attr-defined]
    searched(counting)
    [read] = [bindings for sql, bindings in statements if "terms FROM lines" in sql.replace("\n", " ")]
    assert read == (1, 300)
    counting.close()


@pytest.mark.parametrize("more", [1, 40, 400])
def test_lines_and_vectors_that_came_after_a_snapshot_are_found(path, more):
    store = open_file(path, 10**9)
    fill(store, more, seed=1)
    fill(store, more, seed=2, key=ThreadKey("alice", "hull"))
    fill(store, 5, seed=3, key=ThreadKey("bob", "boat"))
    store.fork(KEY, 200)
    fill(store, 3, seed=4)
    store.close()
    expected = as_if_read(path)
    again = open_file(path)
    for _ in range(3):  # the second time from the snapshot that the first one wrote
        assert_same(searched(again), expected)
        again._snapshots.wait()
    again.close()


def test_a_late_vector_of_a_line_in_the_snapshot_is_found(path):
    store = open_file(path)
    searched(store)
    pending = store.unembedded("alice", 1)
    needle = unit(77, 1)
    store.add_vectors([pending[0].row], [[(0, 1)]], needle)
    found = store.search(Scope("alice"), needle[0], (), 1, 0)
    assert found.row.tolist() == [pending[0].row]
    store.close()
    assert_same(searched(open_file(path)), as_if_read(path))


@pytest.mark.parametrize("what", ["line", "thread", "user"])
def test_a_deletion_removes_what_was_derived_from_the_lines(path, what):
    theirs, mine = open_file(path), open_file(path)
    searched(mine)
    theirs.delete("alice", *{"line": ("boat", 7), "thread": ("boat",), "user": ()}[what])
    assert kept(path) == []
    assert len(searched(mine).row) == (0 if what != "line" else len(searched(theirs).row))
    mine.close()
    theirs.close()


def test_a_deletion_whose_bytes_are_kept_by_a_reader_removes_what_was_derived_all_the_same(path):
    store, reader = open_file(path), apsw.Connection(str(path))
    searched(store)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM lines").fetchall()
    store._connection._connection.set_busy_timeout(100)
    with pytest.raises(StoreBusyError, match="check --repair"):
        store.delete("alice", "boat", 7)
    assert kept(path) == []
    reader.close()
    store.close()


def test_a_deletion_of_one_user_leaves_the_others_snapshot(path):
    store = open_file(path)
    fill(store, 300, key=ThreadKey("bob", "boat"))
    searched(store, "bob")
    store._snapshots.wait()
    store.delete("alice")
    assert [one.name for one in kept(path)] == ["2.columns"]
    store.close()


def test_a_snapshot_of_before_a_deletion_that_was_put_back_is_not_used(path):
    copy = kept(path)[0].read_bytes()
    store = open_file(path)
    store.delete("alice", "boat", 299)
    Path(f"{path}-columns", "1.columns").write_bytes(copy)
    store.close()
    expected = as_if_read(path)
    Path(f"{path}-columns", "1.columns").write_bytes(copy)
    again = open_file(path)
    assert_same(searched(again), expected)
    again.close()


def test_a_snapshot_of_another_file_or_of_a_later_state_is_not_used(path, tmp_path):
    backup = tmp_path / "backup.db"
    shutil.copy(path, backup)
    store = open_file(path)
    fill(store, 100, seed=5)
    store.close()  # the snapshot now ends with line 400
    shutil.copy(backup, path)
    restored = open_file(path, 10**9)
    fill(restored, 200, seed=6)  # other lines of the same numbers
    restored.close()
    expected = as_if_read(path)
    again = open_file(path)
    assert_same(searched(again), expected)
    again.close()


@pytest.mark.parametrize("damage", [b"", b"no columns", b"BkscCol1" + b"\xff" * 8, "cut"])
def test_a_damaged_snapshot_is_not_used(path, damage):
    expected = as_if_read(path)
    [file] = kept(path)
    file.write_bytes(file.read_bytes()[:5000] if damage == "cut" else damage)
    store = open_file(path)
    assert_same(searched(store), expected)
    store.close()


def test_a_process_that_is_killed_while_it_writes_leaves_nothing_that_a_deletion_does_not_remove(path):
    folder = Path(f"{path}-columns")
    unfinished = folder / "1.4711-1.part"
    unfinished.write_bytes(kept(path)[0].read_bytes()[:3000])
    store = open_file(path)
    store.delete("alice", "boat", 3)
    assert kept(path) == []
    store.close()


def test_a_folder_that_cannot_be_made_costs_time_alone(tmp_path, caplog):
    path = tmp_path / "chat.db"
    Path(f"{path}-columns").write_text("a file is in the way")
    store = open_file(path)
    fill(store, 300)
    assert len(searched(store).row)
    store.close()
    assert "takes longer" in caplog.text
    again = open_file(path)
    assert len(searched(again).row)
    again.close()


def test_a_store_without_a_file_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_file(":memory:")
    fill(store, 300)
    assert len(searched(store).row)
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_columns_come_back_as_they_were_written_and_grow_in_memory_alone(tmp_path):
    rows = np.arange(12, dtype=np.int8).reshape(4, 3)
    names = {"one": Column(np.array([3.5, 4.5]), 2), "rows": Column(rows, 4), "none": Column(np.empty(0, np.int32))}
    snapshot.write(tmp_path / "c", {"row": 7, "who": "Zoë"}, names)
    before = (tmp_path / "c").read_bytes()
    assert snapshot.state_of(tmp_path / "c") == {"row": 7, "who": "Zoë"}
    state, found = snapshot.mapped(tmp_path / "c")
    assert state == {"row": 7, "who": "Zoë"}
    assert {name: column.values.tolist() for name, column in found.items()} == {
        "one": [3.5, 4.5],
        "rows": rows.tolist(),
        "none": [],
    }
    for count in (1, 100):  # within the room behind the values, and beyond it
        found["rows"].extend(np.full((count, 3), 9, np.int8))
    assert found["rows"].values[:4].tolist() == rows.tolist()
    assert (found["rows"].values[4:] == 9).all()
    assert found["rows"].nbytes > 0 == found["one"].nbytes
    assert (tmp_path / "c").read_bytes() == before


def test_what_was_noted_and_the_columns_are_of_one_file_while_others_take_its_place(tmp_path):
    path, is_done = tmp_path / "c", threading.Event()

    def write(count: int) -> None:
        snapshot.write(tmp_path / "new", {"row": count}, {"row": Column(np.arange(count), count)})
        (tmp_path / "new").replace(path)

    def keep_writing() -> None:
        for count in itertools.cycle(range(1, 50)):
            if is_done.is_set():
                return
            write(count)

    write(1)
    writer = threading.Thread(target=keep_writing)
    writer.start()
    try:
        seen = set()
        while len(seen) < 20:
            state, columns = snapshot.mapped(path)
            assert columns["row"].values.tolist() == list(range(state["row"]))
            seen.add(state["row"])
    finally:
        is_done.set()
        writer.join()


WRITER = """
    import sys
    from tests_snapshots import fill, open_file, searched
    from pathlib import Path
    store = open_file(Path(sys.argv[1]), 1)
    print("ready", flush=True)
    for seed in range(10_000):
        fill(store, 20, seed)
        searched(store)
"""


def test_processes_that_write_and_are_killed_leave_a_store_that_is_read_right(path, tmp_path):
    (tmp_path / "tests_snapshots.py").write_text(Path(__file__).read_text())
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    writers = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    for writer in writers:
        assert writer.stdout.readline() == b"ready\n"
    reader = open_file(path, 10**9)
    seen = 0
    while seen < 600:
        found = reader.search(Scope("alice"), None, (), 10**9, 0)
        assert found.position.tolist() == list(range(len(found.position)))
        seen = len(found.position)
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
    assert_same(searched(open_file(path)), as_if_read(path))
    reader.close()
