"""`backscroll chat`, typed into a real pseudo-terminal and piped, against a real server of the protocol."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from click.testing import CliRunner, Result

import backscroll
from backscroll.cli import main
from backscroll.cli.slash import SLASHES
from backscroll.types import ThreadKey
from backscroll.wiring import open_lines
from openai_server import OpenAIServer, says, status, streams

ROOT = Path(__file__).resolve().parents[1]
MAIN = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # Ctrl-C ends it also behind `nohup … &`
from backscroll.cli import main
main(prog_name='backscroll')
"""
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "BACKSCROLL_"))},
    "PYTHONPATH": str(ROOT / "src"),
    "PYTHONIOENCODING": "utf-8",
    "TERM": "xterm",
    "PROMPT_TOOLKIT_NO_CPR": "1",  # this terminal does not say where its cursor is
}
PROMPT = r"\x1b\[\?2004h.*?>.*?\x1b\[\?12l\x1b\[\?25h"  # pasting is switched on, and the cursor shown behind >
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]")


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    opened = OpenAIServer()
    yield opened
    opened.stop()


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


def chatting(db: Path, *arguments: object, server: OpenAIServer | None = None) -> list[str]:
    model = ("--llm", "openai:small", "--base-url", server.base_url) if server else ()
    given = ("chat", "--db", db, "--embedder", "hashing", "--thread", "t", *model, *arguments)
    return list(map(str, given))


def command(db: Path, server: OpenAIServer) -> list[str]:
    return ["-c", MAIN, *chatting(db, server=server)]


class Terminal:
    """A person at a terminal who waits for the prompt."""

    def __init__(self, arguments: list[str]) -> None:
        self.child = pexpect.spawn(
            sys.executable, arguments, env=ENVIRONMENT, encoding="utf-8", timeout=20, dimensions=(40, 120)
        )
        self.read()

    def read(self) -> str:
        """What is shown until the prompt stands there again."""
        self.child.expect(PROMPT)
        return CONTROL.sub("", self.child.before)

    def type(self, text: str) -> str:
        self.child.send(text + "\r")
        return self.read()

    def leave(self) -> int:
        self.child.sendeof()
        self.child.expect(pexpect.EOF)
        self.child.close()
        return self.child.exitstatus

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.child.close(force=True)


def stored(db: Path, thread: str = "t", user: str = "default") -> list[tuple[str, str]]:
    store = open_lines(str(db))
    lines = store.read(ThreadKey(user, thread), 0, 2**62)
    store.close()
    return [(line.message.role, line.message.text) for line in lines]


def piped(db: Path, text: str | bytes, *arguments: object, server: OpenAIServer | None = None) -> Result:
    """What comes of lines through a pipe, in this process."""
    environment = {name: None for name in os.environ if name.startswith(("OPENAI_", "BACKSCROLL_"))}
    result = CliRunner().invoke(main, chatting(db, *arguments, server=server), input=text, env=environment)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


# In a terminal


def test_a_conversation_is_answered_as_it_comes_and_stored(db, server):
    server.steps = [says("Hello, you have vans."), says("Twelve.")]
    with Terminal(command(db, server=server)) as person:
        assert "Hello, you have vans." in person.type("My fleet has 12 vans.")
        assert "Twelve." in person.type("How many?")
        assert person.leave() == 0
    expected = [("user", "My fleet has 12 vans."), ("assistant", "Hello, you have vans.")]
    assert stored(db) == [*expected, ("user", "How many?"), ("assistant", "Twelve.")]
    assert [body["stream"] for body in server.bodies] == [True, True]
    assert [message["content"] for message in server.bodies[1]["messages"]] == [
        *(text for _, text in expected),
        "How many?",
    ]


def test_ctrl_c_stops_a_reply_and_what_came_is_stored_as_partial(db, server):
    def wait(handler):
        time.sleep(30)

    server.steps = [streams([{"content": "You have "}, {"content": "twelve"}], then=wait), says("Twelve vans.")]
    with Terminal(command(db, server=server)) as person:
        person.child.send("How many?\r")
        person.child.expect("You have twelve")
        person.child.sendintr()
        assert "stopped: what came is stored" in person.read()
        assert stored(db) == [("user", "How many?"), ("assistant", "You have twelve")]
        assert "Twelve vans." in person.type("Say it again.")
        assert person.leave() == 0
    store = open_lines(str(db))
    assert store.read(ThreadKey("default", "t"), 1, 1)[0].message.metadata["partial"] is True
    store.close()


def test_ctrl_c_before_the_reply_began_leaves_a_line_that_retry_answers(db, server):
    arrived = []

    def never(handler, body):
        arrived.append(True)
        time.sleep(30)

    server.steps = [never, says("Twelve.")]
    with Terminal(command(db, server=server)) as person:
        person.child.send("How many?\r")
        while not arrived:
            time.sleep(0.01)
        person.child.sendintr()
        assert "/retry asks again" in person.read()
        assert stored(db) == [("user", "How many?")]
        assert "Twelve." in person.type("/retry")
        assert "nothing is unanswered" in person.type("/retry")
        assert person.leave() == 0
    assert stored(db) == [("user", "How many?"), ("assistant", "Twelve.")]


def test_ctrl_c_at_the_prompt_leaves_nothing_and_nobody(db, server):
    with Terminal(command(db, server=server)) as person:
        person.child.send("half a line")
        person.child.sendintr()
        assert "Ctrl-D leaves" in person.read()
        assert "You said: whole" in person.type("whole")
        assert person.leave() == 0
    assert stored(db) == [("user", "whole"), ("assistant", "You said: whole")]


def test_a_reply_that_fails_is_told_and_the_conversation_goes_on(db, server):
    server.steps = [status(400, "no such model"), says("Twelve.")]
    with Terminal(command(db, server=server)) as person:
        said = person.type("How many?")
        assert "error: " in said and "no such model" in said and "your line is stored, /retry asks again" in said
        assert "Twelve." in person.type("How many?")
        assert person.leave() == 0
    assert stored(db) == [("user", "How many?"), ("assistant", "Twelve.")]


def test_a_stream_that_breaks_stores_the_line_alone(db, server):
    server.steps = [streams([{"content": "You have "}], then=lambda handler: handler.hang_up())]
    with Terminal(command(db, server=server)) as person:
        said = person.type("How many?")
        assert "You have" in said and "/retry asks again" in said
        assert person.leave() == 0
    assert stored(db) == [("user", "How many?")]


def test_the_arrow_keys_bring_back_what_was_said_before(db, server):
    piped(db, "first\nsecond\n", server=server)
    with Terminal(command(db, server=server)) as person:
        up, left = "\x1b[A", "\x1b[D"
        assert "You said: first" in person.type(up + up)
        assert "You said: secoXnd" in person.type(up + up + left * 2 + "X")
        assert person.leave() == 0
    assert [path.name for path in db.parent.iterdir() if "chat.db" not in path.name] == []


def test_alt_enter_and_a_paste_make_one_message_of_several_lines(db, server):
    with Terminal(command(db, server=server)) as person:
        person.type("one\x1b\rtwo")
        person.type("\x1b[200~three\rfour\x1b[201~")
        assert person.leave() == 0
    assert [text for role, text in stored(db) if role == "user"] == ["one\ntwo", "three\nfour"]


def test_a_reply_does_not_steer_the_terminal(db, server):
    server.steps = [says("\x1b[2Jgone \x07 here")]
    with Terminal(command(db, server=server)) as person:
        person.child.send("Hi\r")
        person.child.expect("here")
        assert "\x1b[2J" not in person.child.before and "\x07" not in person.child.before


# Commands


def test_context_shows_what_was_sent_and_why_also_of_a_reply_that_failed(db, server):
    server.steps = [says("Noted."), status(400, "no such model")]
    run = piped(db, "/context\n", server=server)
    assert run.exit_code == 2
    assert "nothing was sent yet" in run.stderr
    with Terminal(command(db, server=server)) as person:
        person.type("My fleet has 12 vans.")
        assert "user: My fleet has 12 vans." in person.type("/context")
        person.type("How many?")
        report = person.type("/context")
        assert "among the newest" in report and "user: How many?" in report
        would = person.type("/context And trucks?")
        assert "user: And trucks?" in would
        assert person.leave() == 0
    assert len(server.bodies) == 2
    assert len(stored(db)) == 3


def test_recall_finds_lines_of_other_threads(db, server):
    piped(db, "The gate opens at 4:30.\n", "--thread", "monday", server=server)
    run = piped(db, "/recall gate\n/recall\n", "--thread", "friday")
    assert "The gate opens at 4:30." in run.stdout
    assert "monday:0" in run.stdout
    assert "what to look for is missing" in run.stderr


def test_lines_are_pinned_until_they_are_let_go(db):
    said = "The code is 77.\n/pin\n/unpin 0\n/pin 0\n/pin 9\n"
    run = piped(db, said)
    text = run.stdout
    assert "in every context of this thread from now on: 0, user: The code is 77." in text
    assert "no longer pinned: 0" in text
    assert run.exit_code == 2
    assert "9" in run.stderr
    store = open_lines(str(db))
    assert [line.message.text for line in store.pinned(ThreadKey("default", "t"))] == ["The code is 77."]
    store.close()


def test_forget_deletes_the_last_exchange_a_line_or_all(db, server):
    piped(db, "one\ntwo\nthree\n/forget\n/forget 1\n", server=server)
    assert [text for _, text in stored(db)] == ["one", "two", "You said: two"]
    assert b"two" in Path(db).read_bytes()
    run = piped(db, "/forget all\n/forget\n", server=server)
    assert "3 lines deleted" in run.stdout
    assert "there is no line of yours" in run.stderr
    assert stored(db) == []
    assert b"You said: two" not in Path(db).read_bytes()


def test_a_position_that_is_far_away_is_not_there(db, server):
    run = piped(db, "one\n/forget 99999999999999999999\n/pin 99999999999999999999\n", server=server)
    assert "no line at position 99999999999999999999" in run.stderr
    assert len(stored(db)) == 2


def test_a_persona_who_never_chats_is_not_taken_for_the_user(db, server):
    with backscroll.open(db, embedder="hashing") as memory:
        memory.remember("Miko is a cat.", user="miko")
    piped(db, "Hello.\n", "--persona", "miko", server=server)
    assert stored(db)[0] == ("user", "Hello.")  # of the default user


def test_threads_are_listed_and_changed(db, server):
    run = piped(db, "one\n/thread other\ntwo\n/threads\n/thread t\nthree\n/thread\n/quit\nfour\n", server=server)
    assert run.exit_code == 0
    assert [text for role, text in stored(db) if role == "user"] == ["one", "three"]
    assert [text for role, text in stored(db, "other") if role == "user"] == ["two"]
    assert re.search(r"^default +other +2", run.stdout, re.MULTILINE)


def test_an_unknown_command_is_not_sent_and_a_doubled_slash_is(db, server):
    run = piped(db, "//etc/hosts is a file.\n/nonsense\n", server=server)
    assert stored(db)[0] == ("user", "/etc/hosts is a file.")
    assert len(server.bodies) == 1
    assert "there is no /nonsense" in run.stderr


def test_help_lists_every_command(db):
    text = piped(db, "/help\n").stdout
    page = (ROOT / "docs" / "command-line.md").read_text("utf-8")
    assert SLASHES
    for name in SLASHES:
        assert re.search(rf"^{name}\b", text, re.MULTILINE)
        assert re.search(rf"`{name}\b", page)


# Without a model, through a pipe, and what is given


def test_without_a_model_the_context_is_shown_and_said_to_be_that(db):
    run = piped(db, "My fleet has 12 vans.\nHow many vans?\n/retry\n")
    text = run.stdout
    assert text.count("no language model is set") == 2
    assert "user: My fleet has 12 vans." in text.partition("no language model is set")[2]
    assert stored(db) == [("user", "My fleet has 12 vans."), ("user", "How many vans?")]
    assert "no language model" in run.stderr


def test_a_pipe_gets_the_replies_and_nothing_else(db, server):
    run = piped(db, "one\n\n  \ntwo\n", server=server)
    assert run.stdout == "You said: one\nYou said: two\n"
    assert run.exit_code == 0
    assert run.stderr.startswith("thread t of user default")


def test_a_pipe_ends_at_the_first_failure(db, server):
    server.steps = [says("Good."), status(400, "no such model")]
    run = piped(db, "one\ntwo\nthree\n", server=server)
    assert run.exit_code == 2
    assert run.stdout == "Good.\n"
    assert "your line is stored" in run.stderr
    assert [text for _, text in stored(db)] == ["one", "Good.", "two"]


def test_ctrl_c_in_a_pipe_ends_with_130_and_keeps_what_came(db, server):
    server.steps = [streams([{"content": "You have"}], then=lambda handler: time.sleep(30))]
    run = [sys.executable, *command(db, server=server)]
    with subprocess.Popen(run, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as talking:
        talking.stdin.write(b"How many?\n")
        talking.stdin.flush()
        assert talking.stdout.read(len("You have")) == b"You have"
        talking.send_signal(signal.SIGINT)
        assert talking.wait(timeout=30) == 130
    assert stored(db) == [("user", "How many?"), ("assistant", "You have")]


def test_without_a_thread_a_new_one_is_named_by_the_time(db, server):
    given = [one for one in chatting(db, server=server) if one not in ("--thread", "t")]
    run = CliRunner().invoke(main, given, input="Hi\n/threads\n")
    assert re.search(r"^default +chat-\d{4}-\d\d-\d\d-\d{6} +2", run.stdout, re.MULTILINE)


def test_a_new_thread_gets_its_system_prompt_once(db, server):
    for text in ("one\n", "two\n"):
        piped(db, text, "--system", "Be brief.", server=server)
    run = piped(db, "three\n", "--system", "Be long.", server=server)
    assert [role for role, _ in stored(db)].count("system") == 1
    assert stored(db)[0] == ("system", "Be brief.")
    assert "--system is for a new one" in run.stderr
    assert server.bodies[-1]["messages"][0] == {"role": "system", "content": "Be brief."}
    piped(db, "/forget all\nfour\n/thread new\nfive\n", "--system", "Be long.", server=server)
    assert stored(db)[0] == stored(db, "new")[0] == ("system", "Be long.")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--base-url", "http://localhost:1/v1"), "name the model by --llm"),
        (("--llm", "openai:m@http://localhost:1/v1", "--base-url", "http://localhost:1/v1"), "named twice"),
        (("--llm", "gpt-4o"), "openai:MODEL"),
        (("--llm", "openai:gpt-4o"), "OPENAI_API_KEY"),
        (("--max-tokens", "0"), "--max-tokens"),
    ],
)
def test_what_is_given_wrong_is_told_and_makes_no_file(arguments, problem, db):
    run = piped(db, "Hi\n", *arguments)
    assert run.exit_code == 2
    assert problem in run.stderr
    assert not db.exists()


def test_bytes_that_are_not_utf_8_are_refused(db):
    run = piped(db, b"good\nb\xffd\n")
    assert run.exit_code == 2
    assert "not UTF-8" in run.stderr
    assert [text for _, text in stored(db)] == ["good"]


def test_where_there_are_several_users_one_must_be_named(db, server):
    for user in ("alice", "bob"):
        piped(db, "Hi\n", "--user", user, server=server)
    assert "alice, bob" in piped(db, "Hi\n", server=server).stderr
    assert piped(db, "Hi\n", "--user", "carol", server=server).exit_code == 0
