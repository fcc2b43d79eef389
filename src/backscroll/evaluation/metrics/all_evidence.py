"""Whether all that a question needs is in the context."""

from collections.abc import Sequence


def all_evidence(found: Sequence[bool], is_any_enough: bool = False) -> bool:
    """Whether the evidence suffices: all of its lines, or one where one is enough.

    Its mean over questions is the share of questions that a perfect reader could answer from the context:
    |{q : evidence(q) in context(q)}| / |{q}|.

    Args:
        found: for each evidence line whether its whole text is in the context; not empty.
        is_any_enough: where one line answers as well as all.

    Source: recall_all of Wu et al., "LongMemEval" (2025), src/retrieval/eval_utils.py, on lines of the context
    instead of a list of k.

    >>> all_evidence([True, False]), all_evidence([True, True]), all_evidence([True, False], is_any_enough=True)
    (False, True, True)
    """
    return any(found) if is_any_enough else all(found)
