"""How far a mean could have come out otherwise with other questions of the same kind."""

from collections.abc import Sequence

import numpy as np

RESAMPLES = 10_000
_CHUNK = 2_000_000  # drawn at once, to keep RAM low


def bootstrap_interval(values: Sequence[float], confidence: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """The percentile bootstrap interval of a mean.

    Values are drawn with replacement, as many as there are, 10,000 times; the interval holds the middle `confidence`
    of the means. It takes values as independent: questions on one conversation are less so, and it is then too narrow.

    Args:
        values: one a question; not empty.
        confidence: of the interval.
        seed: the same values and seed give the same interval.

    Source: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13.

    >>> bootstrap_interval([0.5, 0.5, 0.5])
    (0.5, 0.5)
    """
    given = np.asarray(values, dtype=np.float64)  # (n,)
    random = np.random.default_rng(seed)
    rows = max(1, _CHUNK // len(given))
    means = np.concatenate(
        [
            given[random.integers(0, len(given), size=(min(rows, RESAMPLES - start), len(given)))].mean(axis=1)
            for start in range(0, RESAMPLES, rows)
        ]
    )  # (RESAMPLES,)
    outside = (1 - confidence) / 2
    low, high = np.quantile(means, [outside, 1 - outside])
    return float(low), float(high)
