"""The weights of the ranking, fitted on some sets of questions and measured on the others.

    python benchmarks/weights.py ../shared/data/locomo ../shared/data/longmemeval_s:24 ../shared/data/qmsum:60 \
        [--samples 150] [--cache FOLDER] [--json FILE]

A set is the front of two names, `SET.lines.jsonl.gz` and `SET.questions.jsonl.gz`; a number behind it takes only its
first questions. Candidates are searched for once a
question, as in a context; then weights are drawn by chance around those that are shipped, and the lines that each
ranking puts first fill budgets of 1,000, 2,000 and 8,000 tokens. What is fitted is the mean of the three over the sets
that it may see. The rows:

    shipped             as they are
    without SET         fitted on the other sets, all of their questions
    folds of SET        fitted on four fifths of the set's conversations and measured on the last, five times
    on all              fitted on all sets, measured on them: the ceiling of this search, not a result

Evidence is counted as in `backscroll evaluate recall`, but for passages and for what stands around the lines: the
figures compare rankings, and are no contexts'.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backscroll import api
from backscroll.cli.screen import progress_bar
from backscroll.dates import days_of
from backscroll.evaluation.datasets import Conversation, Question
from backscroll.evaluation.run import read_data
from backscroll.evaluation.vector_cache import CachedEmbedder, VectorCache
from backscroll.recall.search import WEIGHTS, Weights, candidates, rank
from backscroll.terms import terms
from backscroll.types import Candidates, Query, Scope
from backscroll.wiring import shared_embedder

BUDGETS = (1000, 2000, 8000)
FOLDS = 5
HEAD_TOKENS = 60  # of the question, the fence and its note


@dataclass(frozen=True, slots=True)
class Case:
    """A question with its candidates.

    Attributes:
        evidence: (candidates, e) bool: which lines belong to which piece of evidence.
        sizes: tokens of each piece that is a span of lines, of which half are enough; 1 line each otherwise.
        missing: pieces without a candidate: they are never found.
    """

    conversation: str
    found: Candidates
    query: Query
    speakers: frozenset[str]
    evidence: NDArray[np.bool_]
    sizes: NDArray[np.int64]
    missing: int
    is_any_enough: bool

    def recall(self, weights: Weights) -> float:
        """The share of the evidence that is in, mean of the budgets."""
        ranked = rank(self.found, self.query, self.speakers, weights).order
        costs = self.found.tokens[ranked].astype(np.int64)
        return float(np.mean([self._share(ranked, costs, budget - HEAD_TOKENS) for budget in BUDGETS]))

    def _share(self, ranked: NDArray[np.int64], costs: NDArray[np.int64], left: int) -> float:
        taken = _packed(costs, left)
        tokens = self.found.tokens[ranked[taken]]
        held = (self.evidence[ranked[taken]] * tokens[:, None]).sum(0)
        hits = held * 2 >= self.sizes
        if self.is_any_enough:
            return float(hits.any())
        return float(hits.sum() / (len(hits) + self.missing))


def _packed(costs: NDArray[np.int64], left: int) -> NDArray[np.bool_]:
    """Which lines are in: best first, those that do not fit passed over."""
    taken = np.zeros(len(costs), np.bool_)
    start = 0
    while start < len(costs):
        total = np.cumsum(costs[start:])
        count = int(np.searchsorted(total, left, "right"))
        taken[start : start + count] = True
        left -= int(total[count - 1]) if count else 0
        fitting = np.flatnonzero(costs[start + count :] <= left)
        if not len(fitting):
            return taken
        start += count + int(fitting[0])
    return taken


def cases(conversation: Conversation, questions: Sequence[Question], embedder: CachedEmbedder) -> list[Case]:
    """The questions of a conversation, each searched for once."""
    with api.open(":memory:", embedder=embedder) as memory:
        row_of = {}
        for name, messages in conversation.threads.items():
            thread = memory.thread(name, conversation.name)
            thread.append(messages, embed=False)
            row_of.update({line.id: line.row for line in thread.lines()})
        memory.embed()
        asked = [one for one in questions if one.kind == "answerable" and (one.evidence or one.spans)]
        return [_case(memory.store, conversation, one, embedder, row_of) for one in asked]


def _case(store: Any, conversation: Conversation, one: Question, embedder: CachedEmbedder, row_of: Mapping) -> Case:
    now = date.fromisoformat(one.asked_at[:10]) if one.asked_at else None
    words = tuple(dict.fromkeys(terms(one.text)))
    query = Query(one.text, embedder.embed([one.text])[0], words, tuple(days_of(one.text, now)))
    scope = Scope(conversation.name, roles=frozenset({"user", "assistant", "tool"}))
    found, speakers = candidates(store, scope, query)
    if one.spans:
        at = conversation.id_at
        pieces = [[row_of[at[i]] for i in range(a, b + 1) if i in at] for a, b in one.spans]
        costs = {line.row: line.tokens for piece in pieces for line in store.fetch(piece)}
        sizes = [sum(costs.get(row, 0) for row in piece) for piece in pieces]
    else:
        pieces = [[row_of[name]] for name in one.evidence]
        sizes = [1] * len(pieces)
    evidence = np.stack([np.isin(found.row, piece) for piece in pieces], axis=1)
    there = evidence.any(axis=0)
    return Case(
        conversation.name,
        found,
        query,
        speakers,
        evidence[:, there],
        np.array(sizes, np.int64)[there],
        int((~there).sum()),
        one.is_any_enough,
    )


def drawn(count: int) -> list[Weights]:
    """Weights by chance around the shipped ones, which are the first."""
    chance = np.random.default_rng(1)
    made = [WEIGHTS]
    for _ in range(count):
        dense = float(chance.uniform(0.3, 0.7))
        near = float(chance.uniform(0, 0.4))
        made.append(
            Weights(
                dense=dense,
                lexical=1 - dense,
                neighbors=(near, near * float(chance.uniform(0, 0.8))),
                speaker=float(chance.uniform(0, 0.3)),
                days=float(chance.uniform(0, 0.3)),
                long_tokens=int(chance.choice([32, 64, 96, 128])),
                long_exponent=float(chance.uniform(0.1, 0.6)),
            )
        )
    return made


def table(names: Sequence[str], recalls: Mapping[str, NDArray[np.float64]], of: Mapping[str, Sequence[Case]]) -> list:
    """The rows: a name, the figure on each set, the weights where there is one set of them."""

    def best(given: Sequence[tuple[str, NDArray[np.bool_]]]) -> int:
        return int(np.argmax(np.mean([recalls[name][:, mask].mean(axis=1) for name, mask in given], axis=0)))

    every = {name: np.ones(len(of[name]), np.bool_) for name in names}
    rows = [("shipped", {name: recalls[name][0].mean() for name in names}, 0)]
    for left_out in names if len(names) > 1 else ():
        found = best([(name, every[name]) for name in names if name != left_out])
        rows.append((f"without {left_out}", {name: recalls[name][found].mean() for name in names}, found))
    for name in names:
        groups = sorted({case.conversation for case in of[name]})
        fold_of = np.array([groups.index(case.conversation) % FOLDS for case in of[name]])
        folds = [fold_of == number for number in sorted(set(fold_of.tolist()))]
        if len(folds) > 1:
            measured = [recalls[name][best([(name, ~fold)])][fold].sum() for fold in folds]
            rows.append((f"folds of {name}", {name: sum(measured) / len(fold_of)}, None))
    found = best(list(every.items()))
    rows.append(("on all", {name: recalls[name][found].mean() for name in names}, found))
    return rows


def _set(given: str) -> tuple[Path, int | None]:
    place, _, limit = given.partition(":")
    return Path(place), int(limit) if limit else None


def main() -> None:
    """Search once, rank many times, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=_set, metavar="SET[:N]", help="the front of the files' names")
    parser.add_argument("--samples", type=int, default=150, help="how many weights are drawn")
    parser.add_argument("--cache", type=Path, default=Path("build/vectors"), help="where vectors are kept")
    parser.add_argument("--json", type=Path, help="write the figures and the weights to a file")
    given = parser.parse_args()
    embedder = CachedEmbedder(shared_embedder("local"), VectorCache(given.cache))
    tried = drawn(given.samples)
    of, recalls = {}, {}
    for place, limit in given.sets:
        lines, questions = (place.with_name(f"{place.name}.{kind}.jsonl.gz") for kind in ("lines", "questions"))
        data = read_data(lines, questions, limit)
        with progress_bar(f"searching {place.name}", len(data.by_conversation)) as bar:
            found: list[Case] = []
            for name, asked in data.by_conversation.items():
                found += cases(data.conversations[name], asked, embedder)
                bar.advance(1)
        of[place.name] = found
        with progress_bar(f"ranking {place.name}", len(tried)) as bar:
            recalls[place.name] = np.empty((len(tried), len(found)))
            for number, weights in enumerate(tried):
                recalls[place.name][number] = [case.recall(weights) for case in found]
                bar.advance(1)
    names = [place.name for place, _ in given.sets]
    print(f"{'':<24}" + "".join(f"{name:>16}" for name in names))
    rows = table(names, recalls, of)
    for title, figures, _ in rows:
        print(f"{title:<24}" + "".join(f"{figures[name]:>16.3f}" if name in figures else " " * 16 for name in names))
    print("questions               " + "".join(f"{len(of[name]):>16}" for name in names))
    if given.json:
        told = [
            {"row": title, **figures, "weights": None if number is None else asdict(tried[number])}
            for title, figures, number in rows
        ]
        given.json.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
