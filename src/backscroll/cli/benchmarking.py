"""`backscroll benchmark`: what a context costs in histories of growing length, on this machine."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from backscroll import __version__
from backscroll.cli.options import gathered, json_text
from backscroll.cli.outcome import Interrupted
from backscroll.cli.screen import number_column, progress_bar, table
from backscroll.cli.screen import print_table as print_rows
from backscroll.evaluation.plot import need_plot
from backscroll.evaluation.speed.bulk import Bulk, bulk
from backscroll.evaluation.speed.history import history_of
from backscroll.evaluation.speed.measure import Plan, Size, Times, sizes
from backscroll.evaluation.speed.plot import plot, slope, slope_of_ratio
from backscroll.wiring import DEFAULT_EMBEDDER, open_yardstick, shared_embedder

_DEFAULT_SIZES = "1000,10000,100000"
_NONE = "-"
_COMPARED = ("context", "search", "embed query")
_RATIOS = ("p50", "p99", "p99 / p50")
_RATIOS_NOTE = "p50 over its p50, p99 over its p99, and p99 over its p50"
_BYTES_NOTE = "disk is the store with its folder of columns; RAM is a new process's own after its first context"


def _sizes(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Whole numbers above 0 with commas between them, each once."""
    numbers = value.split(",")
    if not all(one.isdecimal() and int(one) > 0 for one in numbers):
        raise click.BadParameter(f"{value!r} is no list of whole numbers above 0, such as 1000,10000", ctx, param)
    return tuple(dict.fromkeys(map(int, numbers)))


@dataclass(frozen=True, slots=True)
class _Benchmark:
    """The options."""

    lines: Path | None
    ask: Path | None
    sizes: tuple[int, ...]
    users: int
    user_lines: int
    questions: int
    max_tokens: int
    embedder: str
    yardstick: str | None
    pause: float
    folder: Path | None
    out: Path | None
    plot: Path | None


@click.command(epilog="Example: backscroll benchmark --lines chat.lines.jsonl.gz --sizes 1000,10000 --plot growth.png")
@click.option(
    "--lines", type=click.Path(path_type=Path), metavar="FILE", help="Whose words are used. [default: made-up ones]"
)
@click.option(
    "--ask",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Questions on those lines, as of `evaluate`. [default: the beginnings of lines]",
)
@click.option(
    "--sizes", metavar="N,M", callback=_sizes, default=_DEFAULT_SIZES, show_default=True, help="Lines of one user."
)
@click.option("--users", type=click.IntRange(min=0), default=1000, show_default=True, help="Of a second store.")
@click.option("--user-lines", type=click.IntRange(1, 500), default=100, show_default=True, help="Of each of them.")
@click.option(
    "--questions", type=click.IntRange(min=1), default=200, show_default=True, help="Asked at each size, if there are."
)
@click.option("--max-tokens", type=click.IntRange(min=100), default=2000, show_default=True, help="Of a context.")
@click.option("--embedder", metavar="NAME", default=DEFAULT_EMBEDDER, show_default=True, help="Who embeds.")
@click.option(
    "--yardstick",
    metavar="NAME",
    help="Another embedder, asked 25 questions behind each 25 contexts: sentence-transformers, or as --embedder.",
)
@click.option(
    "--pause",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=0.0,
    show_default=True,
    help="Of rest in front of each question, as in a chat.",
)
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where the stores are made. [default: a temporary one]",
)
@click.option("--json", "out", type=click.Path(path_type=Path), metavar="FILE", help="Write all figures to a file.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="Draw the growth; needs the extra plot.")
@gathered(_Benchmark)
def benchmark(asked: _Benchmark) -> None:
    """Measure taking in and contexts in histories of growing length.

    The words of the first pass through the file are its own and embedded; later passes say them again with other
    names, numbers and dates, and their vectors are those of the first with noise added. A million lines take about
    two gigabytes of disk. Only figures of one run on a quiet machine can be compared.
    """
    if asked.ask and not asked.lines:
        raise click.UsageError("--ask has questions on the conversations of a file: give --lines too")
    if asked.plot:
        need_plot()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    embedder = shared_embedder(asked.embedder)
    yardstick = open_yardstick(asked.yardstick) if asked.yardstick else None
    plan = Plan(
        sizes=asked.sizes,
        users=asked.users,
        user_lines=asked.user_lines,
        questions=asked.questions,
        max_tokens=asked.max_tokens,
        embedder=asked.embedder,
        yardstick=yardstick,
        pause_seconds=asked.pause,
    )
    total = max(plan.sizes) + plan.users * plan.user_lines
    found: list[Size] = []
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        history = history_of(asked.lines, embedder, asked.ask)
        in_bulk = bulk(history.messages, embedder, Path(folder))
        try:
            with progress_bar("measuring", total) as bar:
                for size in sizes(history, embedder, plan, Path(folder), bar.advance):
                    found.append(size)
                    _write(asked, found, in_bulk, history.about, load)
        except KeyboardInterrupt as error:
            kept = f"what was measured is in {asked.out}" if asked.out and found else "nothing is kept"
            raise Interrupted(kept) from error
    if asked.plot:
        plot(found, asked.plot, asked.yardstick)
    _print(found)
    _print_bulk(in_bulk)
    if asked.yardstick:
        _print_ratios(found, asked.yardstick)
    pause = f"{asked.pause:g} s of rest in front of each question" if asked.pause else "one question behind the other"
    click.echo(f"{history.about}; {embedder.name}; {pause}; load average {_plain(load)} at the start")


def _write(asked: _Benchmark, found: Sequence[Size], in_bulk: Bulk, about: str, load: float | None) -> None:
    if asked.out is None:
        return
    made: dict[str, Any] = {
        "version": __version__,
        "history": about,
        "embedder": asked.embedder,
        "max_tokens": asked.max_tokens,
        "pause_seconds": asked.pause,
        "load_average": load,
        "slope": slope(found),
        "yardstick": asked.yardstick,
        "slope_of_ratio": slope_of_ratio(found),
        "bulk": asdict(in_bulk),
        "sizes": [asdict(one) for one in found],
    }
    asked.out.write_text(json_text(made) + "\n", encoding="utf-8")


def _print(found: Sequence[Size]) -> None:
    """Print contexts by their parts, taking in, and sizes."""
    click.echo("contexts, ms: p50 (p99)")
    rows = table(number_column("lines"), number_column("users"), *map(number_column, found[0].contexts), "numpy")
    for one in found:
        rows.add_row(*_size(one), *map(_percentiles, one.contexts.values()), _percentiles(one.numpy))
    print_rows(rows)
    stages = {name: None for one in found for name in one.work}
    click.echo("\nthe asking thread's own work in a context, ms, p50")
    rows = table(number_column("lines"), number_column("users"), *map(number_column, stages))
    for one in found:
        rows.add_row(*_size(one), *(f"{one.work.get(name, 0):.2f}" for name in stages))
    print_rows(rows)
    exponent = slope(found)
    if exponent is not None:
        click.echo(f"slope of a context's p50 over lines, log-log: {exponent:.2f}")
    click.echo("\none line appended, ms: p50 (p99)")
    rows = table(
        number_column("lines"), number_column("users"), *map(number_column, found[0].singles), "lines/s stored"
    )
    for one in found:
        rows.add_row(*_size(one), *map(_percentiles, one.singles.values()), f"{one.stored:,.0f}")
    print_rows(rows)
    click.echo("\na new process, and bytes a line")
    names = found[0].bytes_per_line
    rows = table(
        number_column("lines"), number_column("users"), number_column("first context, ms"), *map(number_column, names)
    )
    for one in found:
        rows.add_row(
            *_size(one), f"{1000 * one.cold_seconds:.0f}", *(f"{size:,.0f}" for size in one.bytes_per_line.values())
        )
    print_rows(rows)
    click.echo(_BYTES_NOTE)


def _print_bulk(one: Bulk) -> None:
    """Print what is left of the embedder's own speed."""
    click.echo(
        f"\n{one.lines:,} lines taken in with their vectors: {one.taken_in:,.0f} a second, {one.share:.0%} of the "
        f"{one.alone:,.0f} that the embedder alone makes of the same texts"
    )


def _print_ratios(found: Sequence[Size], yardstick: str) -> None:
    """Print how many times as long as the yardstick contexts take."""
    click.echo(f"\nhow many times one query's embedding by {yardstick}, measured in turns with the contexts")
    parts = list(_COMPARED)
    headings = [f"{part} {what}" for part in parts for what in _RATIOS]
    rows = table(number_column("lines"), number_column("users"), "it alone, ms", *map(number_column, headings))
    for one in found:
        ratios = (asdict(one.ratios[part]).values() for part in parts)
        cells = (f"{ratio:.2f}" for part in ratios for ratio in part)
        rows.add_row(*_size(one), _percentiles(one.yardstick), *cells)
    print_rows(rows)
    click.echo(_RATIOS_NOTE)
    exponent = slope_of_ratio(found)
    if exponent is not None:
        click.echo(f"slope of a context's p50 ratio over lines, log-log: {exponent:.2f}")


def _size(one: Size) -> tuple[str, str]:
    return f"{one.lines:,}", f"{one.users:,}"


def _percentiles(times: Times | None) -> str:
    return _NONE if times is None else f"{times.p50:.2f} ({times.p99:.2f})"


def _plain(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f}"
