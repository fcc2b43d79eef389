"""Contextualizers that need no training: the message as it is, and a blend with the recent lines.

The blend is for every language: the vectors of the newest message before it and of the thread's first are added
to a short message's own. Its text stays as it is.
"""

from collections.abc import Sequence

from backscroll.contextualize.values import Contextualized, Part, Said, unchanged
from backscroll.terms import terms

WEIGHT_BEFORE, WEIGHT_FIRST = 0.4, 0.3  # to 1 of the message
MAX_TERMS = 8  # a message of more terms stands alone
_MAX_CHARACTERS = 400


def none(message: str, recent: Sequence[Said]) -> Contextualized:
    """The message as it is."""
    return unchanged(message)


def blend(message: str, recent: Sequence[Said]) -> Contextualized:
    """A short message with the lines that it may go on from; see `contextualize`."""
    users = [line.text.strip()[:_MAX_CHARACTERS] for line in recent if line.role == "user" and line.text.strip()]
    if not users or len(set(terms(message))) > MAX_TERMS:
        return unchanged(message)
    shares = {message: 1.0}
    shares[users[-1]] = shares.get(users[-1], 0.0) + WEIGHT_BEFORE
    shares[users[0]] = shares.get(users[0], 0.0) + WEIGHT_FIRST
    if len(shares) == 1:
        return unchanged(message)
    parts = tuple(Part(text, round(weight, 4)) for text, weight in shares.items())
    return Contextualized(message, parts, True, "the query's vector is blended with what was said before")
