"""Train the weights of the trained contextualizer, and measure it.

    python scripts/train_contextualizer.py [--data ../shared/data] [--json OUT] [--measure-only]

Reads `<set>.rewrites.jsonl.gz` (one JSON a line: history, message, rewrite, conversation). Trains on CAsT, iKAT, GECOR
and CQR, whose licenses allow it (MIT, MIT, CC BY 4.0, MIT-0); CANARD and QReCC, where they are there, only measure. A
set that trains is measured on three folds held out by conversation. Seeded; numpy only; some minutes on two cores,
most of them to embed the texts.

What is learned is the mixture whose vector lies closest to that of the human rewrite: for each choice (see
`backscroll.contextualize.resolve`) a share, with the loss

    L = - cos(sum of share x vector, rewrite) / d0  +  KL(softmax(cos(vector, rewrite) / d0 / .1) || shares)

d0 being the set's mean distance between message and rewrite. Beside the sets' own examples it learns from ones made of
them: a title in the place of the lines that name the topic; answers cut to their first sentence, or missing; rewrites,
which stand alone, as messages, in their own conversation and in others.
"""

import argparse
import gzip
import hashlib
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from backscroll.contextualize import Contextualized, Said, combine, contextualize
from backscroll.contextualize.phrases import relevant
from backscroll.contextualize.resolve import choices, trained
from backscroll.contextualize.salience import see
from backscroll.contextualize.scoring import MAX_DEVIATIONS, WEIGHTS, Weights, table
from backscroll.embedders import open_embedder

TRAINING = {"cast": 1.0, "ikat": 1.0, "gecor": 0.4, "cqr_kvret": 0.3}  # share in the loss: open talk before bookings
MEASURING = ("canard", "qrecc")
HEADLINE = ("cast", "qrecc", "canard", "ikat")
KINDS = {"": 1.0, "title": 0.7, "short": 0.5, "unanswered": 0.4, "alone": 0.5, "foreign": 0.6}
FOLDS = 3
NETWORKS, HIDDEN, EPOCHS, BATCH = 8, 24, 20, 64
RATE, DECAY, DROPPED, SHARPNESS, GATE_DECAY = 3e-3, 2e-2, 0.1, 0.1, 1e-2


@dataclass(frozen=True)
class Example:
    """A message with its history and its human rewrite; `kind` says what was made of it, empty for the set's own."""

    name: str
    conversation: str
    history: tuple[Said, ...]
    message: str
    rewrite: str
    kind: str = ""

    @property
    def is_alone(self) -> bool:
        """Whether the human left the message as it is."""
        return self.message.strip() == self.rewrite.strip()

    @property
    def fold(self) -> int:
        """By conversation; iKAT has several on one topic."""
        topic = re.sub(r"^(ikat-\d+-\w+-\d+).*", r"\1", self.conversation)
        return int(hashlib.sha256(f"{self.name} {topic}".encode()).hexdigest(), 16) % FOLDS


@dataclass(frozen=True)
class Prepared:
    """An example with its choices: named numbers, their cosines to the rewrite, and their cosines to one another."""

    example: Example
    texts: list[str]
    added: list[str]
    numbers: list[Mapping[str, float]]
    shared: Mapping[str, float]
    cosines: np.ndarray
    between: np.ndarray


@dataclass
class Embedding:
    """Vectors by text, each made once."""

    known: dict[str, np.ndarray] = field(default_factory=dict)
    embedder: object = None

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of the texts, (n, d) unit rows."""
        missing = [text for text in dict.fromkeys(texts) if text not in self.known]
        if missing:
            self.embedder = self.embedder or open_embedder("local")
            self.known.update(zip(missing, self.embedder.embed(missing), strict=True))
        return np.stack([self.known[text] for text in texts])


# The examples ---------------------------------------------------------------------------------------------------------


def read(folder: Path, name: str) -> list[Example]:
    with gzip.open(folder / f"{name}.rewrites.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [
        Example(
            name,
            str(row["conversation"]),
            tuple(Said(said["role"], said["text"]) for said in row["history"]),
            row["message"],
            row["rewrite"],
        )
        for row in rows
    ]


def made_of(prepared: Sequence[Prepared], chance: random.Random) -> list[Example]:
    """More examples, made of those of one set."""
    own = [one.example for one in prepared]
    made = _with_titles(prepared, chance)
    for example in own:
        if example.history:
            made.extend(_cut(example, chance))
            if chance.random() < (0.6 if TRAINING[example.name] == 1 else 0.3):
                made.append(replace(example, message=example.rewrite, kind="alone"))
        if chance.random() < (0.35 if TRAINING[example.name] == 1 else 0.15):
            other = chance.choice([one for one in own if one.history and one.conversation != example.conversation])
            made.append(replace(example, message=example.rewrite, history=other.history, kind="foreign"))
    return made


def _cut(example: Example, chance: random.Random) -> list[Example]:
    answers = [said for said in example.history if said.role == "assistant"]
    if not answers:
        return []
    made = []
    if any(len(said.text) > 200 for said in answers):
        history = [
            Said(said.role, re.split(r"(?<=[.!?])\s", said.text)[0][:200]) if said.role == "assistant" else said
            for said in example.history
        ]
        made.append(replace(example, history=tuple(history), kind="short"))
    if chance.random() < 0.5:
        asked = tuple(said for said in example.history if said.role != "assistant")
        made.append(replace(example, history=asked, kind="unanswered"))
    return made


def _with_titles(prepared: Sequence[Prepared], chance: random.Random) -> list[Example]:
    """The phrase that helps most over a whole conversation as its title, in front of it or instead of what names it."""
    helped: dict[str, Counter[str]] = {}
    for one in prepared:
        gains = helped.setdefault(one.example.conversation, Counter())
        for added, cosine in zip(one.added, one.cosines, strict=True):
            if added and len(added.split()) <= 6 and cosine > one.cosines[0] + 0.05:
                gains[added.lower()] += float(cosine - one.cosines[0])
    made = []
    for one in prepared:
        best = [phrase for phrase, _ in helped[one.example.conversation].most_common(3)]
        if not best or one.example.name == "cqr_kvret":
            continue
        second = chance.choice(best[1:]) if len(best) > 1 else "overview"
        title = best[0].title() + (f". {second.capitalize()}" if chance.random() < 0.85 else "")
        history = list(one.example.history)
        if chance.random() < 0.5:
            history = [said for said in history[1:] if best[0].split()[-1] not in said.text.lower()]
        elif chance.random() < 0.4:
            history = history[-2:] if chance.random() < 0.5 else []
        made.append(replace(one.example, history=(Said("system", title), *history), kind="title"))
    return made


def prepare(examples: Iterable[Example], embed: Embedding) -> list[Prepared]:
    """The choices of each example with their vectors; what has nothing to choose is left out."""
    found = []
    for example in examples:
        lines = relevant(example.history)
        scene = see(example.message, lines)
        those = choices(example.message, lines, scene)
        if len(those) > 1:
            found.append((example, scene.message, those))
    embed([one.text for _, _, those in found for one in those])
    prepared = []
    for example, shared, those in found:
        vectors, target = embed([one.text for one in those]), embed([example.rewrite])[0]
        texts, added = [one.text for one in those], [one.added for one in those]
        numbers = [one.numbers for one in those]
        prepared.append(Prepared(example, texts, added, numbers, shared, vectors @ target, vectors @ vectors.T))
    return prepared


# Training -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Padded:
    """All examples as arrays of one width: numbers (n, c, d), cosines (n, c), between (n, c, c), is_choice (n, c)."""

    numbers: np.ndarray
    cosines: np.ndarray
    between: np.ndarray
    is_choice: np.ndarray
    weight: np.ndarray  # (n,)


def train(prepared: Sequence[Prepared]) -> Weights:
    """Networks and gate of these examples."""
    own = dict.fromkeys(name for one in prepared[:200] for row in one.numbers for name in row)
    gate_names = tuple(prepared[0].shared)
    names = (*own, *gate_names)
    rows = np.concatenate([table(one.numbers, one.shared, names) for one in prepared])
    mean, scale = rows.mean(axis=0), rows.std(axis=0) + 0.01
    padded = pad(prepared, names, mean, scale)
    networks = [network(padded, seed) for seed in range(NETWORKS)]
    hidden, bias, out, direct = zip(*networks, strict=True)
    return Weights(
        names, gate_names, mean, scale,
        np.concatenate(hidden, axis=1), np.concatenate(bias), np.concatenate(out) / NETWORKS, np.mean(direct, axis=0),
        *gate(prepared, gate_names),
    )  # fmt: skip


def distances(prepared: Sequence[Prepared]) -> dict[str, float]:
    """By set, the mean distance between message and rewrite."""
    own = [one for one in prepared if not one.example.kind]
    return {
        name: float(np.mean([1 - one.cosines[0] for one in own if one.example.name == name]))
        for name in {one.example.name for one in own}
    }


def pad(prepared: Sequence[Prepared], names: Sequence[str], mean: np.ndarray, scale: np.ndarray) -> Padded:
    count, most = len(prepared), max(len(one.texts) for one in prepared)
    numbers = np.zeros((count, most, len(names)), np.float32)
    cosines, between = np.zeros((count, most), np.float32), np.zeros((count, most, most), np.float32)
    is_choice = np.zeros((count, most), bool)
    weight = np.zeros(count, np.float32)
    base = distances(prepared)
    sizes = Counter(one.example.name for one in prepared if not one.example.kind)
    for place, one in enumerate(prepared):
        n, example = len(one.texts), one.example
        scaled = (table(one.numbers, one.shared, names) - mean) / scale
        numbers[place, :n] = np.clip(scaled, -MAX_DEVIATIONS, MAX_DEVIATIONS)
        cosines[place, :n] = one.cosines / base[example.name]
        between[place, :n, :n] = one.between
        is_choice[place, :n] = True
        weight[place] = KINDS[example.kind] * TRAINING[example.name] * 667 / sizes[example.name]
    return Padded(numbers, cosines, between, is_choice, weight)


def softmax(scores: np.ndarray, is_choice: np.ndarray) -> np.ndarray:
    raised = np.exp(np.where(is_choice, scores - scores.max(axis=1, keepdims=True), -np.inf))
    return raised / raised.sum(axis=1, keepdims=True)


def network(data: Padded, seed: int) -> tuple[np.ndarray, ...]:
    """One network, by Adam with a rate that falls to 0."""
    chance = np.random.default_rng(seed)
    count, _, size = data.numbers.shape
    shapes = ((size, HIDDEN, size**-0.5), (1, HIDDEN, 0), (HIDDEN, 1, 0.1 * HIDDEN**-0.5), (size, 1, 0.01))
    parts = [chance.normal(0, spread, (n, m)).astype(np.float32) for n, m, spread in shapes]
    first, second = [np.zeros_like(part) for part in parts], [np.zeros_like(part) for part in parts]
    target = softmax(np.where(data.is_choice, data.cosines / SHARPNESS, -1e9), data.is_choice)
    steps, step = EPOCHS * (count // BATCH), 0
    for _ in range(EPOCHS):
        order = chance.permutation(count)
        for start in range(0, count - BATCH + 1, BATCH):
            step += 1
            batch = order[start : start + BATCH]
            kept = (chance.random((1, size)) >= DROPPED).astype(np.float32)
            slopes = gradient(parts, data, target, batch, kept)
            for part, one, two, slope in zip(parts, first, second, slopes, strict=True):
                slope += DECAY * part
                one += 0.1 * (slope - one)
                two += 0.01 * (slope * slope - two)
                rate = RATE * (1 - step / (steps + 1))
                part -= rate * (one / (1 - 0.9**step)) / (np.sqrt(two / (1 - 0.99**step)) + 1e-6)
    hidden, bias, out, direct = parts
    return hidden, bias[0], out[:, 0], direct[:, 0]


def gradient(
    parts: Sequence[np.ndarray], data: Padded, target: np.ndarray, batch: np.ndarray, kept: np.ndarray
) -> list[np.ndarray]:
    """The slope of the loss in the networks' parts."""
    hidden, bias, out, direct = parts
    is_choice = data.is_choice[batch]
    x = data.numbers[batch][is_choice] * kept  # (n, d)
    active = np.tanh(x @ hidden + bias)
    scores = np.full(is_choice.shape, -1e9, np.float32)
    scores[is_choice] = (active @ out + x @ direct)[:, 0]
    share = softmax(scores, is_choice)
    cosines, pulled = data.cosines[batch], (data.between[batch] @ share[:, :, None])[:, :, 0]
    squared = (share * pulled).sum(axis=1, keepdims=True)  # squared length of the mixture
    along = (share * cosines).sum(axis=1, keepdims=True)
    rise = cosines / np.sqrt(squared) - along * pulled / squared**1.5  # of the mixture's cosine with each share
    slope = -4 * share * (rise - (share * rise).sum(axis=1, keepdims=True)) + (share - target[batch])
    slope = (slope * data.weight[batch][:, None] / len(batch))[is_choice][:, None].astype(np.float32)
    back = slope @ out.T * (1 - active * active)
    return [x.T @ back, back.sum(axis=0, keepdims=True), active.T @ slope, x.T @ slope]


def gate(prepared: Sequence[Prepared], names: Sequence[str]) -> tuple[np.ndarray, ...]:
    """A logistic regression on whether the message stands alone, by Newton's method.

    A message that does not counts by how much is lost if it is left alone.
    """
    chosen = [one for one in prepared if one.example.kind in ("", "short", "alone", "foreign")]
    base = distances(prepared)
    x = np.concatenate([table([{}], one.shared, names) for one in chosen])
    mean, scale = x.mean(axis=0), x.std(axis=0) + 0.01
    scaled = np.clip((x - mean) / scale, -MAX_DEVIATIONS, MAX_DEVIATIONS)
    x = np.column_stack([scaled, np.ones(len(chosen))])
    y = np.array([one.example.is_alone for one in chosen], float)
    lost = np.array([min(2.0, (1 - one.cosines[0]) / base[one.example.name]) for one in chosen])
    weight = np.array([KINDS[one.example.kind] * TRAINING[one.example.name] for one in chosen]) * np.where(y, 1, lost)
    weight /= weight.sum()
    found = np.zeros(x.shape[1])
    ridge = np.diag([*[GATE_DECAY] * len(names), 1e-9])
    for _ in range(12):
        p = 1 / (1 + np.exp(-x @ found))
        curvature = (x * (weight * p * (1 - p))[:, None]).T @ x + ridge
        found += np.linalg.solve(curvature, x.T @ (weight * (y - p)) - ridge @ found)
    return mean, scale, found[:-1].astype(np.float32), np.float32(found[-1])


def save(weights: Weights, path: Path) -> None:
    arrays = {name: getattr(weights, name) for name in Weights.__slots__}
    for name in ("names", "gate_names"):
        arrays[name] = np.array("\n".join(arrays[name]))
    halved = {"hidden", "out", "direct"}
    np.savez_compressed(
        path, **{name: value.astype(np.float16) if name in halved else value for name, value in arrays.items()}
    )


# Measuring ------------------------------------------------------------------------------------------------------------


def measure(examples: Sequence[Example], made: Sequence[Contextualized], embed: Embedding) -> dict[str, float]:
    """How far the queries are from the human rewrites, as a share of how far the messages are."""
    embed([part.text for one in made for part in one.parts])
    embed([text for one in examples for text in (one.message, one.rewrite)])
    rewrites = embed([one.rewrite for one in examples])
    plain = 1 - (embed([one.message for one in examples]) * rewrites).sum(axis=1)
    queries = np.stack([combine(embed([part.text for part in one.parts]), one) for one in made])
    texts = 1 - (embed([one.text for one in made]) * rewrites).sum(axis=1)
    reached = 1 - (queries * rewrites).sum(axis=1)
    talking = [place for place, one in enumerate(examples) if one.history]
    alone = [not made[place].is_changed for place in talking if examples[place].is_alone]
    elliptic = [not made[place].is_changed for place in talking if not examples[place].is_alone]
    return {
        "messages": len(examples),
        "nothing": float(plain.mean()),
        "distance": float(reached.mean()),
        "ratio": float(reached.mean() / plain.mean()),
        "ratio_text": float(texts.mean() / plain.mean()),
        "standalone": float(np.mean(alone)) if alone else float("nan"),
        "elliptic": float(np.mean(elliptic)),
        "parts": float(np.mean([len(one.parts) for one in made])),
    }


def print_table(results: Mapping[str, Mapping[str, float]]) -> None:
    columns = ("messages", "nothing", "distance", "ratio", "ratio_text", "standalone", "elliptic", "parts")
    print(f"{'set':10}", *(f"{column[:10]:>10}" for column in columns))
    for name, row in results.items():
        print(f"{name:10}", *(f"{row[column]:10.3f}" for column in columns))
    headline = [results[name]["ratio"] for name in HEADLINE if name in results]
    print(f"mean ratio of {', '.join(name for name in HEADLINE if name in results)}: {np.mean(headline):.3f}")
    print("standalone, elliptic: shares of messages with a history that were left as they are")


def run(folder: Path, out: Path | None, embed: Embedding) -> dict[str, dict[str, float]]:
    """Train, measure by folds, and write the weights of all examples; with `out` None they are not written."""
    own = {name: read(folder, name) for name in TRAINING}
    chance = random.Random(5)  # noqa: S311 - which examples are made has no secret
    prepared: list[Prepared] = []
    for examples in own.values():
        plain = prepare(examples, embed)
        prepared += plain + prepare(made_of(plain, chance), embed)
    results = {}
    by_fold = [train([one for one in prepared if one.example.fold != fold]) for fold in range(FOLDS)]
    for name, examples in own.items():
        made = [trained(one.message, one.history, by_fold[one.fold]) for one in examples]
        results[name] = measure(examples, made, embed)
    final = train(prepared)
    if out:
        save(final, out)
    for name in MEASURING:
        if (folder / f"{name}.rewrites.jsonl.gz").exists():
            examples = read(folder, name)
            made = [trained(one.message, one.history, final) for one in examples]
            results[name] = measure(examples, made, embed)
    return results


def measure_plain(folder: Path, embed: Embedding) -> dict[str, float]:
    """The ratio of the blend without training, by set."""
    found = {}
    for name in (*TRAINING, *MEASURING):
        if (folder / f"{name}.rewrites.jsonl.gz").exists():
            examples = read(folder, name)
            made = [contextualize(one.message, one.history, "blend") for one in examples]
            found[name] = measure(examples, made, embed)["ratio"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the sets")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--measure-only", action="store_true", help="do not write the weights")
    given = parser.parse_args()
    embed = Embedding()
    results = run(given.data, None if given.measure_only else WEIGHTS, embed)
    print_table(results)
    print("blend:", ", ".join(f"{name} {ratio:.3f}" for name, ratio in measure_plain(given.data, embed).items()))
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
