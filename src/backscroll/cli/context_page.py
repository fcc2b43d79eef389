"""A context as a person wants to read it: how full it is, its parts in the order of sending, what was left out."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from backscroll.cli.options import counted
from backscroll.cli.screen import indented, minute, one_line, shown
from backscroll.context import PARTS, Context, Report
from backscroll.types import Entry

_BAR_CHARACTERS = 40
_LEFT_OUT = 5
_LEFT_OUT_CHARACTERS = 60
_REPORTED_CHARACTERS = 200  # a report has no more of a line
_COLORS = {"anchors": "magenta", "summary": "yellow", "window": "blue", "recalled": "green", "prompt": "cyan"}
_FRAME = "frame"  # roles, fences, dates: what the parts' lines do not have
_EMPTY_BAR = "░"


def print_context(console: Console, context: Context) -> None:
    """Print a context with its report."""
    report = context.report
    console.print(Text(f"{report.tokens:,} of {report.max_tokens:,} tokens", "bold"))
    console.print(Text(f"{report.counter}, preset {report.preset}, scope {report.scope}, {report.embedder}", "dim"))
    console.print()
    for row in _bars(report):
        console.print(row)
    sent = {source: place for place, source in enumerate(context.sources)}
    of_users = report.scope == "all"
    for part in PARTS:
        entries = [entry for entry in report.entries if entry.part == part and entry.included]
        if part == "recalled":  # the report has the best one first
            entries.sort(key=lambda entry: sent.get(entry.source, 0) if entry.source else 0)
        if entries:
            _print_part(console, part, entries, of_users)
    _print_left_out(console, [entry for entry in report.entries if not entry.included], of_users)
    for note in report.notes:
        console.print(Text.assemble("\n", ("note: ", "bold"), shown(note)))


def _bars(report: Report) -> Iterator[Text]:
    """A bar per part, in the order of sending; all of them together are as long as the budget is full."""
    parts = report.part_tokens()
    rest = report.tokens - report.tools_tokens - sum(parts.values())
    shares = {**parts, **({"tools": report.tools_tokens} if report.tools_tokens else {}), _FRAME: max(0, rest)}
    for part, tokens in shares.items():
        full = round(_BAR_CHARACTERS * tokens / report.max_tokens)
        yield Text.assemble(
            f"  {part:<9}{tokens:>8,}  ",
            ("█" * full, _COLORS.get(part, "white")),
            (_EMPTY_BAR * (_BAR_CHARACTERS - full), "dim"),
            f" {tokens / report.max_tokens:>4.0%}",
        )


def _print_part(console: Console, part: str, entries: Sequence[Entry], of_users: bool) -> None:
    tokens = sum(entry.tokens for entry in entries)
    console.print()
    console.print(
        Text.assemble((part, f"bold {_COLORS[part]}"), (f"  {counted(len(entries), 'line')}, {tokens:,} tokens", "dim"))
    )
    for entry in entries:
        speaker = ((f"{one_line(entry.speaker)}: ", "bold"),) if entry.speaker else ()
        more = "…" if len(entry.text) == _REPORTED_CHARACTERS else ""
        console.print(indented(Text.assemble(*speaker, one_line(entry.text), more), 2))
        console.print(indented(Text(_about(entry, of_users), "dim"), 4))


def _about(entry: Entry, of_users: bool) -> str:
    """When, how many tokens, where, how near, and why."""
    told = (minute(entry.created_at), counted(entry.tokens, "token"), _place(entry, of_users))
    return " · ".join(one for one in told if one)


def _place(entry: Entry, of_users: bool) -> str:
    """Whose and where, how near, and why."""
    source = entry.source
    user = f"{source.user}/" if source and of_users else ""
    told = (
        f"{user}{source.thread}:{source.position}" if source else "",
        "" if entry.similarity is None else f"similarity {entry.similarity:.2f}",
        entry.why,
    )
    return shown(" · ".join(one for one in told if one))


def _print_left_out(console: Console, entries: Sequence[Entry], of_users: bool) -> None:
    """The nearest of what was considered and is not in; what was found stands before what is old."""
    if not entries:
        return
    console.print()
    console.print(
        Text.assemble(("left out", "bold"), (f"  {counted(len(entries), 'line')} of those considered", "dim"))
    )
    ranked = sorted(entries, key=lambda entry: entry.part != "recalled")
    for entry in ranked[:_LEFT_OUT]:
        console.print(f"  {one_line(entry.speaker)}: {one_line(entry.text, _LEFT_OUT_CHARACTERS)}")
        console.print(indented(Text(_place(entry, of_users), "dim"), 4))
    if len(entries) > _LEFT_OUT:
        console.print(Text(f"  … and {len(entries) - _LEFT_OUT} more: --json lists them", "dim"))
