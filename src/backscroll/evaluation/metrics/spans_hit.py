"""Which share of the long passages that a question is about is in the context."""

from collections.abc import Sequence

MIN_SHARE = 0.5  # of a span's tokens


def is_hit(line_tokens: Sequence[tuple[int, int]]) -> bool:
    """Whether at least half of a span's tokens are in the context.

    Args:
        line_tokens: for each line of the span its tokens, and how many of them are in the context.

    >>> is_hit([(30, 30), (20, 0), (10, 0)]), is_hit([(30, 0), (20, 20)])
    (True, False)
    """
    held = sum(held for _, held in line_tokens)
    return held > 0 and held >= MIN_SHARE * sum(tokens for tokens, _ in line_tokens)


def spans_hit(hits: Sequence[bool]) -> float:
    """The share of a question's spans that are hit: |spans hit| / |spans|.

    Source: our own, for evidence such as the relevant text spans of QMSum (Zhong et al. 2021): a median of 23 lines a
    question, which a small budget cannot hold.

    >>> spans_hit([True, False])
    0.5
    """
    return sum(hits) / len(hits)
