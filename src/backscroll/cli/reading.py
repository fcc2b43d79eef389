"""`backscroll threads` and `show`: what is stored, as it is."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from backscroll.cli.options import (
    counted,
    db_option,
    existing_lines,
    json_option,
    json_text,
    need_thread,
    only_user,
    user_option,
)
from backscroll.cli.screen import indented, minute, number_column, one_line, print_table, screen, shown, table
from backscroll.exporting import common_line
from backscroll.messages import text_of
from backscroll.types import FACTS_THREAD, Line, ThreadInfo, ThreadKey

_LAST = 2**62  # behind every position


@click.command(epilog="Example: backscroll threads --db chat.db --user alice")
@db_option
@click.option("--user", metavar="USER", help="Only this user's.")
@json_option
def threads(db: str, user: str | None, as_json: bool) -> None:
    """List the threads: how long they are, when they were, and which are branches."""
    store = existing_lines(db)
    try:
        infos = store.threads(user if user is None else only_user(store, user))
        infos = [info for info in infos if info.thread != FACTS_THREAD]
    finally:
        store.close()
    if as_json:
        click.echo(json_text([_thread(info) for info in infos]))
    else:
        print_threads(infos)


@click.command(epilog="Example: backscroll show --db chat.db --user alice --thread fleet-2025-01 --from 10 --to 20")
@db_option
@user_option
@click.option("--thread", required=True, metavar="THREAD", help="The thread.")
@click.option("--from", "first", type=click.IntRange(min=0), default=0, metavar="N", help="First position.")
@click.option("--to", "last", type=click.IntRange(min=0), metavar="N", help="Last position, included.")
@json_option
def show(db: str, user: str | None, thread: str, first: int, last: int | None, as_json: bool) -> None:
    """Show the lines of a thread's current path, all of each."""
    store = existing_lines(db)
    try:
        named = only_user(store, user)
        need_thread(store, named, thread)
        lines = store.read(ThreadKey(named, thread), first, _LAST if last is None else last)
    finally:
        store.close()
    if as_json:
        click.echo(json_text([_line(line) for line in lines]))
        return
    console = screen()
    for line in lines:
        _print_line(console, line)
    if not lines:
        click.echo("there are no lines at these positions")


def _thread(info: ThreadInfo) -> dict[str, Any]:
    times = {"first_at": info.first_at, "last_at": info.last_at}
    return {**asdict(info), **{name: moment and moment.isoformat() for name, moment in times.items()}}


def print_threads(infos: Sequence[ThreadInfo]) -> None:
    """Print a table of threads."""
    if not infos:
        click.echo("there are no lines in this store yet")
        return
    has_branches = any(info.parent for info in infos)
    branch = ("branch",) if has_branches else ()
    rows = table("user", "thread", number_column("lines"), number_column("tokens"), "first", "last", *branch)
    for info in infos:
        counts = (f"{info.lines:,}", f"{info.tokens:,}")
        cells = [one_line(info.user), one_line(info.thread), *counts, minute(info.first_at), minute(info.last_at)]
        rows.add_row(*cells, *([_branch(info)] if has_branches else []))
    print_table(rows)


def _branch(info: ThreadInfo) -> str:
    """Where a branch left its parent, or which branch a thread's name stands for."""
    if info.parent is not None:
        return f"left {info.parent} at {info.fork_position}"
    return "" if info.head in (None, info.thread) else f"stands for {info.head}"


def _line(line: Line) -> dict[str, Any]:
    key = ThreadKey(line.user, line.family)
    return {**common_line(line, key, line.position), "position": line.position, "tokens": line.tokens}


def _print_line(console: Console, line: Line) -> None:
    pinned = " · pinned" if line.pinned else ""
    head = f"{line.position:>5}  "
    about = f"  {minute(line.created_at)} · {counted(line.tokens, 'token')}{pinned}"
    role = "" if line.speaker == line.message.role else f" ({line.message.role})"
    console.print(Text.assemble((head, "dim"), (one_line(line.speaker), "bold"), (role + about, "dim")))
    for text in _said(line):
        console.print(indented(shown(text), len(head)))


def _said(line: Line) -> Iterator[str]:
    """What a message says, part by part; calls as they would be written."""
    payload = line.message.payload
    text = text_of(payload.get("content"))
    if line.message.role == "tool":
        yield f"result of {payload.get('tool_call_id')}: {text}"
    elif text:
        yield text
    content = payload.get("content")
    for part in content if isinstance(content, list) else ():
        if part.get("type") not in ("text", "refusal"):
            yield f"[{part.get('type')}]"
    for call in payload.get("tool_calls") or ():
        called = call.get("function") or call.get("custom") or {}
        given = called.get("arguments") or called.get("input") or ""
        yield f"calls {called.get('name', call.get('type'))}({given}) as {call.get('id')}"
    if payload.get("refusal"):
        yield f"refuses: {payload['refusal']}"
