"""The trained contextualizer: what the message leaves out is taken from the recent lines; no language model.

    message, recent lines -> phrases -> numbers -> shares of each choice -> the likeliest texts, weighted

A choice is a text: the message as it is, the message with one phrase put where it is missing, or the message behind
the one before it. Which phrase is meant is uncertain; so the query's vector is the sum of the vectors of the likeliest
texts, by their shares, which lies closer to what a human would have written than any of them alone.
A message that stands alone, by a gate of its own, stays as it is; what is not English is left to `plain.blend`.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from backscroll.contextualize.phrases import phrases, relevant, words
from backscroll.contextualize.plain import blend
from backscroll.contextualize.references import say
from backscroll.contextualize.salience import Numbers, Scene, of_phrase, see
from backscroll.contextualize.scoring import Array, Weights, shares, shipped, stands_alone, table
from backscroll.contextualize.values import Contextualized, Part, Said, unchanged
from backscroll.terms import STOP_WORDS

MIN_ALONE = 0.6  # as likely as this, a message stands alone
MAX_PARTS = 5  # texts to embed, 3.4 to 4.2 on average; docs/LOG.md has what more and fewer give
MIN_SHARE = 0.02
_MAX_CHARACTERS = 400  # a longer message has said what it is about
_MIN_ENGLISH = 0.2  # share of English function words, here .45 on average
_SOME_WORDS = 4
_FOREIGN = re.compile(r"[^\W\d_\u0000-\u024f]")  # a letter that is not Latin
_SMALL_TALK = frozenset(
    """hi hey hello bye goodbye thanks thank you so much very ok okay lol haha hmm wow good morning afternoon evening
    night how are doing today great welcome""".split()
)


class Choice(NamedTuple):
    """A text that may be what is meant.

    Attributes:
        text: the message, with or without something.
        added: the phrase that it was given; empty for the message as it is.
        numbers: what is known of what was added.
    """

    text: str
    added: str
    numbers: Numbers


def trained(message: str, recent: Sequence[Said], weights: Weights | None = None) -> Contextualized:
    """Put what the message leaves out into it; see `contextualize`.

    Args:
        weights: None takes the shipped ones.
    """
    lines = relevant(recent)
    said = {word.lower for word in words(message)}
    if not lines or said <= _SMALL_TALK or len(message) > _MAX_CHARACTERS:
        return unchanged(message)
    if not _is_english(message, lines):
        return blend(message, recent)
    held = weights or shipped()
    scene = see(message, lines)
    if is_whole(scene.message) or stands_alone(held, scene.message) >= MIN_ALONE:
        return unchanged(message)
    found = choices(message, lines, scene)
    return _weighed(message, found, shares(held, table([one.numbers for one in found], scene.message, held.names)))


def is_whole(known: Numbers) -> bool:
    """Whether a message refers to nothing outside: it has names, or asks about the asker, or said much before "it".

    The sets that train the gate have few of those: users of a memory ask "How many bikes do I own?".
    """
    asks_of_self = known["whole of first person"] and known["asks"]
    return bool(known["whole with a name"] or asks_of_self or known["topics before reference"])


def choices(message: str, lines: Sequence[Said], scene: Scene) -> list[Choice]:
    """What may be meant: the message as it is first, then with each phrase, then behind the one before it.

    Args:
        lines: as `phrases.relevant` gives them.
        scene: of the message and those lines.
    """
    found = phrases(lines)
    keys = [f" {phrase.key} " for phrase in found]
    made = [Choice(message, "", {"as it is": 1.0})]
    made += [Choice(say(message, phrase.text), phrase.text, of_phrase(phrase, scene, keys)) for phrase in found]
    before = next((line.text.strip() for line in reversed(lines) if line.role == "user"), "")
    if before:
        made.append(Choice(f"{before} {message}", before, {"behind the one before": 1.0}))
    return made


def _weighed(message: str, found: Sequence[Choice], share: Array) -> Contextualized:
    order = [int(place) for place in np.argsort(-share, kind="stable")[:MAX_PARTS] if share[place] >= MIN_SHARE]
    if order == [0]:
        return unchanged(message)
    parts = tuple(Part(found[place].text, round(float(share[place]), 4)) for place in order)
    best = found[order[0]]
    means = f"is taken to mean {best.added!r}" if best.added else "may lean on what was said before"
    return Contextualized(best.text, parts, is_changed=True, note=f"the prompt {means} ({share[order[0]]:.0%})")


def _is_english(message: str, lines: Sequence[Said]) -> bool:
    """Whether it is in Latin letters, and function words of English are as frequent as in English in and around it.

    A message of some words has one of them itself: others may be written between English lines.
    """
    asked = [word.lower for word in words(message)]
    if _FOREIGN.search(message) or (len(asked) >= _SOME_WORDS and not any(word in STOP_WORDS for word in asked)):
        return False
    said = [word.lower for line in lines for word in words(line.text)] + asked
    return sum(word in STOP_WORDS for word in said) >= _MIN_ENGLISH * len(said)
