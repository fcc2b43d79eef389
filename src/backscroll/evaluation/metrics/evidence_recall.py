"""Which share of the lines that hold the answer is in the context."""

from collections.abc import Sequence


def evidence_recall(found: Sequence[bool], is_any_enough: bool = False) -> float:
    """Recall of a question's evidence: |evidence in the context| / |evidence|.

    Args:
        found: for each evidence line whether its whole text is in the context; not empty.
        is_any_enough: where one line answers as well as all: 1 when any is there, else 0.

    Source: the recall of turns with the answer in Maharana et al., "Evaluating Very Long-Term Conversational Memory of
    LLM Agents" (2024); unlike there, of the finished context and not of a retriever's list.

    >>> evidence_recall([True, False, True, True])
    0.75
    >>> evidence_recall([False, True], is_any_enough=True)
    1.0
    """
    return float(any(found)) if is_any_enough else sum(found) / len(found)
