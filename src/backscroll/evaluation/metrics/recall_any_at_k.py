"""Whether any relevant session is among the first k."""

from collections.abc import Collection, Sequence


def recall_any_at_k(ranking: Sequence[str], relevant: Collection[str], k: int) -> bool:
    """Whether one of the relevant is among the first k: |top k of ranking and relevant| > 0.

    Also known as hit rate or success@k.

    Source: Wu et al., "LongMemEval" (2025), `evaluate_retrieval` in src/retrieval/eval_utils.py.

    >>> recall_any_at_k(["b", "a", "c"], {"a", "c"}, k=2), recall_any_at_k(["b", "a"], {"a"}, k=1)
    (True, False)
    """
    return not set(relevant).isdisjoint(ranking[:k])
