"""Whether the answer itself stands in the context, word for word.

The fair measure where only a passage of a long message was taken: the line is not whole there, its answer is.
"""

import re
from collections.abc import Iterable

_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")  # scripts that put no space between words


def occurs(answer: str, text: str) -> bool:
    """Whether an answer occurs in a text as whole words; case and the kind of white space do not matter.

    >>> occurs("7 May", "We went on 7  may 2023."), occurs("7", "in 2007"), occurs("", "anything")
    (True, False, False)
    """
    wanted, held = plain(answer), plain(text)
    if not wanted or wanted not in held:
        return False
    if _UNSPACED.search(wanted):
        return True
    return re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", held) is not None


def answer_in_context(answer: str, rendered: Iterable[str]) -> bool:
    """Whether an answer occurs within one of the lines of a context.

    Its mean is taken over the questions whose answer occurs in an evidence line:
    |{q : answer(q) in context(q)}| / |{q : answer(q) in evidence(q)}|. A short answer ("two") may occur by chance.

    Source: the "has answer" of Chen et al., "Reading Wikipedia to Answer Open-Domain Questions" (2017): a
    passage counts when it holds the answer as a string of tokens; their normalization of Unicode is left out.

    >>> answer_in_context("Tilburg", ["user: I graduated from Tilburg."])
    True
    """
    return any(occurs(answer, line) for line in rendered)


def plain(text: str) -> str:
    """A text in lower case with single spaces, without the point at its end."""
    return " ".join(text.casefold().split()).rstrip(".")
