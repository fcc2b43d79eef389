"""What is in a store's files, and what is said where they cannot be used: real files, real full disks."""

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import apsw
import numpy as np
import pytest
from click.testing import CliRunner

from backscroll.cli import main
from backscroll.errors import NotAStoreError, NotFoundError, StoreBusyError, StoreError
from backscroll.stores import SQLiteStore, migrations
from backscroll.stores.lines import _SAID
from backscroll.terms import terms
from backscroll.types import Message, Scope, Span, Summary, ThreadKey

KEY = ThreadKey("alice", "boat")
NOON = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def said(text: str, **given) -> Message:
    return Message("user", {"role": "user", "content": text}, text, **given)


def open_file(path: Path, **given) -> SQLiteStore:
    return SQLiteStore(path, lambda message: len(message.text) // 4 + 3, **given)


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()))


def test_a_payload_and_metadata_are_kept_as_short_json(tmp_path):
    odd = '"q" \\ / \n\t\x00\x1f\x7f é 小舟 😀'
    payloads = [
        {"role": "user", "content": odd},
        {"content": "", "role": "user", "name": odd},
        {"role": "user", "content": [{"type": "text", "text": odd}], "seed": 7},
        {"role": "user", "content": odd, "seed": -7, "big": 2**70, "yes": True, "no": False, "none": None},
        {"role": "user", "content": odd, "yes": True, "half": 0.5, "deep": {"é": [True, None]}},
    ]
    with closing(open_file(tmp_path / "chat.db")) as store:
        store.append(KEY, [Message("user", payload, odd, metadata=payload) for payload in payloads])
    with closing(sqlite3.connect(tmp_path / "chat.db")) as database:
        kept = database.execute("SELECT payload, metadata FROM lines ORDER BY row").fetchall()
    short = [json.dumps(payload, ensure_ascii=False, separators=(",", ":")) for payload in payloads]
    assert kept == [(text, text) for text in short]


def mounted(folder: Path, *options: str) -> None:
    """A file system of its own in the folder, where this user may mount one."""
    folder.mkdir()
    try:
        command = ["mount", "-t", "tmpfs", *options, "tmpfs", str(folder)]
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot mount a file system here: {error}")


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    mounted(folder, "-o", "size=1m")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


# deleting


def random_word(numbers: random.Random) -> str:
    return "".join(numbers.choices("abcdefghijklmnopqrstuvwxyz", k=14))


@pytest.mark.parametrize("what", ["line", "thread", "user"])
def test_deleted_words_are_in_none_of_the_files(tmp_path, what):
    store = open_file(tmp_path / "chat.db")
    numbers = random.Random(what)
    kept = [random_word(numbers) for _ in range(400)]
    gone = [random_word(numbers) for _ in range(400)]
    going = ThreadKey("alice" if what != "user" else "carol" + gone[0], "boat" if what == "line" else "t" + gone[1])
    positions = []
    for number, (stays, goes) in enumerate(zip(kept, gone, strict=True)):  # side by side, over many pages
        key = going if what == "line" else KEY
        store.append(key, [said(f"{stays} stays", id=stays)])
        name = {"name": goes + "name"}
        message = said(f'{goes}ing 小舟{goes} "{goes}\'s"', id="i" + goes, metadata={"m": goes})
        [line] = store.append(
            going, [Message("user", dict(message.payload) | name, message.text, message.id, NOON, message.metadata)]
        )
        positions.append(line.position)
        store.add_vectors([line.row], [[(0, 3)]], np.eye(8, dtype=np.float32)[:1])
        if number % 40 == 0:
            store.add_summary(
                Summary(*going, line.position, line.position, (f"{goes} was said",), "extractive-1", NOON)
            )
            store.put_blocks(KEY, 9000 + number, [Span(*going, line.position, line.position, 1, 1, 9000)], 99)
    store.search(Scope(going.user), None, terms(gone[0]), 5, 1)
    assert gone[0].encode() in everything_in(tmp_path)
    if what == "line":
        for position in positions[::37]:
            store.delete(*going, position)
        gone = gone[::37]
    else:
        store.delete(*going[: 1 if what == "user" else 2])
    left = everything_in(tmp_path)
    assert [word for word in gone if word.encode() in left] == []
    assert [word for word in kept if word.encode() not in left] == []
    assert [finding.problem for finding in store.check() if "not embedded" not in finding.problem] == []
    store.close()
    assert [word for word in gone if word.encode() in everything_in(tmp_path)] == []


def test_a_reader_that_keeps_deleted_bytes_is_named_and_the_check_finishes_the_wiping(tmp_path):
    store = open_file(tmp_path / "chat.db", busy_timeout_seconds=0.1)
    store.append(KEY, [said("a"), said("zeppelin")])
    reader = apsw.Connection(str(tmp_path / "chat.db"))
    reader.execute("BEGIN; SELECT count(*) FROM lines").fetchall()
    with pytest.raises(StoreBusyError, match="deleted, but their bytes"):
        store.delete("alice", "boat", 1)
    assert [line.message.text for line in store.read(KEY, 0, 9)] == ["a"]
    reader.close()
    [finding] = [one for one in store.check() if one.kind == "lines"]
    assert (finding.problem, finding.repaired) == ("bytes of deleted lines may be in the file", False)
    assert [one.repaired for one in store.check(repair=True) if one.kind == "lines"] == [True]
    assert b"zeppelin" not in everything_in(tmp_path)
    assert [one for one in store.check() if one.kind == "lines"] == []
    store.close()


# checking

FAULTS = {
    "a line behind its thread's end": ("UPDATE threads SET next_position = 1", "lines", False),
    "an offset that goes back": ('UPDATE lines SET "offset" = 0 WHERE position = 2', "lines", False),
    "a vector too few": ("DELETE FROM vectors WHERE row = 2", "vectors", True),
    "a vector of another length": ("UPDATE vectors SET vector = x'01' WHERE row = 2", "vectors", True),
    "a vector of no line": ("INSERT INTO vectors VALUES (1, 99, 99, 0, 0, 1, x'0101')", "vectors", True),
    "terms of another text": ("UPDATE lines SET terms = x'' WHERE row = 2", "text index", True),
    "terms by other rules": ("UPDATE settings SET value = '0' WHERE name = 'terms'", "text index", True),
    "a summary of nothing": ("INSERT INTO summaries VALUES (1, 5, 9, 'm', '[]', 'now', NULL)", "summaries", True),
    "a fingerprint of another text": ("UPDATE lines SET fingerprint = 7 WHERE row = 2", "lines", True),
    "a block of nothing": ("INSERT INTO blocks VALUES (1, 3, 0, 1, 5, 9, .5, .5)", "buffers", True),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_check_finds_a_fault_and_repairs_it_where_it_is_derived(tmp_path, fault):
    statement, kind, derived = FAULTS[fault]
    store = open_file(tmp_path / "chat.db")
    lines = store.append(KEY, [said("a red boat"), said("a blue boat"), said("a green hull")])
    store.add_vectors([line.row for line in lines], [[(0, 3)]] * 3, np.eye(3, 2, dtype=np.float32))
    before = store.search(Scope("alice"), None, terms("blue"), 9, 0)
    assert store.check() == []
    other = apsw.Connection(str(tmp_path / "chat.db"))
    other.execute(statement)
    other.close()
    [finding] = [one for one in store.check() if "not embedded" not in one.problem]
    assert (finding.kind, finding.derived, finding.repaired) == (kind, derived, False)
    [mended] = [one for one in store.check(repair=True) if "not embedded" not in one.problem]
    assert mended.repaired == derived
    assert bool([one for one in store.check() if "not embedded" not in one.problem]) != derived
    after = store.search(Scope("alice"), None, terms("blue"), 9, 0)
    assert after.lexical.tolist() == before.lexical.tolist()
    store.close()


def test_check_finds_a_damaged_page(tmp_path):
    store = open_file(tmp_path / "chat.db")
    store.append(KEY, [said(f"line {n} of many") for n in range(2000)])
    store.close()
    with (tmp_path / "chat.db").open("r+b") as file:
        file.seek(4096 * 20)  # a page from its header on
        file.write(b"\xff" * 600)
    with closing(open_file(tmp_path / "chat.db")) as damaged:
        try:
            findings = damaged.check()
        except StoreError as error:
            assert "damaged" in str(error)
        else:
            assert [one.derived for one in findings if "damaged" in one.problem] == [False]


# opening


def test_a_new_file_is_marked_as_ours(tmp_path):
    open_file(tmp_path / "chat.db").close()
    other = apsw.Connection(str(tmp_path / "chat.db"))
    assert other.pragma("application_id") == migrations.APPLICATION_ID
    assert other.pragma("user_version") == migrations.VERSION
    assert other.pragma("journal_mode") == "wal"
    assert other.pragma("integrity_check") == "ok"
    other.close()
    assert [path.name for path in tmp_path.iterdir()] == ["chat.db"]


def test_an_empty_file_becomes_a_store(tmp_path):
    (tmp_path / "chat.db").touch()
    with closing(open_file(tmp_path / "chat.db")) as store:
        assert store.append(KEY, [said("a")])[0].position == 0


def test_a_file_of_an_older_schema_is_brought_up_and_keeps_its_lines(tmp_path, monkeypatch):
    with closing(open_file(tmp_path / "chat.db")) as store:
        lines = store.append(KEY, [said("a")])
    step = tmp_path / "2.sql"
    step.write_text("CREATE TABLE notes (note TEXT) STRICT;\nINSERT INTO notes SELECT id FROM lines;\n")
    monkeypatch.setattr(migrations, "STEPS", (*migrations.STEPS, str(step)))
    monkeypatch.setattr(migrations, "VERSION", len(migrations.STEPS))
    monkeypatch.setattr("backscroll.stores.connection.VERSION", len(migrations.STEPS))
    with closing(open_file(tmp_path / "chat.db")) as store:
        assert store.read(KEY, 0, 9) == lines
    other = apsw.Connection(str(tmp_path / "chat.db"))
    assert other.execute("SELECT note FROM notes").fetchall() == [(lines[0].id,)]
    assert other.pragma("user_version") == len(migrations.STEPS)
    other.close()


def test_summaries_of_a_file_from_before_models_made_some_are_kept(tmp_path):
    with closing(open_file(tmp_path / "new.db")) as store:
        line = store.append(KEY, [said("a")])[0]
    with closing(_old_file(tmp_path / "chat.db")) as old:
        values = (0, 0, "extractive-1", '["user: a"]', line.created_at.isoformat())
        old.execute("INSERT INTO summaries VALUES (1, ?, ?, ?, ?, ?)", values)
        old.commit()
    with closing(open_file(tmp_path / "chat.db")) as store:
        assert store.summaries(KEY) == [Summary(*KEY, 0, 0, ("user: a",), "extractive-1", line.created_at)]


def test_lines_of_a_file_from_before_fingerprints_are_found_by_what_they_say(tmp_path):
    _old_file(tmp_path / "chat.db").close()
    with closing(open_file(tmp_path / "chat.db")) as store:
        assert [found.id for found in store.said(KEY.user, said("a "), 9)] == ["m"]


def test_replies_of_a_file_from_before_thoughts_were_left_out_are_found_by_what_they_say(tmp_path):
    thinking = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nTwelve vans."}
    with closing(open_file(tmp_path / "chat.db")) as store:
        store.append(KEY, [Message("assistant", thinking, thinking["content"], id="m")])
    with closing(apsw.Connection(str(tmp_path / "chat.db"))) as old:
        old.execute("UPDATE lines SET fingerprint = 7")
        old.execute("PRAGMA user_version = 3")
    answer = Message("assistant", {"role": "assistant", "content": "Twelve vans."}, "Twelve vans.")
    with closing(open_file(tmp_path / "chat.db")) as store:
        assert [found.id for found in store.said(KEY.user, answer, 9)] == ["m"]


def test_lines_that_say_the_same_are_found_newest_first_however_many_lines_lie_between(tmp_path):
    with closing(open_file(tmp_path / "chat.db")) as store:
        for row in (1, 8_191, 8_194, 100_000):
            with closing(apsw.Connection(str(tmp_path / "chat.db"))) as other:
                other.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 'lines'", (row - 1,))
            store.append(KEY, [said("Hi!"), said("Bye!")])
            store.append(ThreadKey("bob", "boat"), [said("Hi!")])
        assert [line.row for line in store.said(KEY.user, said("Hi!"), 9)] == [100_000, 8_194, 8_191, 1]
        assert [line.row for line in store.said(KEY.user, said("Hi!"), 2)] == [100_000, 8_194]
        assert store.said("nobody", said("Hi!"), 2) == []
    with closing(apsw.Connection(str(tmp_path / "chat.db"))) as file:
        plan = [row[3] for row in file.execute("EXPLAIN QUERY PLAN " + _SAID, (1, "[0]", 2, 3))]
    assert any("lines_by_fingerprint (user_id=? AND <expr>=? AND fingerprint=?)" in step for step in plan), plan


def _old_file(path):
    """A file of the first schema, with one line."""
    old = sqlite3.connect(path)
    old.executescript(files("backscroll.stores").joinpath("schema.sql").read_text("utf-8"))
    old.execute(f"PRAGMA application_id = {migrations.APPLICATION_ID}")
    old.execute("PRAGMA user_version = 1")
    old.execute("INSERT INTO users (name) VALUES (?)", (KEY.user,))
    old.execute(
        "INSERT INTO threads (user_id, name, family_id, head_id, next_position) VALUES (1, ?, 1, 1, 1)", (KEY.thread,)
    )
    old.execute(
        'INSERT INTO lines (user_id, thread_id, position, tokens, "offset", length, role, created_at, id, terms, '
        "payload) VALUES (1, 1, 0, 3, 0, 0, 'user', '2026-05-01T12:00:00+00:00', 'm', x'', ?)",
        ('{"role":"user","content":"a"}',),
    )
    old.commit()
    return old


def test_a_failing_step_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    with closing(open_file(tmp_path / "chat.db")) as store:
        lines = store.append(KEY, [said("a")])
    step = tmp_path / "2.sql"
    step.write_text("CREATE TABLE notes (note TEXT) STRICT;\nINSERT INTO nowhere VALUES (1);\n")
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "STEPS", (*migrations.STEPS, str(step)))
        patched.setattr(migrations, "VERSION", len(migrations.STEPS))
        patched.setattr("backscroll.stores.connection.VERSION", len(migrations.STEPS))
        with pytest.raises(apsw.SQLError):
            open_file(tmp_path / "chat.db")
    with closing(open_file(tmp_path / "chat.db")) as store:
        assert store.read(KEY, 0, 9) == lines


def test_a_newer_file_says_to_upgrade(tmp_path):
    open_file(tmp_path / "chat.db").close()
    other = apsw.Connection(str(tmp_path / "chat.db"))
    other.execute("PRAGMA user_version = 99")
    other.close()
    with pytest.raises(NotAStoreError, match=r"newer Backscroll \(schema 99"):
        open_file(tmp_path / "chat.db")


@pytest.mark.parametrize(
    "mark", ["CREATE TABLE bills (paid INT)", "PRAGMA application_id = 7", "PRAGMA user_version = 3"]
)
def test_a_database_of_another_program_is_left_as_it_is(tmp_path, mark):
    path = tmp_path / "bills.db"
    other = sqlite3.connect(path)
    other.execute(mark)
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(NotAStoreError, match=r"bills\.db is a database of another program"):
        open_file(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("content", [b"notes\n", b"x" * 5000, b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"notes\.txt") as raised:
        open_file(path)
    assert isinstance(raised.value.__cause__, apsw.Error)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_says_to_name_a_file_in_it(tmp_path):
    with pytest.raises(NotAStoreError, match="name a file in it"):
        open_file(tmp_path)
    with pytest.raises(NotAStoreError, match="name a file in it"):
        open_file("")


def test_a_missing_folder_says_to_make_it(tmp_path):
    with pytest.raises(StoreError, match="there is no folder"):
        open_file(tmp_path / "none" / "chat.db")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_another_process_keeps_says_so(tmp_path):
    store = open_file(tmp_path / "chat.db", busy_timeout_seconds=0.1)
    store.append(KEY, [said("a")])
    other = apsw.Connection(str(tmp_path / "chat.db"))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusyError, match="another process") as raised:
        store.append(KEY, [said("b")])
    assert isinstance(raised.value.__cause__, apsw.BusyError)
    assert [line.message.text for line in store.read(KEY, 0, 9)] == ["a"]
    other.execute("ROLLBACK")
    assert store.append(KEY, [said("b")])[0].position == 1
    other.close()
    store.close()


# disks


@pytest.fixture
def read_only_folder(tmp_path) -> Iterator[Path]:
    """A folder with a store in it that cannot be written by anyone, root neither."""
    folder = tmp_path / "disk"
    mounted(folder)
    with closing(open_file(folder / "chat.db")) as store:
        store.append(KEY, [said("a red boat")])
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_file_that_can_only_be_read_is_read(read_only_folder):
    with closing(open_file(read_only_folder / "chat.db")) as store:
        assert [line.message.text for line in store.tail(KEY, 99)] == ["a red boat"]
        assert len(store.search(Scope("alice"), None, terms("boat"), 9, 0).row) == 1
        assert [info.thread for info in store.threads()] == ["boat"]
        for write in (lambda: store.append(KEY, [said("b")]), lambda: store.delete("alice")):
            with pytest.raises(StoreError, match="can only be read"):
                write()


def test_a_store_cannot_be_made_where_nothing_can_be_written(read_only_folder):
    with pytest.raises(StoreError, match="permissions"):
        open_file(read_only_folder / "new.db")
    assert [path.name for path in read_only_folder.iterdir()] == ["chat.db"]


def test_a_full_disk_keeps_every_acknowledged_line_and_no_half_one(small_disk):
    store = open_file(small_disk / "chat.db")
    acknowledged = []
    with pytest.raises(StoreError, match="no space left") as raised:
        for number in range(1000):
            acknowledged += store.append(KEY, [said(f"{number} " + "x" * 3000), said("and its twin")])
    assert isinstance(raised.value.__cause__, apsw.FullError)
    assert store.read(KEY, 0, 10_000) == acknowledged
    store.close()
    with closing(open_file(small_disk / "chat.db")) as again:
        assert again.read(KEY, 0, 10_000) == acknowledged
        assert {one.problem for one in again.check()} == {"lines are not embedded yet"}


def test_an_import_that_fills_the_disk_tells_what_was_stored_before(small_disk, tmp_path):
    chat = [json.dumps({"role": "user", "content": f"{number} " + "x" * 400}) for number in range(3000)]
    (tmp_path / "chat.jsonl").write_text("\n".join(chat))
    db = small_disk / "chat.db"
    arguments = ["import", str(tmp_path / "chat.jsonl"), "--db", str(db), "--user", "alice", "--thread", "boat"]
    result = CliRunner().invoke(main, [*arguments, "--no-embed"])
    assert result.exit_code == 2
    with closing(open_file(db)) as store:
        lines = store.read(KEY, 0, 10_000)
    assert len(lines) > 0
    assert "no space left" in result.stderr
    assert "nothing of this was stored" not in result.stderr
    assert f"until then: {len(lines):,} lines new, 0 already there, 0 embedded" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_import_into_a_name_of_a_branch_is_refused(tmp_path):
    (tmp_path / "chat.jsonl").write_text(json.dumps({"role": "user", "content": "Hello."}))
    arguments = ["import", str(tmp_path / "chat.jsonl"), "--db", str(tmp_path / "chat.db"), "--thread", "boat~2"]
    result = CliRunner().invoke(main, [*arguments, "--no-embed"])
    assert result.exit_code == 2
    assert "cannot be named 'boat~2'" in result.stderr
    with closing(open_file(tmp_path / "chat.db")) as store:
        assert store.threads() == []


def test_a_store_that_does_not_fit_on_the_disk_leaves_no_file(small_disk):
    (small_disk / "ballast").write_bytes(b"x" * 1020 * 1024)
    with pytest.raises(StoreError, match="no space left"):
        open_file(small_disk / "chat.db")
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]


def test_a_limit_on_file_sizes_is_told(tmp_path):
    code = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
from backscroll.errors import StoreError
from backscroll.stores import SQLiteStore
from backscroll.types import Message, ThreadKey
store = SQLiteStore({str(tmp_path / "chat.db")!r}, lambda message: 3)
stored = 0
try:
    while True:
        store.append(ThreadKey("alice", "boat"), [Message("user", {{"role": "user", "content": "x" * 900}}, "x" * 900)])
        stored += 1
except StoreError as error:
    print(stored, error)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    stored, told = run.stdout.split(" ", 1)
    assert "chat.db" in told
    with closing(open_file(tmp_path / "chat.db")) as store:
        assert len(store.read(KEY, 0, 10_000)) == int(stored) > 0
        assert {one.problem for one in store.check()} == {"lines are not embedded yet"}


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_a_position_without_a_thread_names_no_line(tmp_path):
    with closing(open_file(tmp_path / "chat.db")) as store, pytest.raises(NotFoundError, match="name the thread"):
        store.delete("alice", None, 3)
