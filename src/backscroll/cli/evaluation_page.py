"""The figures of an evaluation as tables."""

from collections.abc import Mapping, Sequence

import click
from rich.table import Table

from backscroll.cli.screen import number_column, one_line, print_table, table
from backscroll.evaluation.figures import Figures, Mean, RankingFigures
from backscroll.evaluation.prefix_cache import CacheFigures
from backscroll.evaluation.rewriting import RewriteFigures, Rewriting

_NONE = "-"
_EXAMPLE_CHARACTERS = 120


def print_recall(found: Sequence[Figures], rankings: Sequence[RankingFigures], left_out: Mapping[str, int]) -> None:
    """Print what was recalled: the figures, what they cost, by category, by role, the rankings, the comparisons."""
    if any(one.evidence_recall for one in found):
        _print_evidence(found)
    _print_costs(found)
    _print_groups("category", found, [one.by_category for one in found])
    _print_groups("role of the evidence", found, [one.by_role for one in found])
    _print_comparisons(found)
    _print_rankings(rankings)
    for reason, count in left_out.items():
        click.echo(f"left out: {count:,} questions, {reason}")


def print_rewriting(measured: Rewriting) -> None:
    """Print the distances to the human rewrites, their average, and the worst examples."""
    rows = table(
        "contextualizer",
        "set",
        "kind",
        number_column("messages"),
        number_column("distance"),
        "95 %",
        *map(number_column, ("of none", "p", "left alone", "changed")),
    )
    for one in measured.figures:
        rows.add_row(*_rewrite_row(one))
    print_table(rows)
    for name, ratio in measured.averages.items():
        click.echo(f"{name}: {ratio:.3f} of the distance of doing nothing, averaged over the sets")
    for name, examples in measured.worst.items():
        for example in examples:
            click.echo(f"\n{name}, {example.rewrite.id}: {example.distance:.3f}")
            click.echo(f"  message  {one_line(example.rewrite.message, _EXAMPLE_CHARACTERS)}")
            click.echo(f"  query    {one_line(example.text, _EXAMPLE_CHARACTERS) or '(a vector)'}")
            click.echo(f"  human    {one_line(example.rewrite.references[0], _EXAMPLE_CHARACTERS)}")


def print_cache(found: Sequence[CacheFigures]) -> None:
    """Print what a prefix cache would serve, by preset and budget."""
    headings = ("requests", "refused", "tokens", "served", "in front", "served in front")
    rows = table("preset", number_column("max"), *map(number_column, headings))
    for one in found:
        rows.add_row(
            one.preset,
            f"{one.max_tokens:,}",
            f"{one.requests:,}",
            f"{one.refused:,}",
            f"{one.tokens:,.0f}",
            f"{one.served:.3f}",
            f"{one.front:,.0f}",
            f"{one.front_served:.3f}",
        )
    print_table(rows)


def _print_evidence(found: Sequence[Figures]) -> None:
    has_spans = any(one.spans_hit for one in found)
    headings = ["questions", "evidence recall", "95 %", "all in", "answer in", *(["spans hit"] if has_spans else [])]
    rows = table("preset", number_column("max"), *map(number_column, headings))
    for one in found:
        recall = one.evidence_recall
        rows.add_row(
            one.preset,
            f"{one.max_tokens:,}",
            f"{recall.questions:,}" if recall else _NONE,
            _mean(recall),
            _interval(recall),
            _mean(one.all_evidence),
            _counted(one.answer_in_context),
            *([_mean(one.spans_hit)] if has_spans else []),
        )
    _print_titled("Evidence in the context", rows)


def _print_costs(found: Sequence[Figures]) -> None:
    headings = ("tokens", "unanswerable", "small talk", "with exchange", "p50 ms", "p95 ms", "refused")
    rows = table("preset", number_column("max"), *map(number_column, headings))
    for one in found:
        tokens = (one.tokens, one.unanswerable_tokens, one.small_talk_tokens)
        rows.add_row(
            one.preset,
            f"{one.max_tokens:,}",
            *(_number(value, ",.0f") for value in tokens),
            _number(one.exchange_share, ".3f"),
            _number(one.p50_ms, ".1f"),
            _number(one.p95_ms, ".1f"),
            f"{one.refused:,}",
        )
    _print_titled("What it costs: mean tokens by the kind of the question, and the time of a context", rows)


def _print_groups(what: str, found: Sequence[Figures], groups: Sequence[Mapping[str, Mean]]) -> None:
    sizes = {name: mean.questions for group in groups for name, mean in sorted(group.items())}
    if not sizes:
        return
    headings = [f"{name} ({size:,})" for name, size in sizes.items()]
    rows = table("preset", number_column("max"), *map(number_column, headings))
    for one, group in zip(found, groups, strict=True):
        rows.add_row(one.preset, f"{one.max_tokens:,}", *(_mean(group.get(name)) for name in sizes))
    _print_titled(f"Evidence recall by {what}", rows)


def _print_comparisons(found: Sequence[Figures]) -> None:
    rows = table("preset", number_column("max"), "baseline", *map(number_column, ("difference", "95 %", "p")))
    for one in found:
        if one.versus:
            versus = one.versus
            interval = f"{versus.low:+.3f} to {versus.high:+.3f}"
            difference = f"{versus.difference:+.3f}"
            rows.add_row(one.preset, f"{one.max_tokens:,}", versus.baseline, difference, interval, f"{versus.p:.4f}")
    if rows.row_count:
        _print_titled("Evidence recall beside the baseline", rows)


def _print_rankings(rankings: Sequence[RankingFigures]) -> None:
    for reading in dict.fromkeys(one.relevant for one in rankings):
        chosen = [one for one in rankings if one.relevant == reading]
        rows = table("preset", *map(number_column, chosen[0].metrics))
        for one in chosen:
            rows.add_row(one.preset, *(_ranked(name, mean) for name, mean in one.metrics.items()))
        _print_titled(f"Ranking of threads by their best line; relevant: {reading}", rows)


def _print_titled(title: str, rows: Table) -> None:
    click.echo(f"{title}\n")
    print_table(rows)
    click.echo()


def _rewrite_row(one: RewriteFigures) -> list[str]:
    return [
        one.contextualizer,
        one.set,
        one.kind or "all",
        f"{one.distance.questions:,}",
        _mean(one.distance),
        _interval(one.distance),
        _number(one.ratio, ".3f"),
        f"{one.p:.4f}",
        _counted(one.left_alone),
        _counted(one.changed),
    ]


def _ranked(name: str, mean: Mean) -> str:
    return _counted(mean) if name.startswith("recall") else _mean(mean)


def _mean(mean: Mean | None) -> str:
    return f"{mean.mean:.3f}" if mean else _NONE


def _interval(mean: Mean | None) -> str:
    return f"{mean.low:.3f} to {mean.high:.3f}" if mean else _NONE


def _counted(mean: Mean | None) -> str:
    """A share with the counts that it is of."""
    return f"{mean.mean:.3f} ({mean.total:.0f}/{mean.questions:,})" if mean else _NONE


def _number(value: float | None, form: str) -> str:
    return _NONE if value is None else format(value, form)
