"""How far up the relevant sessions stand, with less credit for later ranks."""

import math
from collections.abc import Callable, Collection, Sequence

Discount = Callable[[int], float]  # rank, from 1 -> what its gain is divided by


def longmemeval_discount(rank: int) -> float:
    """The discount of LongMemEval's code, and of the paper that it goes back to: ranks 1 and 2 count in full."""
    return math.log2(max(rank, 2))


def trec_discount(rank: int) -> float:
    """The discount of trec_eval, ranx and ir_measures."""
    return math.log2(rank + 1)


def ndcg_at_k(
    ranking: Sequence[str], relevant: Collection[str], k: int, discount: Discount = longmemeval_discount
) -> float:
    """Normalized discounted cumulative gain of binary relevance: DCG@k / ideal DCG@k.

    DCG@k = sum over the ranks i <= k with a relevant item of 1 / discount(i). The ideal puts all relevant ones first,
    also those that the ranking lacks; normalizing by those retrieved alone would forgive every miss.

    Args:
        ranking: ids, best first, each once.
        relevant: not empty.
        k: how many ranks count.
        discount: LongMemEval's, so that figures compare with the published ones; or trec_eval's.

    Source: Järvelin and Kekäläinen, "Cumulated gain-based evaluation of IR techniques" (2002), with
    base 2; `ndcg` in LongMemEval's src/retrieval/eval_utils.py.

    >>> round(ndcg_at_k(["a", "x", "b"], {"a", "b"}, k=10), 4)  # (1 + 1 / log2(3)) / 2
    0.8155
    >>> round(ndcg_at_k(["a", "x", "b"], {"a", "b"}, k=10, discount=trec_discount), 4)
    0.9197
    """
    gained = sum(1 / discount(rank) for rank, one in enumerate(ranking[:k], 1) if one in relevant)
    ideal = sum(1 / discount(rank) for rank in range(1, min(k, len(relevant)) + 1))
    return gained / ideal
