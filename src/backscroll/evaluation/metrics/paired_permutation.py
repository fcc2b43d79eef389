"""Whether two systems differ on the same questions by more than chance."""

from collections.abc import Sequence
from itertools import product

import numpy as np

SAMPLES = 10_000
_EXACT_PAIRS = 12  # up to here all 2 ** n exchanges are tried
_CHUNK = 2_000_000
_ROUNDING = 1e-12


def paired_permutation(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> float:
    """The two-sided p value of Fisher's randomization test on the difference of two means.

    Were both systems alike, their values on a question could be exchanged: p is the share of exchanges whose mean
    difference is at least as large as the one seen, |mean(s * d)| >= |mean(d)| for signs s of the differences d. For
    up to 12 questions that differ all exchanges are tried; above that 10,000 random ones and the one seen.

    Args:
        ours, theirs: values of both on the same questions, in the same order; not empty.
        seed: the same values and seed give the same p.

    Source: Smucker, Allan and Carterette, "A Comparison of Statistical Significance Tests for Information Retrieval
    Evaluation" (2007); the one seen counts as an exchange, as in Phipson and Smyth (2010).

    >>> paired_permutation([1, 1, 1], [0, 0, 0])  # 2 of the 8 exchanges: none, and all
    0.25
    """
    differences = np.asarray(ours, dtype=np.float64) - np.asarray(theirs, dtype=np.float64)  # (n,)
    moved = differences[differences != 0]  # a zero stays what it is under any sign
    if not len(moved):
        return 1.0
    least = abs(moved.sum()) - _ROUNDING
    if len(moved) <= _EXACT_PAIRS:
        signs = np.array(list(product((-1.0, 1.0), repeat=len(moved))))  # (2 ** n, n)
        return float((abs(signs @ moved) >= least).mean())
    random = np.random.default_rng(seed)
    rows = max(1, _CHUNK // len(moved))
    extreme = 0
    for start in range(0, SAMPLES, rows):
        drawn = random.choice((-1.0, 1.0), size=(min(rows, SAMPLES - start), len(moved)))
        extreme += int((abs(drawn @ moved) >= least).sum())
    return (extreme + 1) / (SAMPLES + 1)
