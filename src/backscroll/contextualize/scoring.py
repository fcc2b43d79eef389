"""The shipped weights: a small network that scores the phrases, and a gate that sees a message that stands alone.

Both were trained by `scripts/train_contextualizer.py` on CAsT, iKAT, GECOR and CQR. A phrase's score is

    score = W2 tanh(W1 x + b1) + W3 x

with x its numbers and the message's (`salience`), scaled: the mean of several networks of one training, which is a
wider network. The gate is a logistic regression on the message's numbers alone.
Knows nothing about texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WEIGHTS = Path(__file__).with_name("weights.npz")
MAX_DEVIATIONS = 4.0

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Weights:
    """What training found.

    Attributes:
        names: (d,) of the numbers that score a choice, in their order; gate_names: (g,) of those of the gate.
        mean, scale: (d,) of the numbers in training.
        hidden: (d, h), bias: (h,), out: (h,), direct: (d,): of the network, W1, b1, W2, W3.
        gate_mean, gate_scale, gate: (g,); gate_bias: ().
    """

    names: tuple[str, ...]
    gate_names: tuple[str, ...]
    mean: Array
    scale: Array
    hidden: Array
    bias: Array
    out: Array
    direct: Array
    gate_mean: Array
    gate_scale: Array
    gate: Array
    gate_bias: Array


@cache
def shipped() -> Weights:
    """The weights that come with the package."""
    with np.load(WEIGHTS) as stored:
        names, gate_names = (tuple(str(stored[name]).split("\n")) for name in ("names", "gate_names"))
        arrays = {name: stored[name].astype(np.float32) for name in stored.files if name not in ("names", "gate_names")}
    return Weights(names, gate_names, **arrays)


def shares(weights: Weights, numbers: Array) -> Array:
    """How likely each choice is.

    Args:
        numbers: (n, d) of the n choices.

    Returns: (n,) sums to 1.
    """
    x = np.clip((numbers - weights.mean) / weights.scale, -MAX_DEVIATIONS, MAX_DEVIATIONS)
    scores = np.tanh(x @ weights.hidden + weights.bias) @ weights.out + x @ weights.direct
    raised = np.exp(scores - scores.max())
    return np.asarray(raised / raised.sum(), dtype=np.float32)


def stands_alone(weights: Weights, numbers: Mapping[str, float]) -> float:
    """How likely it is that a message stands alone, 0 to 1."""
    x = np.array([numbers[name] for name in weights.gate_names], dtype=np.float32)
    scaled = np.clip((x - weights.gate_mean) / weights.gate_scale, -MAX_DEVIATIONS, MAX_DEVIATIONS)
    return float(1 / (1 + np.exp(-(scaled @ weights.gate + weights.gate_bias))))


def table(rows: Sequence[Mapping[str, float]], shared: Mapping[str, float], names: Sequence[str]) -> Array:
    """Rows of named numbers as an array.

    Args:
        rows: of one choice each; what a row does not name is 0.
        shared: what is the same for all of them.
        names: of the columns.
    """
    made = np.tile(np.array([shared.get(name, 0.0) for name in names], dtype=np.float32), (len(rows), 1))
    place = {name: column for column, name in enumerate(names)}
    for values, row in zip(made, rows, strict=True):
        values[[place[name] for name in row]] = list(row.values())
    return made
