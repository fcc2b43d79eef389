"""Whether all relevant sessions are among the first k."""

from collections.abc import Collection, Sequence


def recall_all_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> bool:
    """Whether all of the relevant are among the first k: relevant is a subset of the top k of the ranking.

    With more than k relevant ones it is never reached, as in the official code.

    Source: Wu et al., "LongMemEval" (2025), `evaluate_retrieval` in src/retrieval/eval_utils.py.

    >>> recall_all_at_k(["b", "a", "c"], {"a", "c"}, k=2), recall_all_at_k(["b", "a", "c"], {"a", "c"}, k=3)
    (False, True)
    """
    return set(relevant) <= set(ranking[:k])
