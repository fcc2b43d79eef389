"""`backscroll remember`, `facts` and `forget`: what is known of a user or a character, beside the chats."""

from typing import Any

import click

from backscroll import facts as known
from backscroll.cli.options import counted, db_option, existing_lines, json_option, json_text, only_user, user_option
from backscroll.cli.screen import minute, one_line, print_table, table
from backscroll.memory import DEFAULT_USER
from backscroll.types import Line
from backscroll.wiring import open_memory

_SHOWN_CHARACTERS = 60
_whose = click.option(
    "--user", metavar="USER", help="Whom it is about. [default: the only user, 'default' in a new store]"
)


@click.command(epilog='Example: backscroll remember "Alice eats no meat." --db chat.db --user alice --pinned')
@click.argument("text")
@db_option
@_whose
@click.option("--pinned", is_flag=True, help="In every context, not only where it matters.")
@click.option("--id", "fact_id", metavar="ID", help="Its name: another text under it takes this one's place.")
@click.option("--time", metavar="TIME", help="Since when, ISO 8601. [default: now]")
@click.option("--embedder", metavar="NAME", help="Of a new store: hashing, remote:MODEL@URL, … [default: local]")
def remember(  # each is an option of its own
    text: str, db: str, user: str | None, pinned: bool, fact_id: str | None, time: str | None, embedder: str | None
) -> None:
    """Store a fact about a user, or a character: known in all chats, and no line of any.

    The same text again is the same fact; with or without --pinned, it is pinned or let go of.
    """
    with open_memory(db, embedder=embedder) as memory:
        named = user if user is not None or not memory.store.threads() else only_user(memory.store, None)
        line = memory.remember(text, named or DEFAULT_USER, pinned=pinned, id=fact_id, created_at=time)
    click.echo(f"{line.id}: {'pinned' if pinned else 'recalled where it matters'}, for user {line.user}")


@click.command(epilog="Example: backscroll facts --db chat.db --user alice")
@db_option
@user_option
@json_option
def facts(db: str, user: str | None, as_json: bool) -> None:
    """List the facts about a user, or a character."""
    store = existing_lines(db)
    try:
        named = only_user(store, user)
        lines = known.facts(store, named)
    finally:
        store.close()
    if as_json:
        click.echo(json_text([_fact(line) for line in lines]))
    elif lines:
        _print_facts(lines)
    else:
        click.echo(f"there are no facts about user {named}: `backscroll remember` stores one")


@click.command(epilog="Example: backscroll forget fact-0c8a53b1f9d2e477 --db chat.db --user alice")
@click.argument("fact_ids", nargs=-1, required=True, metavar="ID...")
@db_option
@user_option
def forget(fact_ids: tuple[str, ...], db: str, user: str | None) -> None:
    """Delete facts, with their bytes; `backscroll facts` lists their ids."""
    store = existing_lines(db)
    try:
        named = only_user(store, user)
        for fact_id in fact_ids:
            line = known.forget(store, named, fact_id)
            click.echo(f"forgotten: {one_line(line.message.text, _SHOWN_CHARACTERS)}")
    finally:
        store.close()
    click.echo(f"{counted(len(fact_ids), 'fact')} deleted", err=True)


def _fact(line: Line) -> dict[str, Any]:
    return {
        "user": line.user,
        "id": line.id,
        "text": line.message.text,
        "since": line.created_at.isoformat(),
        "pinned": line.pinned,
    }


def _print_facts(lines: list[Line]) -> None:
    rows = table("id", "since", "in", "fact")
    for line in lines:
        where = "every context" if line.pinned else "where it matters"
        rows.add_row(one_line(line.id), minute(line.created_at), where, one_line(line.message.text))
    print_table(rows)
