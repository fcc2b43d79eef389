"""Contextualizers that need no training: the message as it is, and a blend with the recent lines.

The blend is for every language: the vectors of the newest message before it, of the reply to that, and of the
thread's first are added to a short message's own. Its text stays as it is.
"""

from collections.abc import Sequence

from backscroll.contextualize.values import Contextualized, Part, Said, unchanged
from backscroll.terms import topical_words

WEIGHT_BEFORE, WEIGHT_REPLY, WEIGHT_FIRST = 0.4, 0.3, 0.3  # to 1 of the message
MAX_WORDS = 8  # a message of more words that carry a topic stands alone
_MAX_CHARACTERS = 400


def none(message: str, recent: Sequence[Said]) -> Contextualized:
    """The message as it is."""
    return unchanged(message)


def blend(message: str, recent: Sequence[Said]) -> Contextualized:
    """A short message with the lines that it may go on from; see `contextualize`."""
    users, replies = _said_by("user", recent), _said_by("assistant", recent)
    if not users or topical_words(message) > MAX_WORDS:
        return unchanged(message)
    shares = {message: 1.0}
    added = [(users[-1], WEIGHT_BEFORE), *((reply, WEIGHT_REPLY) for reply in replies[-1:]), (users[0], WEIGHT_FIRST)]
    for text, weight in added:
        shares[text] = shares.get(text, 0.0) + weight
    if len(shares) == 1:
        return unchanged(message)
    parts = tuple(Part(text, round(weight, 4)) for text, weight in shares.items())
    return Contextualized(message, parts, True, "the prompt is searched for together with what was said before it")


def _said_by(role: str, recent: Sequence[Said]) -> list[str]:
    return [text[:_MAX_CHARACTERS] for line in recent if line.role == role and (text := line.text.strip())]
