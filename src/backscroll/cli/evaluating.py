"""`backscroll evaluate recall`, `rewrite` and `cache`: measured on files, without a language model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from backscroll import __version__
from backscroll.cli.evaluation_page import print_cache, print_recall, print_rewriting
from backscroll.cli.options import base_url_option, gathered, json_text, llm_name, llm_option
from backscroll.cli.outcome import Interrupted
from backscroll.cli.screen import progress_bar
from backscroll.evaluation.contextualizers import NOTHING
from backscroll.evaluation.datasets import read_conversations, read_rewrites
from backscroll.evaluation.figures import figures, ranking_figures
from backscroll.evaluation.plot import need_plot, plot
from backscroll.evaluation.prefix_cache import measure_cache, questions_in
from backscroll.evaluation.replay import Plan
from backscroll.evaluation.results import Results
from backscroll.evaluation.rewriting import measure_rewriting
from backscroll.evaluation.run import identity, read_data, run
from backscroll.evaluation.vector_cache import CachedEmbedder, VectorCache
from backscroll.settings import BY_MODEL, CONTEXTUALIZER_NAMES, PRESETS, ContextualizerName
from backscroll.wiring import DEFAULT_EMBEDDER, Rewriter, cache_folder, open_rewriter, shared_embedder

_DEFAULT_BUDGETS = "500,1000,2000,4000,8000"
_RESULTS_ENDING = ".results.jsonl"

FILE = click.Path(path_type=Path)


Callback = Callable[[click.Context, click.Parameter, str], Any]


def _names(known: Sequence[str]) -> Callback:
    """What reads names with commas between them, each once, of those that there are."""

    def read(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(value.split(",")))
        for name in names:
            if name not in known:
                raise click.BadParameter(f"{name!r} is none of {', '.join(known)}", ctx, param)
        return names

    return read


def _budgets(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Whole numbers above 0 with commas between them, each once."""
    numbers = value.split(",")
    if not all(one.isdecimal() and int(one) > 0 for one in numbers):
        raise click.BadParameter(f"{value!r} is no list of whole numbers above 0, such as 1000,2000", ctx, param)
    return tuple(dict.fromkeys(map(int, numbers)))


embedder_option = click.option(
    "--embedder", metavar="NAME", default=DEFAULT_EMBEDDER, show_default=True, help="hashing, remote:MODEL@URL, …"
)
cache_option = click.option(
    "--cache", type=FILE, metavar="FOLDER", help="Where vectors are kept for the next run. [default: the user's cache]"
)
limit_option = click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Take only the first N of the file."
)
out_option = click.option("--json", "out", type=FILE, metavar="FILE", help="Write all figures to a file.")


@dataclass(frozen=True, slots=True)
class _Recall:
    """The options of `backscroll evaluate recall`."""

    lines: Path
    questions: Path
    preset: tuple[str, ...]
    max_tokens: tuple[int, ...]
    same_thread: bool
    contextualizer: ContextualizerName | None
    baseline: str | None
    embedder: str
    cache: Path | None
    limit: int | None
    out: Path | None
    plot: Path | None


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """The options of `backscroll evaluate rewrite`."""

    rewrites: tuple[Path, ...]
    contextualizer: tuple[str, ...]
    worst: int
    llm: str | None
    base_url: str | None
    prompts: tuple[str, ...]
    embedder: str
    cache: Path | None
    limit: int | None
    out: Path | None


@click.group(epilog="Example: backscroll evaluate recall --help")
def evaluate() -> None:
    """Measure recall, rewriting, or what a prefix cache serves, on files; no language model is needed."""


@evaluate.command(
    epilog="Example: backscroll evaluate recall --lines chat.lines.jsonl.gz --questions chat.questions.jsonl.gz"
)
@click.option("--lines", type=FILE, required=True, metavar="FILE", help="Conversations, one line a message.")
@click.option("--questions", type=FILE, required=True, metavar="FILE", help="Questions with their evidence.")
@click.option(
    "--preset",
    metavar="A,B",
    callback=_names(list(PRESETS)),
    default="backscroll",
    show_default=True,
    help="Who is measured.",
)
@click.option(
    "--max-tokens", metavar="N,M", callback=_budgets, default=_DEFAULT_BUDGETS, show_default=True, help="The budgets."
)
@click.option("--same-thread", is_flag=True, help="Ask at the end of the newest thread, not in a new one.")
@click.option("--contextualizer", type=click.Choice(CONTEXTUALIZER_NAMES), help="For each preset. [default: its own]")
@click.option("--baseline", type=click.Choice(list(PRESETS)), help="Test the difference to this preset.")
@embedder_option
@cache_option
@limit_option
@out_option
@click.option("--plot", type=FILE, metavar="FILE", help="Draw recall against tokens; needs the extra plot.")
@gathered(_Recall)
def recall(asked: _Recall) -> None:
    """Are the lines with the answer in the context?

    Every conversation is replayed, every question asked by each preset within each budget. With --json FILE.json the
    result of each question is kept in FILE.results.jsonl, and the same command goes on where it was interrupted.
    """
    if asked.plot:
        need_plot()
    presets = asked.preset if asked.baseline in (None, *asked.preset) else (*asked.preset, str(asked.baseline))
    plan = Plan(presets, asked.max_tokens, asked.same_thread, asked.contextualizer)
    data = read_data(asked.lines, asked.questions, asked.limit)
    with _cached(asked.embedder, asked.cache) as embedder:
        named = identity(asked.lines, asked.questions, plan, embedder.name)
        kept = asked.out.with_suffix(_RESULTS_ENDING) if asked.out else None
        results = Results(kept, named, data.keys())
        with _resumable(kept), progress_bar("asking", len(data.keys()), nouns="questions") as bar:
            measured = run(data, plan, embedder, results, bar.advance)
    found = figures(measured, plan, asked.baseline)
    rankings = ranking_figures(measured, plan)
    if asked.out:
        made = {
            "version": __version__,
            "run": named,
            "left_out": dict(data.left_out),
            "figures": [asdict(one) for one in found],
            "rankings": [asdict(one) for one in rankings],
        }
        _write(asked.out, made)
    if asked.plot:
        plot(found, asked.plot)
    print_recall(found, rankings, data.left_out)
    asking = [preset for preset in presets if (asked.contextualizer or PRESETS[preset].contextualizer) in BY_MODEL]
    if asking:
        click.echo(f"no language model was asked: the queries of {', '.join(asking)} are those of 'trained'")


@evaluate.command(epilog="Example: backscroll evaluate rewrite --rewrites cast.rewrites.jsonl.gz")
@click.option(
    "--rewrites", type=FILE, required=True, multiple=True, metavar="FILE", help="Messages with human rewrites; several."
)
@click.option(
    "--contextualizer",
    metavar="A,B",
    callback=_names(CONTEXTUALIZER_NAMES),
    default=NOTHING,
    show_default=True,
    help="Who is measured.",
)
@click.option("--worst", type=click.IntRange(min=0), default=10, show_default=True, help="How many examples are shown.")
@llm_option
@base_url_option
@click.option("--prompt", "prompts", multiple=True, metavar="NAME=FILE", help="A file in place of a shipped prompt.")
@embedder_option
@cache_option
@limit_option
@out_option
@gathered(_Rewrite)
def rewrite(asked: _Rewrite) -> None:
    """How far are queries from human rewrites?

    Each message is made a query of by each contextualizer; the distance is 1 - cosine. Each file is a set of its own;
    --limit counts in each of them. rewrite, multi and hyde ask the language model of --llm.
    """
    with _rewriter(asked) as rewriter:
        found = [one for path in asked.rewrites for one in read_rewrites(path)[: asked.limit]]
        ways = len({NOTHING, *asked.contextualizer})
        with (
            _cached(asked.embedder, asked.cache) as cached,
            progress_bar("rewriting", ways * len(found), nouns="messages") as bar,
        ):
            measured = measure_rewriting(found, asked.contextualizer, cached, bar.advance, asked.worst, rewriter)
    by = {name: rewriter.by(name) for name in asked.contextualizer if name in BY_MODEL} if rewriter else {}
    if asked.out:
        _write(asked.out, {"version": __version__, "embedder": cached.name, "by_model": by, **asdict(measured)})
    print_rewriting(measured)
    for told in by.values():
        click.echo(told)


@contextmanager
def _rewriter(asked: _Rewrite) -> Iterator[Rewriter | None]:
    """Who asks the language model, where one of the contextualizers does. Raises: UsageError, LLMError."""
    needing = [name for name in asked.contextualizer if name in BY_MODEL]
    llm = llm_name(asked.llm, asked.base_url)
    if not needing:
        yield None
        return
    if llm is None:
        raise click.UsageError(f"{needing[0]} asks a language model: name one by --llm")
    if not all("=" in given for given in asked.prompts):
        raise click.UsageError("--prompt is NAME=FILE, such as rewrite=mine.txt")
    rewriter = open_rewriter(llm, {name: path for name, _, path in (one.partition("=") for one in asked.prompts)})
    try:
        yield rewriter
    finally:
        rewriter.close()


@evaluate.command(epilog="Example: backscroll evaluate cache --lines chat.lines.jsonl.gz --max-tokens 8000 --limit 10")
@click.option("--lines", type=FILE, required=True, metavar="FILE", help="Conversations, one line a message.")
@click.option(
    "--preset",
    metavar="A,B",
    callback=_names(list(PRESETS)),
    default="backscroll,sliding_window",
    show_default=True,
    help="Who is measured.",
)
@click.option("--max-tokens", metavar="N,M", callback=_budgets, default="8000", show_default=True, help="The budgets.")
@embedder_option
@cache_option
@limit_option
@out_option
def cache(  # each is an option of its own
    lines: Path,
    preset: tuple[str, ...],
    max_tokens: tuple[int, ...],
    embedder: str,
    cache: Path | None,
    limit: int | None,
    out: Path | None,
) -> None:
    """What share of the tokens would a provider's prefix cache serve?

    Every conversation is replayed as one long chat, a context made before each message of a user. Served is what a
    request begins with as the one before it did: of all its tokens, and of those in front of what is recalled.
    --limit counts conversations.
    """
    chats = list(read_conversations(lines).values())[:limit]
    requests = questions_in(chats) * len(preset) * len(max_tokens)
    with _cached(embedder, cache) as cached, progress_bar("replaying", requests, nouns="requests") as bar:
        found = measure_cache(chats, preset, max_tokens, cached, bar.advance)
    if out:
        figures_of_all = [asdict(one) for one in found]
        _write(
            out, {"version": __version__, "conversations": len(chats), "embedder": embedder, "cache": figures_of_all}
        )
    print_cache(found)


@contextmanager
def _cached(name: str, folder: Path | None) -> Iterator[CachedEmbedder]:
    """An embedder whose vectors are kept. Raises: StoreError, EmbedderError, NotFoundError."""
    embedder = shared_embedder(name)
    cache = VectorCache(folder or cache_folder())
    try:
        yield CachedEmbedder(embedder, cache)
    finally:
        cache.close()
        embedder.close()


@contextmanager
def _resumable(kept: Path | None) -> Iterator[None]:
    """Say of Ctrl-C what is kept. Raises: Interrupted."""
    try:
        yield
    except KeyboardInterrupt as error:
        told = "run the same command again to go on" if kept else "without --json only the lines' vectors are kept"
        raise Interrupted(told) from error


def _write(path: Path, value: Any) -> None:
    path.write_text(json_text(value) + "\n", encoding="utf-8")
    click.echo(f"all figures are in {path}", err=True)
