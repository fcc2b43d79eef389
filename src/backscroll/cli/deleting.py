"""`backscroll delete`: it says what will go, and asks."""

import sys

import click

from backscroll.cli.options import counted, db_option, existing_lines, need_thread, only_user, thread_option
from backscroll.cli.screen import one_line
from backscroll.errors import NotFoundError
from backscroll.protocols import MemoryStore
from backscroll.types import FACTS_THREAD, ThreadInfo, ThreadKey

_SHOWN_CHARACTERS = 60


@click.command(epilog="Example: backscroll delete --db chat.db --user alice --thread fleet-2025-01")
@db_option
@click.option("--user", required=True, metavar="USER", help="The user.")
@thread_option
@click.option("--position", type=click.IntRange(min=0), metavar="N", help="One line of the thread.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def delete(ctx: click.Context, db: str, user: str, thread: str | None, position: int | None, yes: bool) -> None:
    """Delete a user, a thread with its branches, or a line: with all that was derived, and their bytes."""
    if position is not None and thread is None:
        raise click.UsageError("--position is a place in a thread: name it by --thread")
    store = existing_lines(db)
    try:
        going = _going(store, only_user(store, user), thread, position)
        if not yes and not _is_wanted(going):
            click.echo("nothing was deleted")
            ctx.exit(1)
        deleted = store.delete(user, thread, position)
    finally:
        store.close()
    click.echo(f"{counted(deleted, 'line')} deleted")


def _going(store: MemoryStore, user: str, thread: str | None, position: int | None) -> str:
    """What will be deleted, in words. Raises: NotFoundError."""
    if thread is None:
        infos = store.threads(user)
        facts = sum(info.lines for info in infos if info.thread == FACTS_THREAD)
        chats = [info for info in infos if info.thread != FACTS_THREAD]
        roots = [info for info in chats if info.parent is None]
        told = f"user {user}: {counted(len(roots), 'thread')}, {_lines(roots)}{_branches(len(chats) - len(roots))}"
        return f"{told}, and {counted(facts, 'fact')}" if facts else told
    info = need_thread(store, user, thread)
    if position is None:
        return f"thread {thread} of user {user}: {_lines([info])}{_branches(_grown(store.threads(user), thread))}"
    found = store.read(ThreadKey(user, thread), position, position)
    if not found:
        raise NotFoundError(f"thread {thread!r} of user {user!r} has no line at position {position}")
    text = one_line(found[0].message.text, _SHOWN_CHARACTERS)
    return f"line {position} of thread {thread} of user {user}: {one_line(found[0].speaker)}: {text}"


def _lines(infos: list[ThreadInfo]) -> str:
    return counted(sum(info.lines for info in infos), "line")


def _branches(number: int) -> str:
    return f", and {counted(number, 'branch', 'branches')} with the lines that only they have" if number else ""


def _grown(infos: list[ThreadInfo], thread: str) -> int:
    """How many branches left a thread, or one that left it."""
    names = {thread}
    for info in infos:  # a branch stands behind its parent
        if info.parent in names:
            names.add(info.thread)
    return len(names) - 1


def _is_wanted(going: str) -> bool:
    """Ask; no answer is a no."""
    click.echo(f"delete {going}? [y/N] ", nl=False, err=True)
    answer = sys.stdin.readline()
    if not answer:
        click.echo("\nno answer: --yes deletes without asking", err=True)
    return answer.strip().lower() in ("y", "yes")
