"""The figures of a run as tables in Markdown.

python benchmarks/peers/table.py OUT.json [--at 2000]
"""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

BASELINE = "backscroll"
_NONE = "-"

Figures = Mapping[tuple[str, int], Mapping[str, Any]]  # system, budget -> its figures


def read_figures(path: Path) -> tuple[dict[str, Any], Figures]:
    """A run's file, and its figures by system and budget, in the order of the run."""
    made = json.loads(path.read_text("utf-8"))
    return made, {(one["preset"], one["max_tokens"]): one for one in made["figures"]}


def recall_table(found: Figures) -> str:
    """Evidence recall of every system within every budget, with its interval."""
    budgets = list(dict.fromkeys(budget for _, budget in found))
    systems = dict.fromkeys(system for system, _ in found)
    rows = [
        [system, *(_interval(found[system, budget]["evidence_recall"]) for budget in budgets)] for system in systems
    ]
    return _table(["evidence recall [95 %] within", *(f"{budget:,}" for budget in budgets)], rows)


def cost_table(found: Figures, ingest: Mapping[str, float], at: int) -> str:
    """What else there is to say within one budget: all evidence in, tokens, times."""
    headings = ["all in", "p", "tokens", "small talk", "ingest ms / line", "p50 ms", "p95 ms", "p50 ratio", "p95 ratio"]
    rows = [
        [system, *_costs(one, found.get((BASELINE, at)), ingest.get(system))]
        for (system, budget), one in found.items()
        if budget == at
    ]
    return _table([f"within {at:,}", *headings], rows)


def _costs(one: Mapping[str, Any], baseline: Mapping[str, Any] | None, ingest: float | None) -> Iterable[str]:
    times = ("p50_ms", "p95_ms")
    yield _share(one["all_evidence"]["mean"])
    yield _p(one["versus"])
    yield f"{one['tokens']:,.0f}"
    yield f"{one['small_talk_tokens']:,.0f}"
    yield _NONE if ingest is None else f"{ingest:.2f}"
    yield from (f"{one[name]:.1f}" for name in times)
    yield from (f"{one[name] / baseline[name]:.2f}" if baseline else _NONE for name in times)


def _p(versus: Mapping[str, Any] | None) -> str:
    if versus is None:
        return _NONE
    return "< .001" if versus["p"] < 0.001 else f"{versus['p']:.3f}".removeprefix("0")


def _interval(mean: Mapping[str, Any]) -> str:
    return f"{_share(mean['mean'])} [{_share(mean['low'])}, {_share(mean['high'])}]"


def _share(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [headings, ["---"] * len(headings), *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the figures of a run as Markdown.")
    parser.add_argument("figures", type=Path)
    parser.add_argument("--at", type=int, default=2000, help="the budget of the second table")
    asked = parser.parse_args()
    made, found = read_figures(asked.figures)
    print(recall_table(found))
    print()
    print(cost_table(found, made["ingest_ms_per_line"], asked.at))


if __name__ == "__main__":
    main()
