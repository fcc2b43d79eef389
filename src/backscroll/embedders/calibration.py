"""How similar lines are that have nothing to do with each other: where an embedder's own scale begins.

A similarity of .3 says much with one model and nothing with another. So each embedder is shown the same 200
lines on unrelated matters, and what two of them reach by chance gives the least similarity worth recalling.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from backscroll.protocols import Embedder

UNRELATED_LINES = Path(__file__).with_name("unrelated_lines.txt")
PERCENTILES = (90.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True)
class Calibration:
    """What an embedder gives for unrelated lines.

    Attributes:
        embedder: name of the embedder that it belongs to.
        unrelated_percentiles: percentile, 0 to 100 -> the cosine that this share of pairs stays below.
    """

    embedder: str
    unrelated_percentiles: Mapping[float, float]

    def to_json(self) -> str:
        """As a text that a store can keep.

        >>> Calibration("hashing-256", {99.0: 0.25}).to_json()
        '{"embedder": "hashing-256", "unrelated_percentiles": {"99.0": 0.25}}'
        """
        return json.dumps({"embedder": self.embedder, "unrelated_percentiles": dict(self.unrelated_percentiles)})

    @classmethod
    def from_json(cls, text: str) -> "Calibration":
        """Read what `to_json` wrote.

        Raises: ValueError or KeyError when the text is something else.
        """
        stored = json.loads(text)
        cosines = stored["unrelated_percentiles"]
        return cls(stored["embedder"], {float(percentile): float(cosine) for percentile, cosine in cosines.items()})


def calibrate(embedder: Embedder) -> Calibration:
    """Measure an embedder on the shipped lines, 19,900 pairs; the local one takes a third of a second.

    Raises: EmbedderError.
    """
    lines = UNRELATED_LINES.read_text(encoding="utf-8").splitlines()
    vectors = embedder.embed(lines)  # (n, d)
    pairs = np.triu_indices(len(lines), k=1)
    cosines = (vectors @ vectors.T)[pairs]  # (n * (n - 1) / 2,)
    values = [round(float(value), 4) for value in np.percentile(cosines, PERCENTILES)]
    return Calibration(embedder.name, dict(zip(PERCENTILES, values, strict=True)))
