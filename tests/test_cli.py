"""The command line, as people and scripts use it."""

import gzip
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import backscroll
from backscroll.cli import COMMANDS, main
from backscroll.embedders.model_files import find_model
from backscroll.errors import ModelNotFoundError
from backscroll.types import ThreadKey
from backscroll.wiring import open_lines

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "examples" / "support_chat.jsonl"
# Ctrl-C ends it also where these tests run with SIGINT ignored, as behind `nohup … &`.
MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from backscroll.cli import main
main(prog_name='backscroll')
"""
PROGRAM = [sys.executable, "-c", MAIN]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"}
MANY_LINES = 3_000
CALL = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"van": 4}'}}


def run(*arguments: object, stdin: str | bytes = "") -> Result:
    """In this process; what is no outcome of the command line is raised."""
    result = CliRunner().invoke(main, [str(one) for one in arguments], input=stdin, prog_name="backscroll")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def done(*arguments: object, stdin: str | bytes = "") -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def failed(*arguments: object, stdin: str | bytes = "") -> str:
    """What is said of an error of ours: one line."""
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def misused(*arguments: object, stdin: str | bytes = "") -> str:
    result = run(*arguments, stdin=stdin)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Usage: backscroll" in result.stderr
    return result.stderr


def process(*arguments: object, **pipes: int) -> subprocess.Popen[str]:
    piped = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes}
    command = [*PROGRAM, *map(str, arguments)]
    return subprocess.Popen(command, env=ENVIRONMENT, text=True, encoding="utf-8", **piped)


def wait_for(db: Path, query: str, running: subprocess.Popen[str]) -> None:
    """Until a query on the file of a running process finds something."""
    while running.poll() is None:
        if db.exists():
            try:
                with sqlite3.connect(f"file:{db}?mode=ro", uri=True, timeout=10) as database:
                    found = database.execute(query).fetchone()[0]
            except sqlite3.OperationalError:  # the tables are not there yet
                found = 0
            finally:
                database.close()
            if found:
                return
        time.sleep(0.005)
    pytest.fail(f"it ended too early: {running.communicate()}")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("filled") / "chat.db"
    assert "364 lines new" in done("import", SAMPLE, "--db", db, "--embedder", "hashing")
    return db


@pytest.fixture
def db(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(filled, tmp_path / "chat.db"))


@pytest.fixture
def new_db(tmp_path: Path) -> Path:
    return tmp_path / "new.db"


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "many.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for number in range(MANY_LINES):
            told = {"conversation": "alice", "thread": f"t{number % 3}", "index": number // 3, "speaker": "Alice"}
            file.write(
                json.dumps({**told, "role": "user", "text": f"Line {number} of a long chat.", "time": None}) + "\n"
            )
    return path


@pytest.fixture(scope="module")
def many_stored(many: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("many_stored") / "chat.db"
    done("import", many, "--db", db, "--embedder", "hashing")
    return db


def stored_texts(db: Path, user: str, thread: str) -> list[str]:
    store = open_lines(str(db))
    lines = store.read(ThreadKey(user, thread), 0, 2**62)
    store.close()
    return [line.message.text for line in lines]


def assert_all_is_there_once(db: Path) -> None:
    for thread in range(3):
        numbers = range(thread, MANY_LINES, 3)
        assert stored_texts(db, "alice", f"t{thread}") == [f"Line {number} of a long chat." for number in numbers]


# All commands


def test_help_lists_the_commands_and_loads_nothing_heavy():
    code = (
        "import sys; from backscroll.cli import main\n"
        "try: main(['--help'])\n"
        "finally: print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    listed = re.findall(r"^  ([a-z-]+)  ", ran.stdout, re.MULTILINE)
    assert listed == list(COMMANDS)
    assert set(ran.stderr.split()) & {"numpy", "rich", "apsw", "httpx", "onnxruntime", "tokenizers"} == set()


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example_of_its_own_options(command):
    text = " ".join(done(command, "--help").split())
    example = text.partition("Example: ")[2]
    assert example.startswith(f"backscroll {command}")
    for option in re.findall(r" (--?[a-z-]+)", example):
        assert f" {option}" in text.partition("Example: ")[0]


def test_the_list_says_of_a_command_what_its_own_help_says():
    for command, (_, about) in COMMANDS.items():
        first = done(command, "--help").split("\n\n")[1]
        assert " ".join(first.split()).startswith(about.rstrip(".")[:20])


def test_the_version_is_told():
    assert done("--version") == f"backscroll {backscroll.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("context", "Hi?"),
        ("recall", "Hi?"),
        ("threads",),
        ("show", "--thread", "boat"),
        ("export",),
        ("delete", "--user", "alice", "--yes"),
        ("check",),
        ("check", "--repair"),
        ("reembed", "--embedder", "hashing"),
    ],
)
def test_what_only_asks_makes_no_file(arguments, new_db):
    assert "no such file" in failed(*arguments, "--db", new_db)
    assert not new_db.exists()


@pytest.mark.parametrize("arguments", [("threads",), ("check",), ("context", "Hi?")])
def test_a_file_of_something_else_is_refused(arguments, tmp_path):
    other = tmp_path / "other.db"
    other.write_text("not a database, but long enough to be looked at" * 100)
    assert "not a store" in failed(*arguments, "--db", other)


def test_the_file_may_be_named_by_the_environment(db, monkeypatch):
    assert "--db" in misused("threads")
    monkeypatch.setenv("BACKSCROLL_DB", str(db))
    assert "fleet-2025-01" in done("threads")


@pytest.mark.parametrize("command", [("context", "Hi?"), ("recall", "Hi?"), ("show", "--thread", "boat")])
def test_where_there_are_several_users_one_must_be_named(command, db):
    assert "alice, bob" in failed(*command, "--db", db)
    assert "alice, bob" in failed(*command, "--db", db, "--user", "carol")


def test_what_needs_no_embedder_works_without_a_model(db, tmp_path):
    with sqlite3.connect(db) as database:
        database.execute("UPDATE settings SET value = 'remote:none@http://localhost:1' WHERE name = 'embedder'")
    database.close()
    done("threads", "--db", db)
    done("show", "--db", db, "--user", "bob", "--thread", "setup-2025-03")
    done("export", "--db", db, "-o", tmp_path / "all.jsonl")
    done("check", "--db", db)
    done("delete", "--db", db, "--user", "bob", "--yes")
    done("import", SAMPLE, "--db", db, "--no-embed")


def test_a_bug_keeps_its_traceback(db, monkeypatch):
    def fail(*args: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("backscroll.stores.sqlite.SQLiteStore.threads", fail)
    with pytest.raises(ZeroDivisionError):
        run("threads", "--db", db)


def test_ctrl_c_ends_with_130(db):
    with process("delete", "--db", db, "--user", "bob", stdin=subprocess.PIPE) as asking:
        assert asking.stderr.read(len("delete user bob")) == "delete user bob"
        asking.send_signal(signal.SIGINT)
        _, said = asking.communicate()
    assert asking.returncode == 130
    assert said.splitlines()[-1].startswith("interrupted")
    assert "Traceback" not in said
    assert len(stored_texts(db, "bob", "setup-2025-03")) == 21


@pytest.mark.parametrize(
    "arguments",
    [
        ("export",),
        ("show", "--user", "alice", "--thread", "fleet-2025-01", "--json"),
        ("context", "vans", "--user", "alice", "--max-tokens", "20000", "--scope", "all"),
    ],
)
def test_a_reader_that_leaves_early_is_no_error(arguments, db):
    with process(*arguments, "--db", db) as writing:
        writing.stdout.readline()
        writing.stdout.close()
        said = writing.stderr.read()
    assert said == ""


def test_a_pipe_gets_plain_lines_that_are_not_cut(db):
    table = done("threads", "--db", db)
    page = done("context", "Who drives the early bakery run?", "--db", db, "--user", "alice")
    hits = done("recall", "bakery", "--db", db, "--user", "alice")
    assert "\x1b" not in table + page + hits
    assert [line for line in table.splitlines() if line != line.rstrip()] == []
    assert any(len(line) > 100 for line in page.splitlines())


def test_a_stored_text_does_not_steer_the_terminal(new_db, tmp_path):
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "content": "\x1b[2Jred [bold]van[/bold] \x07", "name": "A\x1bB"}]))
    done("import", chat, "--db", new_db, "--embedder", "hashing")
    for command in (("show", "--thread", "chat"), ("context", "red van"), ("recall", "red van")):
        text = done(*command, "--db", new_db)
        assert "[bold]van[/bold]" in text
        assert not re.search(r"[\x00-\x08\x0b-\x1f]", text)


def test_an_output_that_cannot_show_a_character_is_no_failure(db):
    command = [*PROGRAM, "context", "cafés", "--db", str(db), "--user", "alice"]
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": "ascii"}
    ran = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert b"tokens" in ran.stdout


# import


def test_what_was_imported_is_counted(new_db):
    first = done("import", SAMPLE, "--db", new_db, "--embedder", "hashing")
    assert re.fullmatch(r"364 lines new, 0 already there, 364 embedded; 2 users, 10 threads; [\d.]+ s\n", first)
    again = done("import", SAMPLE, "--db", new_db)
    assert again.startswith("0 lines new, 364 already there, 0 embedded; 2 users, 10 threads")


def test_importing_twice_is_importing_once(new_db, tmp_path):
    chat = tmp_path / "chat.json"
    chat.write_text(json.dumps([{"role": "user", "content": "Ok."}] * 3))
    for _ in range(2):
        done("import", chat, "--db", new_db, "--embedder", "hashing")
    assert stored_texts(new_db, "default", "chat") == ["Ok."] * 3


def test_a_file_that_has_grown_adds_what_is_new(new_db, tmp_path):
    chat = tmp_path / "chat.jsonl"
    chat.write_text('{"role": "user", "content": "Hi!"}\n')
    done("import", chat, "--db", new_db, "--no-embed")
    with chat.open("a") as file:
        file.write('{"role": "assistant", "content": "Hello!"}\n')
    assert done("import", chat, "--db", new_db, "--no-embed").startswith("1 line new, 1 already there")
    assert stored_texts(new_db, "default", "chat") == ["Hi!", "Hello!"]


def test_stdin_and_a_pipe_are_files_too(new_db):
    packed = gzip.compress(SAMPLE.read_bytes())
    assert "364 lines new" in done("import", "-", "--db", new_db, "--no-embed", stdin=packed)
    reading, writing = os.pipe()
    command = [*PROGRAM, "import", f"/dev/fd/{reading}", "--db", str(new_db), "--no-embed"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, pass_fds=[reading]) as importing:
        os.close(reading)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(packed)
        said, _ = importing.communicate()
    assert said.startswith(b"0 lines new, 364 already there")


def test_several_files_are_stored_where_it_is_said(new_db, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.json").write_text(json.dumps([{"role": "user", "content": name, "id": name}]))
    files = (tmp_path / "a.json", tmp_path / "b.json")
    done("import", *files, "--db", new_db, "--no-embed", "--user", "alice", "--thread", "both")
    assert stored_texts(new_db, "alice", "both") == ["a", "b"]


def test_a_chat_with_tool_calls_and_empty_texts_is_imported_as_it_is(new_db, tmp_path):
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "total loss"},
    ]
    (tmp_path / "chat.json").write_text(json.dumps({"messages": chat}))
    done("import", tmp_path / "chat.json", "--db", new_db, "--embedder", "hashing")
    store = open_lines(str(new_db))
    assert [line.message.payload for line in store.read(ThreadKey("default", "chat"), 0, 9)] == chat
    store.close()
    said = done("show", "--db", new_db, "--thread", "chat")
    assert 'calls look_up({"van": 4}) as c1' in said
    assert "result of c1: total loss" in said


GOOD = '{"role": "user", "content": "Hi!"}\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (GOOD + "oops\n", ":2: this is not JSON"),
        (GOOD + '{"role": "user"}\n', ":2: a message of role user needs content"),
        (GOOD + '{"role": "human", "content": "Hi!"}\n', ":2: role is one of"),
        (GOOD.encode() + b'{"role": "user", "content": "\xff"}\n', ":2: this is not UTF-8"),
        ("", "there is no message in it"),
        (gzip.compress(GOOD.encode() * 500)[:-9], "cut off"),
    ],
)
def test_a_file_with_a_mistake_is_not_imported_at_all(content, said, new_db, tmp_path):
    wrong, good = tmp_path / "wrong.jsonl", tmp_path / "good.jsonl"
    wrong.write_bytes(content if isinstance(content, bytes) else content.encode())
    good.write_text(GOOD)
    message = failed("import", good, wrong, "--db", new_db, "--embedder", "hashing")
    assert str(wrong) in message
    assert said in message
    assert not new_db.exists()


def test_a_folder_and_a_missing_file_are_named(new_db, tmp_path):
    assert "folder" in failed("import", tmp_path, "--db", new_db)
    assert "no such file" in failed("import", tmp_path / "none.json", "--db", new_db)
    assert not new_db.exists()


def test_another_embedder_is_refused_before_anything_is_stored(db, tmp_path):
    (tmp_path / "chat.jsonl").write_text(GOOD)
    message = failed("import", tmp_path / "chat.jsonl", "--db", db, "--embedder", "hashing:64")
    assert "backscroll reembed" in message
    assert "default" not in done("threads", "--db", db)
    assert "no embedder is called" in failed("import", tmp_path / "chat.jsonl", "--db", db, "--embedder", "none")
    misused("import", tmp_path / "chat.jsonl", "--db", db, "--embedder", "hashing", "--no-embed")


def test_a_missing_model_says_how_to_go_on(new_db, tmp_path, monkeypatch):
    (tmp_path / "chat.jsonl").write_text(GOOD)
    message = failed("import", tmp_path / "chat.jsonl", "--db", new_db, "--embedder", f"local:{tmp_path}")
    assert "setup-model" in message
    assert "--no-embed" in message


def test_an_embedder_that_fails_leaves_the_lines_stored(new_db, tmp_path):
    (tmp_path / "chat.jsonl").write_text(GOOD)
    message = failed("import", tmp_path / "chat.jsonl", "--db", new_db, "--embedder", "remote:none@http://127.0.0.1:9")
    assert "all lines are stored, 1 line not embedded" in message
    assert stored_texts(new_db, "default", "chat") == ["Hi!"]


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    assert "no folder" in failed("import", SAMPLE, "--db", tmp_path / "none" / "chat.db", "--no-embed")


@pytest.mark.parametrize("query", ["SELECT count(*) FROM lines", "SELECT count(*) FROM vectors"])
def test_ctrl_c_stops_after_a_batch_and_running_it_again_goes_on(query, many, new_db):
    arguments = ("import", many, "--db", new_db, "--embedder", "hashing")
    with process(*arguments) as importing:
        wait_for(new_db, query, importing)
        importing.send_signal(signal.SIGINT)
        shown, said = importing.communicate()
    assert importing.returncode == 130
    assert shown == ""
    assert re.fullmatch(r"interrupted: [\d,]+ lines? new, .* embedded; run the same command again to go on\n", said)
    assert int(said.split()[1].replace(",", "")) % 500 == 0
    done(*arguments)
    assert_all_is_there_once(new_db)
    assert done("check", "--db", new_db) == "all is well\n"


def test_ctrl_c_while_a_file_is_checked_stores_nothing(new_db):
    with process("import", "-", "--db", new_db, stdin=subprocess.PIPE) as importing:
        importing.stdin.write(GOOD * 10_000)  # more than a pipe holds: it is being read when this returns
        importing.stdin.flush()
        importing.send_signal(signal.SIGINT)
        _, said = importing.communicate()
    assert importing.returncode == 130
    assert said.startswith("interrupted")
    assert not new_db.exists()


def test_a_kill_at_any_moment_loses_and_doubles_nothing(many, new_db):
    arguments = ("import", many, "--db", new_db, "--embedder", "hashing")
    chance = random.Random(8)
    for _ in range(6):
        with process(*arguments) as importing:
            time.sleep(chance.uniform(0.3, 2.0))
            importing.kill()
    done(*arguments)
    assert_all_is_there_once(new_db)
    assert done("check", "--db", new_db) == "all is well\n"


def test_two_imports_at_once_store_every_line_once(many, new_db):
    arguments = ("import", many, "--db", new_db, "--embedder", "hashing")
    with process(*arguments) as one, process(*arguments) as other:
        said = [each.communicate() for each in (one, other)]
    assert (one.returncode, other.returncode) == (0, 0), said
    assert_all_is_there_once(new_db)
    assert done("check", "--db", new_db) == "all is well\n"


def test_a_terminal_gets_bars(many, new_db):
    pty = pytest.importorskip("pty")
    parent, child = pty.openpty()
    with process("import", many, "--db", new_db, "--embedder", "hashing", stderr=child) as importing:
        os.close(child)
        shown = b""
        while part := _read(parent):
            shown += part
        importing.wait()
    os.close(parent)
    text = shown.decode()
    assert f"of {MANY_LINES:,} lines" in text
    assert "storing" in text
    assert "embedding" in text


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end is closed
        return b""


# context and recall


def test_the_page_says_how_full_it_is_what_is_in_and_why(db):
    thread = ("--user", "alice", "--thread", "reports-2025-10")
    page = done("context", "When do we have to rotate the API key?", "--db", db, *thread, "--max-tokens", 800)
    lines = page.splitlines()
    assert re.fullmatch(r"\d+ of 800 tokens", lines[0])
    parts = [line.split()[0] for line in lines if re.match(r"(anchors|summary|window|recalled|prompt)  ", line)]
    assert parts == ["window", "recalled", "prompt"]
    assert re.search(r"2025-10-09 11:23 · \d+ tokens · reports-2025-10:44 · among the newest", page)
    assert re.search(r"api-2025-04:\d+ · similarity 0\.\d\d · found", page)
    assert "left out" in page


def test_the_json_has_the_messages_and_the_report(db):
    arguments = ("context", "How many vans?", "--db", db, "--user", "alice", "--max-tokens", 300)
    found = json.loads(done(*arguments, "--json"))
    assert set(found) == {"messages", "tokens", "sources", "report"}
    assert found["tokens"] == found["report"]["tokens"] <= 300
    assert {"user", "thread", "position", "id"} == set(found["sources"][0])
    assert found["report"]["preset"] == "backscroll"
    assert json.loads(done(*arguments, "--messages")) == found["messages"]
    assert found["messages"][-1]["content"].endswith("How many vans?")


def test_asking_in_no_thread_leaves_no_trace(db):
    def tables() -> dict[str, list[tuple[object, ...]]]:
        with sqlite3.connect(db) as database:
            kept = {
                name: database.execute(f"SELECT * FROM {name}").fetchall() for name in ("threads", "lines", "blocks")
            }
        database.close()
        return kept

    before = tables()
    done("context", "How many vans?", "--db", db, "--user", "alice")
    done("recall", "vans", "--db", db, "--user", "alice")
    assert tables() == before


def test_asking_is_repeatable(db):
    arguments = ("context", "How many vans?", "--db", db, "--user", "alice", "--thread", "fleet-2025-01", "--json")
    assert done(*arguments) == done(*arguments)


def test_a_question_may_come_from_stdin(db):
    arguments = ("--db", db, "--user", "alice", "--messages")
    assert done("context", "-", *arguments, stdin="How many vans?\n") == done("context", "How many vans?", *arguments)
    assert "empty" in misused("context", "-", *arguments, stdin="\n")
    assert "UTF-8" in misused("context", "-", *arguments, stdin=b"\xff")


def test_without_a_question_the_stored_messages_ask(db):
    thread = ("--db", db, "--user", "bob", "--thread", "billing-2025-06")
    assert "question is missing" in misused("context", "--db", db, "--user", "bob")
    messages = json.loads(done("context", *thread, "--messages"))
    assert any("good till Sept 25" in str(message["content"]) for message in messages)


def test_a_thread_that_is_not_there_is_not_asked_in(db):
    for command in (("context", "Hi?"), ("recall", "Hi?"), ("show",)):
        message = failed(*command, "--db", db, "--user", "bob", "--thread", "none")
        assert "setup-2025-03, billing-2025-06" in message


def test_preset_model_now_and_scope_are_handed_on(db):
    asked = ("context", "How many vans?", "--db", db, "--user", "alice", "--json")
    report = json.loads(done(*asked, "--preset", "pruning", "--model", "gpt-4", "--scope", "all"))["report"]
    assert (report["preset"], report["counter"], report["scope"]) == ("pruning", "cl100k_base", "all")
    assert "2025-10-10" in done(*asked, "--now", "2025-10-10")
    assert "now is a datetime" in failed(*asked, "--now", "soon")
    misused(*asked, "--preset", "none")


def test_a_budget_that_is_too_small_is_an_error(db):
    assert "max_tokens" in failed("context", "How many vans?", "--db", db, "--user", "alice", "--max-tokens", 5)
    misused("context", "How many vans?", "--db", db, "--user", "alice", "--max-tokens", 0)


def test_hits_are_ranked(db):
    hits = json.loads(done("recall", "early bakery run", "--db", db, "--user", "alice", "-k", 3, "--json"))
    assert len(hits) == 3
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert "bakery" in hits[0]["text"]
    page = done("recall", "early bakery run", "--db", db, "--user", "alice", "-k", 3)
    assert [line[:4].strip() for line in page.splitlines()[::2]] == ["1", "2", "3"]
    assert f"{hits[0]['thread']}:{hits[0]['position']} · similarity {hits[0]['similarity']:.2f}" in page


def test_recall_with_a_thread_looks_in_it_unless_a_scope_is_given(db):
    arguments = ("recall", "van", "--db", db, "--user", "alice", "--thread", "api-2025-04", "--json")
    assert {hit["thread"] for hit in json.loads(done(*arguments))} == {"api-2025-04"}
    assert {hit["thread"] for hit in json.loads(done(*arguments, "--scope", "user"))} != {"api-2025-04"}
    everywhere = ("recall", "three trucks", "--db", db, "--user", "alice", "--scope", "all")
    assert "bob" in {hit["user"] for hit in json.loads(done(*everywhere, "--json"))}
    assert "bob/setup-2025-03:0" in done(*everywhere)
    assert "bob/setup-2025-03:0" in done("context", *everywhere[1:])


def test_recall_that_finds_nothing_says_so(new_db, tmp_path):
    (tmp_path / "chat.jsonl").write_text(GOOD)
    done("import", tmp_path / "chat.jsonl", "--db", new_db, "--embedder", "hashing")
    assert "no line" in done("recall", "xylophone", "--db", new_db)
    assert done("recall", "xylophone", "--db", new_db, "--json") == "[]\n"


def test_lines_that_were_not_embedded_are_found(new_db):
    done("import", SAMPLE, "--db", new_db, "--no-embed")
    with backscroll.open(str(new_db), embedder="hashing") as memory:
        memory.store.put_setting("embedder", "hashing-256")
    assert "bakery" in done("recall", "bakery", "--db", new_db, "--user", "alice", "-k", 1)


def test_the_local_model_finds_what_is_meant(new_db):
    try:
        find_model(None)
    except ModelNotFoundError as error:
        pytest.skip(str(error))
    done("import", SAMPLE, "--db", new_db)
    page = done("context", "Who drives the early bakery run at the moment?", "--db", new_db, "--user", "alice")
    assert "Tomasz" in page


# threads and show


def test_threads_are_listed_with_their_sizes_and_times(db):
    page = done("threads", "--db", db, "--user", "bob")
    assert re.search(r"bob +billing-2025-06 +17 +425 +2025-06-12 18:44 +2025-06-27 08:33", page)
    assert "alice" not in page
    listed = json.loads(done("threads", "--db", db, "--json"))
    assert Counter(info["user"] for info in listed) == {"alice": 8, "bob": 2}
    assert listed[0]["first_at"] == "2025-01-14T09:12:00+00:00"


def test_branches_say_where_they_left(branched):
    page = done("threads", "--db", branched)
    assert "stands for boat~1" in page
    assert "left boat at 1" in page


@pytest.fixture
def branched(new_db: Path) -> Path:
    told = [("user", "A boat?"), ("assistant", "Which one?"), ("user", "The red one.")]
    with backscroll.open(str(new_db), embedder="hashing") as memory:
        thread = memory.thread("boat", user="alice")
        messages = [{"role": role, "content": text, "id": text} for role, text in told]
        thread.sync(messages)
        thread.sync([messages[0], {"role": "assistant", "content": "Yours?", "id": "Yours?"}])
        assert [line.message.text for line in thread.lines()] == ["A boat?", "Yours?"]
    return new_db


def test_lines_are_shown_whole_and_in_their_places(db):
    thread = ("--db", db, "--user", "alice", "--thread", "fleet-2025-01")
    page = done("show", *thread, "--from", 2, "--to", 3)
    assert re.match(r" +2  Alice \(user\)  2025-01-14 09:15 · 15 tokens\n +honestly\? a whiteboard", page)
    assert [line["position"] for line in json.loads(done("show", *thread, "--from", 2, "--to", 3, "--json"))] == [2, 3]
    assert "no lines" in done("show", *thread, "--from", 1000)
    misused("show", "--db", db, "--user", "alice")


# export


def test_what_was_exported_imports_as_the_same(db, tmp_path):
    store = open_lines(str(db))
    key = ThreadKey("bob", "setup-2025-03")
    with backscroll.open(str(db)) as memory:
        thread = memory.thread("setup-2025-03", user="bob")
        thread.append(
            [
                {"role": "assistant", "content": None, "tool_calls": [CALL], "metadata": {"cost": 3}},
                {"role": "tool", "tool_call_id": "c1", "content": ""},
                {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two\u2028"}]},
                {"role": "user", "content": "named as the role", "name": "user"},
                {"role": "user", "content": "named", "name": "Bob", "created_at": "2025-03-11T08:00:00.123456+02:00"},
            ]
        )
        thread.pin(1)
        thread.delete(3)
    store.close()
    first, again = tmp_path / "first.jsonl", tmp_path / "again.jsonl.gz"
    fresh = tmp_path / "fresh.db"
    done("export", "--db", db, "-o", first)
    done("import", first, "--db", fresh, "--no-embed")
    done("export", "--db", fresh, "-o", again)
    assert gzip.decompress(again.read_bytes()) == first.read_bytes()
    assert len(first.read_text("utf-8").split("\n")) == 364 + 5 - 1 + 1
    stores = [open_lines(str(path)) for path in (db, fresh)]
    old, new = ([line.message for line in store.read(key, 0, 999)] for store in stores)
    assert old == new
    assert [line.message.text for line in stores[1].pinned(key)] == [
        line.message.text for line in stores[0].pinned(key)
    ]
    for each in stores:
        each.close()
    assert done("import", first, "--db", fresh, "--no-embed").startswith("0 lines new")


def test_plain_lines_are_exported_plain(db):
    result = run("export", "--db", db, "--user", "bob", "--thread", "setup-2025-03")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["index"] for line in lines] == list(range(21))
    assert set(lines[0]) == {"conversation", "thread", "index", "speaker", "role", "text", "time", "id"}
    assert "21 lines of 1 thread of 1 user exported" in result.stderr


def test_openai_chats_are_ready_to_send_and_can_be_imported(db, new_db, tmp_path):
    chats = done("export", "--db", db, "--format", "openai")
    parsed = [json.loads(line) for line in chats.splitlines()]
    assert len(parsed) == 10
    assert {frozenset(message) for chat in parsed for message in chat["messages"]} <= {
        frozenset(keys)
        for keys in (
            {"role", "content"},
            {"role", "content", "name"},
            {"role", "content", "tool_calls"},
            {"role", "content", "tool_calls", "name"},
            {"role", "content", "tool_call_id"},
            {"role", "content", "tool_call_id", "name"},
        )
    }
    done("import", "-", "--db", new_db, "--no-embed", stdin=chats)
    assert done("export", "--db", new_db, "--format", "openai") == chats


def test_only_the_current_path_is_exported_and_the_rest_is_told(branched):
    result = run("export", "--db", branched)
    assert [json.loads(line)["text"] for line in result.stdout.splitlines()] == ["A boat?", "Yours?"]
    assert "not exported" in result.stderr
    own = done("export", "--db", branched, "--thread", "boat~1")
    assert {json.loads(line)["thread"] for line in own.splitlines()} == {"boat~1"}


def test_a_file_is_written_whole_or_not_at_all(db, tmp_path, monkeypatch):
    target = tmp_path / "out" / "all.jsonl"
    assert "cannot be written" in failed("export", "--db", db, "-o", target)
    target.parent.mkdir()
    target.write_text("before")

    def fail(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("backscroll.cli.writing.common_line", fail)
    assert run("export", "--db", db, "-o", target).exit_code == 130
    assert target.read_text() == "before"
    assert [path.name for path in target.parent.iterdir()] == ["all.jsonl"]
    assert "not a file" in failed("export", "--db", db, "-o", tmp_path)


# delete


def test_deleting_asks_and_says_how_many(db):
    asked = run("delete", "--db", db, "--user", "bob", stdin="n\n")
    assert asked.exit_code == 1
    assert "user bob: 2 threads, 38 lines" in asked.stderr
    assert run("delete", "--db", db, "--user", "bob").exit_code == 1
    assert len(stored_texts(db, "bob", "setup-2025-03")) == 21
    assert "38 lines deleted" in done("delete", "--db", db, "--user", "bob", stdin="y\n")
    assert "bob" not in done("threads", "--db", db)


def test_a_thread_or_a_line_is_deleted(db):
    thread = ("--db", db, "--user", "bob", "--thread", "setup-2025-03")
    asked = run("delete", *thread, "--position", 0)
    assert "line 0 of thread setup-2025-03 of user bob: Bob: hello, Bob Akers" in asked.stderr
    assert done("delete", *thread, "--position", 0, "--yes") == "1 line deleted\n"
    assert "position 0" in failed("delete", *thread, "--position", 0, "--yes")
    assert done("delete", *thread, "--yes") == "20 lines deleted\n"
    assert "no thread" in failed("delete", *thread, "--yes")
    assert b"Akers" not in db.read_bytes()
    misused("delete", "--db", db, "--user", "bob", "--position", 0)


def test_deleting_a_thread_says_that_its_branches_go_too(branched):
    asked = run("delete", "--db", branched, "--user", "alice", "--thread", "boat")
    assert "2 lines, and 1 branch" in asked.stderr
    assert done("delete", "--db", branched, "--user", "alice", "--thread", "boat", "--yes") == "4 lines deleted\n"


# check, reembed, setup-model


def test_findings_are_listed_and_repaired(db):
    assert done("check", "--db", db) == "all is well\n"
    with sqlite3.connect(db) as database:
        database.execute("UPDATE lines SET terms = x'' WHERE row = 5")
        database.execute("DELETE FROM vectors WHERE row = 6")
    database.close()
    found = run("check", "--db", db)
    assert found.exit_code == 1
    assert len(re.findall("can be repaired", found.stdout)) == 2
    assert json.loads(run("check", "--db", db, "--json").stdout)[0]["kind"] == "vectors"
    repaired = done("check", "--db", db, "--repair")
    assert "can be repaired" not in repaired
    assert done("check", "--db", db) == "all is well\n"


def test_repairing_embeds_what_is_missing(new_db):
    done("import", SAMPLE, "--db", new_db, "--no-embed")
    with backscroll.open(str(new_db), embedder="hashing") as memory:
        memory.store.put_setting("embedder", memory.embedder.name)
    assert run("check", "--db", new_db).exit_code == 1
    assert re.search(r"vectors +364 +lines are not embedded yet +repaired", done("check", "--db", new_db, "--repair"))
    assert done("check", "--db", new_db, "--json") == "[]\n"


def test_what_cannot_be_repaired_remains(db):
    with sqlite3.connect(db) as database:
        database.execute("UPDATE threads SET next_position = 1 WHERE thread_id = 1")
    database.close()
    result = run("check", "--db", db, "--repair")
    assert result.exit_code == 1
    assert "needs a copy of the file" in result.stdout


def test_another_embedder_makes_all_vectors_anew(db):
    assert done("reembed", "--db", db, "--embedder", "hashing:64") == "364 lines embedded by hashing-64\n"
    assert done("check", "--db", db) == "all is well\n"
    assert "bakery" in done("recall", "bakery", "--db", db, "--user", "alice", "-k", 1)
    assert "364 lines" in done("reembed", "--db", db, "--embedder", "hashing:64")


def test_an_embedder_that_cannot_run_costs_no_vectors(db):
    failed("reembed", "--db", db, "--embedder", "remote:none@http://127.0.0.1:9")
    assert done("check", "--db", db) == "all is well\n"


@pytest.mark.parametrize("going_on", [("reembed", "--embedder", "hashing:64"), ("check", "--repair")])
def test_ctrl_c_in_reembedding_is_continued(going_on, many_stored, new_db):
    shutil.copy(many_stored, new_db)
    with process("reembed", "--db", new_db, "--embedder", "hashing:64") as embedding:
        wait_for(new_db, "SELECT count(*) FROM settings WHERE value = 'hashing-64'", embedding)
        embedding.send_signal(signal.SIGINT)
        _, said = embedding.communicate()
    assert embedding.returncode == 130
    done_so_far = int(re.match(r"interrupted: ([\d,]+) lines? embedded", said)[1].replace(",", ""))
    assert 0 < done_so_far < MANY_LINES
    said = done(*going_on, "--db", new_db)
    assert f"{MANY_LINES - done_so_far:,}" in said
    assert done("check", "--db", new_db) == "all is well\n"


def test_a_model_that_cannot_be_fetched_is_an_error(tmp_path, monkeypatch):
    def refuse(folder: object, progress: object) -> Path:
        raise backscroll.EmbedderError(f"{folder}: no network")

    monkeypatch.setattr("backscroll.embedders.setup_model.setup_model", refuse)
    assert "no network" in failed("setup-model", "--folder", tmp_path)


def test_a_model_that_is_fetched_says_where(tmp_path, monkeypatch):
    def fetch(folder: str, progress) -> Path:
        progress(1, 0)
        progress(2, 2)
        return Path(folder)

    monkeypatch.setattr("backscroll.embedders.setup_model.setup_model", fetch)
    assert done("setup-model", "--folder", tmp_path) == f"the model is in {tmp_path}\n"
