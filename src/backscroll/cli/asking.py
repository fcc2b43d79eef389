"""`backscroll context` and `backscroll recall`: what a question gets."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from uuid import uuid4

import click
from rich.text import Text

from backscroll.cli.context_page import print_context
from backscroll.cli.options import (
    SCOPES,
    db_option,
    existing_memory,
    gathered,
    json_option,
    json_text,
    need_thread,
    only_user,
    persona_option,
    thread_option,
    user_option,
)
from backscroll.cli.screen import indented, minute, one_line, screen, shown
from backscroll.context import Context
from backscroll.memory import Memory, ScopeName, Thread
from backscroll.settings import PRESETS, open_preset
from backscroll.types import Hit

_HIT_CHARACTERS = 400


@dataclass(frozen=True, slots=True)
class _Asked:
    """The options of `backscroll context`."""

    question: str | None
    db: str
    user: str | None
    thread: str | None
    max_tokens: int
    preset: str
    scope: ScopeName
    model: str | None
    now: str | None
    persona: str | None
    as_json: bool
    as_messages: bool


@click.command(epilog='Example: backscroll context "How many vans do we run?" --db chat.db --max-tokens 2000')
@click.argument("question", required=False)
@db_option
@user_option
@click.option(
    "--thread", metavar="THREAD", help="The thread that is asked in; without it, a new one that is not stored."
)
@click.option("--max-tokens", type=click.IntRange(min=1), default=2000, show_default=True, help="Size of all of it.")
@click.option("--preset", type=click.Choice(list(PRESETS)), default="backscroll", show_default=True)
@click.option("--scope", type=click.Choice(SCOPES), default="user", show_default=True, help="Whose lines are recalled.")
@click.option("--model", metavar="MODEL", help="Whose tokens are counted. [default: o200k_base]")
@click.option("--now", metavar="TIME", help="The date that is told, ISO 8601, for questions about last week.")
@persona_option
@json_option
@click.option("--messages", "as_messages", is_flag=True, help="Print only the messages, as JSON ready to send.")
@gathered(_Asked)
def context(asked: _Asked) -> None:
    """Show the context that a question gets, and why.

    The question - is read from stdin. Without a question, a thread is asked by the messages that it ends with.
    """
    if asked.question is None and asked.thread is None:
        raise click.UsageError("a question is missing; without one, name the thread whose stored messages ask")
    question = _question(asked.question)
    with existing_memory(asked.db) as memory:
        found = _ask(memory, question, asked)
    if asked.as_messages:
        click.echo(json_text(found.messages))
    elif asked.as_json:
        sources = [source._asdict() for source in found.sources]
        report = found.report.to_dict()
        click.echo(
            json_text({"messages": found.messages, "tokens": found.tokens, "sources": sources, "report": report})
        )
    else:
        print_context(screen(), found)


@click.command(epilog='Example: backscroll recall "early bakery run" --db chat.db --user alice -k 5')
@click.argument("query")
@db_option
@user_option
@thread_option
@click.option("-k", type=click.IntRange(min=1), default=10, show_default=True, help="How many lines at most.")
@click.option("--scope", type=click.Choice(SCOPES), help="Where to look. [default: thread with --thread, else user]")
@json_option
def recall(  # each is an option of its own
    query: str, db: str, user: str | None, thread: str | None, k: int, scope: str | None, as_json: bool
) -> None:
    """List the stored lines that match a query best; - is read from stdin."""
    text = _question(query) or ""
    with existing_memory(db) as memory:
        asking = _thread(memory, user, thread)
        hits = asking.recall(text, k, cast(ScopeName, scope or ("thread" if thread else "user")))
    if as_json:
        click.echo(json_text([_hit(hit) for hit in hits]))
    else:
        print_hits(hits)


def print_hits(hits: Sequence[Hit]) -> None:
    """Print lines that were found, best first: who said what, where it stands, and how near it is."""
    if not hits:
        click.echo("no line is near enough to the query, or shares a word with it")
        return
    console = screen()
    has_many_users = len({hit.line.user for hit in hits}) > 1
    for rank, hit in enumerate(hits, 1):
        line = hit.line
        user = f"{line.user}/" if has_many_users else ""
        where = f"{minute(line.created_at)} · {user}{line.thread}:{line.position}"
        near = f"similarity {hit.similarity:.2f} · score {hit.score:.2f}"
        text = one_line(line.message.text, _HIT_CHARACTERS)
        console.print(indented(Text.assemble((f"{one_line(line.speaker)}: ", "bold"), text), 4, f"{rank:>2}"))
        console.print(indented(Text(shown(f"{where} · {near}"), "dim"), 6))


def _question(given: str | None) -> str | None:
    try:
        text = sys.stdin.buffer.read().decode().strip() if given == "-" else given
    except UnicodeDecodeError as error:
        raise click.UsageError(f"stdin is not UTF-8: {error}") from error
    if text is not None and not text.strip():
        raise click.UsageError("the question is empty")
    return text


def _ask(memory: Memory, question: str | None, asked: _Asked) -> Context:
    """In the thread that was named; else in one that leaves no trace, since nothing is kept for its next turn."""
    thread = _thread(memory, asked.user, asked.thread, asked.persona)
    settings = open_preset(asked.preset)
    found = thread.context(
        question,
        max_tokens=asked.max_tokens,
        model=asked.model,
        now=asked.now,
        preset=settings if asked.thread else replace(settings, buffer_blocks=0),
        scope=asked.scope,
    )
    return replace(found, report=replace(found.report, preset=asked.preset))


def _thread(memory: Memory, user: str | None, thread: str | None, persona: str | None = None) -> Thread:
    """A thread that is there, or one of a name that no other has. Raises: NotFoundError."""
    named = only_user(memory.store, user)
    if thread is not None:
        need_thread(memory.store, named, thread)
    return memory.thread(thread or f"asked-{uuid4().hex}", named, persona)


def _hit(hit: Hit) -> dict[str, Any]:
    line = hit.line
    return {
        "user": line.user,
        "thread": line.thread,
        "position": line.position,
        "id": line.id,
        "time": line.created_at.isoformat(),
        "speaker": line.speaker,
        "role": line.message.role,
        "text": line.message.text,
        "score": hit.score,
        "similarity": hit.similarity,
        "lexical": hit.lexical,
    }
