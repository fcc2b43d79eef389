"""How similar lines are that have nothing to do with each other: where an embedder's own scale begins.

A similarity of .3 says much with one model and nothing with another. So each embedder is shown the same 200
lines on unrelated matters, and what two of them reach by chance gives the least similarity worth recalling.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from backscroll.protocols import Embedder
from backscroll.vectors import embedded

UNRELATED_LINES = Path(__file__).with_name("unrelated_lines.txt")
PERCENTILES = (90.0, 95.0, 99.0, 99.9)


def calibrate(embedder: Embedder) -> Mapping[float, float]:
    """Measure an embedder on the shipped lines, 19,900 pairs; the local one takes a third of a second.

    Returns: percentile, 0 to 100 -> the cosine that this share of the pairs stays below.
    Raises: EmbedderError.
    """
    lines = UNRELATED_LINES.read_text(encoding="utf-8").splitlines()
    vectors = embedded(embedder, lines)  # (n, d)
    pairs = np.triu_indices(len(lines), k=1)
    cosines = (vectors @ vectors.T)[pairs]  # (n * (n - 1) / 2,)
    values = [round(float(value), 4) for value in np.percentile(cosines, PERCENTILES)]
    return dict(zip(PERCENTILES, values, strict=True))
