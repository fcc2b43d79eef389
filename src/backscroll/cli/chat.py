"""`backscroll chat`: a conversation in the terminal, or with what comes through a pipe."""

import sys
from dataclasses import dataclass
from datetime import datetime

import click

from backscroll.cli.line_input import piped, typing
from backscroll.cli.options import (
    SCOPES,
    base_url_option,
    counted,
    db_option,
    gathered,
    llm_name,
    llm_option,
    only_user,
    persona_option,
)
from backscroll.cli.outcome import Failure
from backscroll.cli.slash import SLASHES, Quit, run_slash
from backscroll.cli.talk import Talk
from backscroll.errors import BackscrollError
from backscroll.memory import DEFAULT_USER, Memory, ScopeName, Thread
from backscroll.settings import PRESETS
from backscroll.wiring import open_memory

_HISTORY_TOKENS = 20_000  # so far back the arrow keys reach
_HINT = "Ctrl-D leaves, /help lists the commands"


@dataclass(frozen=True, slots=True)
class _Asked:
    """The options of `backscroll chat`."""

    db: str
    user: str | None
    thread: str | None
    llm: str | None
    base_url: str | None
    max_tokens: int
    preset: str
    scope: ScopeName
    system: str | None
    persona: str | None
    embedder: str | None


@click.command(
    epilog="Example: backscroll chat --db chat.db --llm openai:llama3.2 --base-url http://localhost:11434/v1"
)
@db_option
@click.option("--user", metavar="USER", help="Who talks. [default: the store's only user; 'default' in a new store]")
@click.option("--thread", metavar="THREAD", help="The thread to go on in. [default: a new one, named by the time]")
@llm_option
@base_url_option
@click.option("--max-tokens", type=click.IntRange(min=1), default=3000, show_default=True, help="Size of what is sent.")
@click.option("--preset", type=click.Choice(list(PRESETS)), default="backscroll", show_default=True)
@click.option("--scope", type=click.Choice(SCOPES), default="user", show_default=True, help="Whose lines are recalled.")
@click.option("--system", metavar="TEXT", help="The system prompt of a new thread.")
@persona_option
@click.option("--embedder", metavar="NAME", help="Of a new store: hashing, remote:MODEL@URL, … [default: local]")
@gathered(_Asked)
def chat(asked: _Asked) -> None:
    """Talk with a language model that remembers.

    Both sides are stored. Without --llm what a model would be sent is shown instead. /help lists the commands.
    Ctrl-C stops a reply, and what came of it is stored; Ctrl-D leaves. In a pipe every line is a message.
    """
    llm = llm_name(asked.llm, asked.base_url)
    with open_memory(asked.db, embedder=asked.embedder, preset=asked.preset, llm=llm) as memory:
        name = asked.thread or f"chat-{datetime.now().astimezone():%Y-%m-%d-%H%M%S}"
        thread = memory.thread(name, _user(memory, asked), asked.persona)
        talk = Talk(memory, thread, asked.max_tokens, asked.scope, asked.system)
        _greet(talk, asked, llm)
        try:
            if sys.stdin.isatty():
                _talk_in_terminal(talk)
            else:
                _talk_through_pipe(talk)
        except Quit:
            return


def _user(memory: Memory, asked: _Asked) -> str:
    """The user that was named, the only one who has chats, or the first one of a new store."""
    if asked.user is not None:
        return asked.user
    users = {info.user for info in memory.threads()} - {asked.persona}
    if len(users) > 1:
        return only_user(memory.store, None)
    return users.pop() if users else DEFAULT_USER


def _greet(talk: Talk, asked: _Asked, llm: str | None) -> None:
    """Say where this is and who answers; a new thread gets its system prompt."""
    talk.begin()
    if asked.system and talk.thread.lines(0, 0)[0].message.text != asked.system:
        click.echo("this thread goes on as it began: --system is for a new one", err=True)
    key = talk.thread.key
    told = f"{counted(_length(talk.thread), 'line')}; {llm or 'no language model, what one would be sent is shown'}"
    click.echo(f"thread {key.thread} of user {key.user} in {asked.db}: {told}", err=True)


def _length(thread: Thread) -> int:
    infos = thread.memory.threads(thread.key.user)
    return next((info.lines for info in infos if info.thread == thread.key.thread), 0)


def _talk_in_terminal(talk: Talk) -> None:
    """Ask for line after line; what goes wrong is told, and the conversation goes on."""
    click.echo(_HINT, err=True)
    said = [line.message.text for line in talk.newest(_HISTORY_TOKENS) if line.message.role == "user"]
    read = typing(said, list(SLASHES))
    while True:
        try:
            text = read()
        except EOFError:
            return
        except KeyboardInterrupt:
            click.echo(_HINT, err=True)
            continue
        _say_or_tell(talk, text)


def _talk_through_pipe(talk: Talk) -> None:
    """Every line is said; the first that fails ends it."""
    for text in piped():
        _say(talk, text)


def _say(talk: Talk, text: str) -> None:
    """What was typed: nothing, a command, or a line of the conversation."""
    if text.startswith("/") and not text.startswith("//"):
        run_slash(talk, text)
    elif text.strip():
        talk.say(text[1:] if text.startswith("//") else text)


def _say_or_tell(talk: Talk, text: str) -> None:
    try:
        _say(talk, text)
    except KeyboardInterrupt:
        click.echo(f"stopped: {talk.what_is_left()}", err=True)
    except Failure as failure:
        failure.show()
    except BackscrollError as error:
        Failure(str(error)).show()
