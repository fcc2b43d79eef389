"""`backscroll check`, `summarize`, `reembed`, `setup-model`: what is derived is made, what is missing is fetched."""

from collections.abc import Callable
from dataclasses import asdict, replace

import click

from backscroll import wiring
from backscroll.cli.interrupting import noted_interrupts
from backscroll.cli.options import (
    counted,
    db_option,
    existing_lines,
    existing_memory,
    json_option,
    json_text,
    need_thread,
    only_user,
    thread_option,
)
from backscroll.cli.outcome import Interrupted
from backscroll.cli.screen import number_column, print_table, progress_bar, table
from backscroll.memory import Memory
from backscroll.types import Finding

_LLM = "Who writes: openai:MODEL, openai:MODEL@BASE_URL."


@click.command(epilog="Example: backscroll check --db chat.db --repair")
@db_option
@click.option("--repair", is_flag=True, help="Rebuild what can be, and embed the lines that have no vectors.")
@json_option
@click.pass_context
def check(ctx: click.Context, db: str, repair: bool, as_json: bool) -> None:
    """Compare what is derived with the lines.

    Ends with 0 when all is well or was repaired, with 1 when something remains.
    """
    store = existing_lines(db)
    try:
        findings = store.check(repair)
        pending = store.unembedded_count(None)
    finally:
        store.close()
    if repair and pending:
        findings = _embed_missing(db, findings)
    if as_json:
        click.echo(json_text([asdict(finding) for finding in findings]))
    elif findings:
        _print_findings(findings)
    else:
        click.echo("all is well")
    if not all(finding.repaired for finding in findings):
        ctx.exit(1)


@click.command(epilog="Example: backscroll summarize --db chat.db --llm openai:gpt-5-mini")
@db_option
@click.option("--llm", metavar="NAME", envvar="BACKSCROLL_LLM", show_envvar=True, required=True, help=_LLM)
@click.option("--user", metavar="USER", help="Whose threads. [default: everybody's]")
@thread_option
@click.option("--prompt", metavar="FILE", help="What the model is told, in place of the shipped prompt.")
def summarize(db: str, llm: str, user: str | None, thread: str | None, prompt: str | None) -> None:
    """Let a language model write the summaries that are missing, now.

    Old lines are sent to it. It may be interrupted: what was made is kept, and the same command goes on.
    """
    store = existing_lines(db)
    try:
        named = None if user is None and thread is None else only_user(store, user)
        if named is not None and thread is not None:
            need_thread(store, named, thread)
    finally:
        store.close()
    prompts = None if prompt is None else {"summary": prompt}
    with wiring.open_memory(db, llm={"summary": llm}, prompts=prompts) as memory:
        made = _write(memory, named, thread)
    click.echo(f"{counted(made, 'summary', 'summaries')} made by {llm}")


@click.command(epilog="Example: backscroll reembed --db chat.db --embedder hashing")
@db_option
@click.option("--embedder", required=True, metavar="NAME", help="local, hashing, remote:MODEL@URL, …")
def reembed(db: str, embedder: str) -> None:
    """Make all vectors anew, by another embedder.

    It may be interrupted: the same command, or `check --repair`, goes on where it stopped.
    """
    existing_lines(db).close()
    with wiring.open_for_reembedding(db, embedder) as memory:
        goes_on = memory.store.setting("embedder") == memory.embedder.name and memory.store.unembedded_count(None) > 0
        done = _embed(memory, memory.embed if goes_on else memory.reembed)
        click.echo(f"{counted(done, 'line')} embedded by {memory.embedder.name}")


@click.command(epilog="Example: backscroll setup-model")
@click.option("--folder", metavar="FOLDER", help="Where to. [default: the cache, where the local embedder looks]")
def setup_model(folder: str | None) -> None:
    """Fetch the local embedder's model (91 MB), once; nothing else is ever fetched."""
    with progress_bar("fetching", None, is_bytes=True) as bar:
        target = wiring.setup_model(folder, lambda done, total: bar.reach(done, total or None))
    click.echo(f"the model is in {target}")


def _embed_missing(db: str, findings: list[Finding]) -> list[Finding]:
    """Embed the lines that have no vectors; what is then no longer found has been repaired."""
    with existing_memory(db) as memory:
        _embed(memory, memory.embed)
        remaining = {(finding.kind, finding.problem) for finding in memory.check()}
    return [replace(one, repaired=(one.kind, one.problem) not in remaining) for one in findings]


def _embed(memory: Memory, embed: Callable[[Callable[[int], None]], int]) -> int:
    """Embed with a bar. Raises: Interrupted, between two batches."""
    with noted_interrupts() as is_interrupted, progress_bar("embedding", None) as bar:
        done = 0

        def note(lines: int) -> None:
            nonlocal done
            done += lines
            left = memory.store.unembedded_count(None)
            bar.reach(done, done + left)
            if is_interrupted() and left:
                told = f"{counted(done, 'line')} embedded, {left:,} to go"
                raise Interrupted(f"{told}; run the same command again, or `check --repair`, to go on")

        return embed(note)


def _write(memory: Memory, user: str | None, thread: str | None) -> int:
    """Let the model write, with a bar. Raises: Interrupted, between two summaries."""
    with noted_interrupts() as is_interrupted, progress_bar("summarizing", None, nouns="summaries") as bar:
        made = 0

        def note(number: int) -> None:
            nonlocal made
            made += number
            bar.reach(made, None)
            if is_interrupted():
                told = counted(made, "summary", "summaries")
                raise Interrupted(f"{told} made and kept; run the same command again to go on")

        return memory.summarize(user, thread, note)


def _print_findings(findings: list[Finding]) -> None:
    rows = table("what", number_column("count"), "problem", "state")
    for finding in findings:
        rest = "can be repaired" if finding.derived else "needs a copy of the file"
        rows.add_row(finding.kind, f"{finding.count:,}", finding.problem, "repaired" if finding.repaired else rest)
    print_table(rows)
