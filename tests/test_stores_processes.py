"""Several threads and processes on one file, and processes that are killed while they store."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

import backscroll
from backscroll.stores import SQLiteStore
from backscroll.terms import terms
from backscroll.types import Message, Scope, ThreadKey
from chats import all_text, turns

KEY = ThreadKey("alice", "boat")
KILLS = settings.default.max_examples // 3  # as Hypothesis: more in the long profile

WRITER = """
import sys
import numpy as np
from backscroll.stores import SQLiteStore
from backscroll.types import Message, ThreadKey

path, name, count, lines_a_time = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
store = SQLiteStore(path, lambda message: len(message.text))
for number in range(0, count, lines_a_time):
    texts = [f"{name} {n}" for n in range(number, number + lines_a_time)]
    messages = [Message("user", {"role": "user", "content": text}, text) for text in texts]
    lines = store.append(ThreadKey("alice", "boat"), messages)
    for line in lines:
        print(line.position, line.message.text, flush=True)
    store.add_vectors([line.row for line in lines], [[(0, 1)]] * len(lines), np.eye(len(lines), 4, dtype=np.float32))
print("done", flush=True)
"""


SYNCER = """
import json, sys
from backscroll.embedders.hashing import HashingEmbedder
from backscroll.memory import Memory
from backscroll.stores import SQLiteStore

path, history = sys.argv[1], json.loads(sys.argv[2])
store = SQLiteStore(path, lambda message: len(message.text))  # loading a tokenizer takes longer than all of it
with Memory(store, HashingEmbedder(), lambda embedder: {}) as memory:
    thread = memory.thread("boat", user="alice")
    print("ready", flush=True)
    sys.stdin.readline()
    thread.sync(history)
"""


def open_file(path: Path) -> SQLiteStore:
    return SQLiteStore(path, lambda message: len(message.text))


def write(path: Path, name: str, count: int, lines_a_time: int) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    command = [sys.executable, "-c", WRITER, str(path), name, str(count), str(lines_a_time)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def stored(path: Path) -> list[tuple[int, str]]:
    """Position and text of every line, after a look at what is derived."""
    store = open_file(path)
    lines = store.read(KEY, 0, 10**9)
    assert {one.problem for one in store.check()} <= {"lines are not embedded yet"}
    store.close()
    return [(line.position, line.message.text) for line in lines]


def test_processes_that_append_to_one_thread_store_every_line_once_and_leave_no_gap(tmp_path):
    path = tmp_path / "chat.db"  # made by whichever comes first
    writers = [write(path, name, 90, 3) for name in ("ann", "ben", "cyd")]
    printed = [writer.communicate()[0].splitlines() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    lines = stored(path)
    assert [position for position, _ in lines] == list(range(270))
    assert sorted(text for _, text in lines) == sorted(f"{n} {i}" for n in ("ann", "ben", "cyd") for i in range(90))
    assert sorted(f"{position} {text}" for position, text in lines) == sorted(
        line for one in printed for line in one if line != "done"
    )
    for name in ("ann", "ben", "cyd"):  # each writer's own lines in its own order, those of one call side by side
        own = [(position, int(text.split()[1])) for position, text in lines if text.startswith(name)]
        assert [number for _, number in own] == list(range(90))
        assert all(own[n + 1][0] - own[n][0] == 1 for n in range(90) if n % 3 < 2)


def test_no_acknowledged_line_is_lost_when_the_writer_is_killed(tmp_path):
    path = tmp_path / "chat.db"
    moments = random.Random(1)
    acknowledged: dict[int, str] = {}
    for kill in range(KILLS):
        writer = write(path, f"w{kill}", 10**6, moments.choice([1, 3]))
        assert writer.stdout is not None
        lines = [writer.stdout.readline()]
        time.sleep(moments.random() * 0.05)
        writer.send_signal(signal.SIGKILL)
        lines += writer.communicate()[0].splitlines(keepends=True)
        whole = [line.rstrip("\n").split(" ", 1) for line in lines if line.endswith("\n")]
        acknowledged |= {int(position): text for position, text in whole}
        if kill % 5 == 4:
            kept = dict(stored(path))
            assert acknowledged.items() <= kept.items()
            assert sorted(kept) == list(range(len(kept)))
    assert len(acknowledged) > KILLS


def test_a_process_killed_while_it_makes_the_file_leaves_one_that_opens(tmp_path):
    moments = random.Random(2)
    for kill in range(6):
        path = tmp_path / f"{kill}.db"
        writer = write(path, "w", 10**6, 1)
        while not path.exists() and writer.poll() is None:
            time.sleep(0.001)
        time.sleep(moments.random() * 0.02)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
        lines = stored(path)
        assert [position for position, _ in lines] == list(range(len(lines)))


def history_of(texts: list[str]) -> list[dict]:
    talk = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(texts)]
    return [{"role": "system", "content": "Be brief."}, *talk]


def sync_at_once(path: Path, histories: list[list[str]]) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    commands = [[sys.executable, "-c", SYNCER, str(path), json.dumps(history_of(texts))] for texts in histories]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, env=environment, **pipes) for command in commands]
    assert [one.stdout.readline() for one in running] == ["ready\n"] * len(histories)
    for one in running:
        one.stdin.close()  # now
    assert [one.wait() for one in running] == [0] * len(histories)
    for one in running:
        one.stdout.close()


def test_processes_that_sync_the_same_history_store_every_line_once(tmp_path):
    path = tmp_path / "chat.db"
    for length in (60, 90):
        history = [f"Line {n}." for n in range(length)]
        sync_at_once(path, [history] * 3)
        assert stored(path) == list(enumerate(["Be brief.", *history]))
        with closing(open_file(path)) as store:
            assert [info.thread for info in store.threads()] == ["boat"]


def test_processes_that_sync_different_histories_lose_none_of_them(tmp_path):
    path = tmp_path / "chat.db"
    common = [f"Line {n}." for n in range(20)]
    histories = [[*common, *(f"{name} {n}" for n in range(6))] for name in ("ann", "ben", "cyd")]
    with backscroll.open(path, embedder="hashing") as memory:
        memory.thread("boat", user="alice").sync(history_of(common))
    sync_at_once(path, histories)
    with closing(open_file(path)) as store:
        names = ["boat~0", *(info.thread for info in store.threads() if info.parent)]
        lines = [store.read(ThreadKey("alice", name), 0, 10**9) for name in names]
    kept = [[line.message.text for line in path_lines] for path_lines in lines]
    assert sorted(kept) == sorted(["Be brief.", *history] for history in histories)
    assert len({line.row for path_lines in lines for line in path_lines}) == 1 + 20 + 3 * 6


def test_words_that_another_process_deletes_while_they_are_summarized_do_not_come_back(tmp_path, monkeypatch):
    path = tmp_path / "chat.db"
    with (
        backscroll.open(str(path), embedder="hashing") as asking,
        backscroll.open(str(path), embedder="hashing") as deleting,
    ):
        thread = asking.thread("boat", user="alice")
        thread.append([{"role": "user", "content": "The zeppelin is in hangar nine."}, *turns(80)])
        summarize = asking.store.add_summary
        deleted = []

        def delete_first(*summary: object) -> bool:
            if not deleted:
                deleted.append(deleting.thread("boat", user="alice").delete(position=0))
            return summarize(*summary)

        monkeypatch.setattr(asking.store, "add_summary", delete_first)
        thread.context("What now?", max_tokens=2000)
        assert deleted == [1]
        assert asking.store.summaries(KEY) == []
        assert "zeppelin" not in all_text(thread.context("What now?", max_tokens=2000).messages)
        assert asking.store.summaries(KEY) != []
        assert "zeppelin" not in repr(asking.store.summaries(KEY))
    assert b"zeppelin" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_what_is_read_in_one_state_does_not_see_what_another_process_stores_meanwhile(tmp_path):
    def message(text: str) -> Message:
        return Message("user", {"role": "user", "content": text}, text)

    with closing(open_file(tmp_path / "chat.db")) as reading, closing(open_file(tmp_path / "chat.db")) as writing:
        other = ThreadKey("alice", "harbor")
        writing.append(KEY, [message("one")])
        with reading.one_state():
            before = reading.tail(KEY, 10**6)
            writing.append(KEY, [message("two")])
            writing.append(other, [message("three")])
            with reading.one_state():
                assert reading.tail(KEY, 10**6) == before
            assert reading.tail(other, 10**6) == []
            reading.append(KEY, [message("four")])  # what is written inside begins a new state
            assert [line.message.text for line in reading.tail(KEY, 10**6)] == ["one", "two", "four"]
            assert [line.message.text for line in reading.tail(other, 10**6)] == ["three"]
        assert writing.delete("alice") == 4
        assert reading.tail(KEY, 10**6) == []


def test_threads_take_turns_on_one_store(tmp_path):
    store = open_file(tmp_path / "chat.db")
    failures = []

    def work(name: str) -> None:
        try:
            for number in range(30):
                text = f"{name} {number}"
                lines = store.append(KEY, [Message("user", {"role": "user", "content": text}, text)])
                store.add_vectors([lines[0].row], [[(0, 1)]], np.eye(1, 4, dtype=np.float32))
                found = store.search(Scope("alice"), np.eye(1, 4, dtype=np.float32)[0], terms(text), 5, 1)
                assert lines[0].row in found.row
                assert lines[0] in store.tail(KEY, 10**6)
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    workers = [threading.Thread(target=work, args=(name,)) for name in ("ann", "ben", "cyd")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert failures == []
    assert [line.position for line in store.read(KEY, 0, 999)] == list(range(90))
    store.close()


def test_a_reader_sees_whole_calls_while_another_process_writes(tmp_path):
    path = tmp_path / "chat.db"
    reader = open_file(path)
    writer = write(path, "ann", 300, 3)
    seen = 0
    while writer.poll() is None:
        lines = reader.read(KEY, 0, 10**9)
        assert len(lines) % 3 == 0
        assert len(lines) >= seen
        seen = len(lines)
        found = reader.search(Scope("alice"), np.eye(1, 4, dtype=np.float32)[0], terms("ann"), 10**6, 0)
        assert len(found.row) >= seen
    writer.communicate()
    assert len(reader.read(KEY, 0, 10**9)) == 300
    assert writer.returncode == 0
    reader.close()


@pytest.mark.parametrize("processes", [4])
def test_processes_that_make_the_same_file_at_once_all_get_it(tmp_path, processes):
    for attempt in range(3):
        writers = [write(tmp_path / f"{attempt}.db", f"w{n}", 1, 1) for n in range(processes)]
        assert [writer.communicate()[0].splitlines()[-1] for writer in writers] == ["done"] * processes
        assert len(stored(tmp_path / f"{attempt}.db")) == processes
