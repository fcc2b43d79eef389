"""A message, the recent lines and their phrases -> numbers that say which phrase is meant, and whether any is.

Who said it and when, where in its sentence, how often, with what beside it; whether it can be what the pronoun
stands for; whether the pronoun goes on a chain ("he … his … he") that began behind it. No vectors: half a
millisecond. The order of the numbers is part of the shipped weights, which keep their names.
Knows nothing about weights.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from backscroll.contextualize.phrases import Mention, Phrase, stems, words
from backscroll.contextualize.references import KINDS, kind, reference
from backscroll.contextualize.values import Said

Numbers = Mapping[str, float]
_KINDS = ("it", "they", "person", "pointing", "place", "one")
_OPENINGS = (
    "what who when where why how which did was is are do does can could tell and or but any the i so ok no yes".split()
)
_MONTHS = frozenset(
    "january february march april may june july august september october november december monday tuesday wednesday "
    "thursday friday saturday sunday".split()
)
_FIRST_PERSON = frozenset({"i", "my", "i'm", "me", "we", "our", "us"})
_SECOND_PERSON = frozenset({"you", "your"})
_FAR = 9  # an age above all others


@dataclass(frozen=True, slots=True)
class Scene:
    """What is the same for all phrases.

    Attributes:
        reference: kind of the pronoun that a phrase can replace; empty where there is none.
        said: the stems of the message that carry a topic.
        lines: the stems of each line.
        first_user, newest_user, newest_answer, title: the stems of those lines; empty where there is none.
        chain: place of the line in which the pronoun was first used, going back without a break; None where the
            message is the first to use it.
        message: what is known of the message.
    """

    reference: str
    said: frozenset[str]
    lines: tuple[frozenset[str], ...]
    first_user: frozenset[str]
    newest_user: frozenset[str]
    newest_answer: frozenset[str]
    title: frozenset[str]
    chain: int | None
    message: Numbers


def see(message: str, lines: Sequence[Said]) -> Scene:
    """Look at the message and the lines once.

    Args:
        lines: oldest first, as `phrases.relevant` gives them.
    """
    of_lines = tuple(stems(line.text) for line in lines)
    users = [place for place, line in enumerate(lines) if line.role == "user"]
    titles = [of for line, of in zip(lines, of_lines, strict=True) if line.role not in ("user", "assistant")]
    answered = bool(lines) and lines[-1].role == "assistant"
    chain = _chain(message, lines, users)
    scene = Scene(
        reference=kind(message),
        said=stems(message),
        lines=of_lines,
        first_user=of_lines[users[0]] if users else frozenset(),
        newest_user=of_lines[users[-1]] if users else frozenset(),
        newest_answer=of_lines[-1] if answered else frozenset(),
        title=frozenset().union(*titles),
        chain=chain,
        message={},
    )
    known = {**_of_words(message), **_of_kinds(message, scene.reference), **_of_lines(scene, lines, users)}
    return replace(scene, message=known)


def _chain(message: str, lines: Sequence[Said], users: Sequence[int]) -> int | None:
    meant = kind(message)
    first = None
    for place in reversed(users if meant else ()):
        if not any(KINDS.get(word.lower) == meant for word in words(lines[place].text)):
            break
        first = place
    return first


def _of_words(message: str) -> dict[str, float]:
    said = words(message)
    lower = [word.lower for word in said]
    topical = [word for word in said if not word.is_vague]
    later = said[1:]
    opening = lower[0] if lower else ""
    return {
        "words": math.log1p(len(said)) / 3,
        "topical words": min(len(topical), 8) / 4,
        "no topical word": not topical,
        "one topical word": len(topical) == 1,
        **{f"opens with {word}": opening == word for word in _OPENINGS},
        "what about": bool(re.match(r"(what|how) about|and (what|how)", message.lower())),
        "asks": message.rstrip().endswith("?"),
        "names": any(word.is_capital and not word.is_vague for word in later),
        "share of names": sum(word.is_capital for word in later) / max(1, len(said)),
        "digits": any(word.text[0].isdigit() for word in said),
        "definite": "the" in lower,
        "first person": bool(_FIRST_PERSON & set(lower)),
        "second person": bool(_SECOND_PERSON & set(lower)),
        "ends with one": bool(lower) and lower[-1] in ("one", "ones"),
        "other": bool({"other", "another", "else"} & set(lower)),
        "superlative": bool({"more", "most", "best", "first", "main"} & set(lower)),
        "ends with a topic": bool(topical) and topical[-1] is said[-1],
    }


def _of_kinds(message: str, meant: str) -> dict[str, float]:
    used = {KINDS[word.lower] for word in words(message) if word.lower in KINDS}
    found = reference(message)
    said = words(message)
    topical = sum(not word.is_vague for word in said)
    before = len(stems(message[: found.start()])) if found else 0
    refers = found is not None or "one" in used
    named = any(word.is_capital and not word.is_vague for word in said[1:])
    own = bool(_FIRST_PERSON & {word.lower for word in said})
    return {
        "whole": topical * (not refers) / 4,
        "whole of three": topical >= 3 and not refers,
        "whole of four": topical >= 4 and not refers,
        "whole with a name": topical >= 2 and named and not refers,
        "whole of first person": (topical >= 3 or (topical and len(said) >= 7)) and own and not refers,
        "topic before reference": before > 0,
        "topics before reference": before >= 5,
        "uses none": not used,
        **{f"uses {one}": one in used for one in _KINDS},
        **{f"means {one}": meant == one for one in _KINDS},
        "means nothing": not meant,
    }


def _of_lines(scene: Scene, lines: Sequence[Said], users: Sequence[int]) -> dict[str, float]:
    known: frozenset[str] = frozenset().union(*scene.lines)
    size = max(1, len(scene.said))
    return {
        "user lines": math.log1p(len(users)) / 2,
        "was asked": bool(scene.newest_answer) and lines[-1].text.rstrip().endswith("?"),
        "was answered": bool(scene.newest_answer),
        "has title": bool(scene.title),
        "said before": len(scene.said & known) / size,
        "said just before": len(scene.said & scene.newest_user) / size,
        "chained": scene.chain is not None,
        "chain": 0.0 if scene.chain is None else sum(place >= scene.chain for place in users) / 4,
    }


def of_phrase(phrase: Phrase, scene: Scene, keys: Sequence[str]) -> dict[str, float]:
    """The numbers of one phrase.

    Args:
        keys: of all phrases, with a space at both ends.
    """
    known = {**_of_writing(phrase, keys), **_of_mentions(phrase.mentions, scene), **_of_place(phrase.mentions)}
    known.update(_of_overlap(phrase, scene))
    known.update(_of_agreement(known, scene))
    return known


def _of_writing(phrase: Phrase, keys: Sequence[str]) -> dict[str, float]:
    capitals = [word[0].isupper() for word in phrase.words]
    last = phrase.words[-1].lower()
    padded = f" {phrase.key} "
    return {
        "length": len(phrase.words) / 4,
        "one word": len(phrase.words) == 1,
        "long": len(phrase.words) >= 4,
        "characters": len(phrase.key) / 20,
        "capitals": sum(capitals) / len(capitals),
        "all capitals": all(capitals),
        "name inside": capitals[0] and not phrase.mentions[-1].opens,
        "full name": len(capitals) in (2, 3) and all(capitals),
        "one name": capitals == [True],
        "numbered": any(word[0].isdigit() for word in phrase.words),
        "date": bool(_MONTHS & set(phrase.key.split())),
        "plural": last.endswith("s") and not last.endswith("ss"),
        "verbal": last.endswith(("ing", "ed")),
        "verbal opening": phrase.words[0].lower().endswith(("ing", "ed", "ly")),
        "adjective": last.endswith(("ly", "ive", "al", "ous", "able", "ful")),
        "within another": any(padded in key and key != padded for key in keys),
        "around another": any(key in padded and key != padded for key in keys),
    }


def _of_mentions(mentions: Sequence[Mention], scene: Scene) -> dict[str, float]:
    users = [mention for mention in mentions if mention.role == "user"]
    answers = [mention for mention in mentions if mention.role == "assistant"]
    first, newest = mentions[0], mentions[-1]
    before = scene.chain is not None and first.line <= scene.chain
    near = before and scene.chain is not None and any(scene.chain - 2 <= m.line <= scene.chain for m in mentions)
    return {
        "age": newest.age / 4,
        "first age": first.age / 4,
        "newest": newest.age == 0,
        "one ago": newest.age == 1,
        "said by user": bool(users),
        "said by assistant": bool(answers),
        "last by user": newest.role == "user",
        "in newest question": min((m.age for m in users), default=_FAR) == 0,
        "in newest answer": min((m.age for m in answers), default=_FAR) == 0,
        "new in newest question": first.role == "user" and first.age == 0,
        "new in newest answer": first.role == "assistant" and first.age == 0,
        "mentions": math.log1p(len(mentions)),
        "mentions by user": math.log1p(len(users)),
        "before chain": before,
        "at start of chain": near,
        "after start of chain": scene.chain is not None and not before,
    }


def _of_place(mentions: Sequence[Mention]) -> dict[str, float]:
    newest = mentions[-1]
    return {
        "first sentence": newest.sentence == 0,
        "sentence": min(newest.sentence, 6) / 6,
        "opens": newest.opens,
        "first phrase": newest.place == 0,
        "last phrase": newest.place == newest.phrases - 1,
        "place": newest.place / newest.phrases,
        "after preposition": newest.before in ("of", "about", "for", "to", "in", "on"),
        "after about": any(mention.before == "about" for mention in mentions),
        "after the": newest.before == "the",
        "after a": newest.before in ("a", "an"),
        "after verb": newest.before in ("is", "are", "was", "were", "do", "does", "did"),
        "after nothing": not newest.before,
        "after person": newest.before in ("your", "my", "i", "you"),
        "subject of question": any(m.role == "user" and m.sentence == m.place == 0 for m in mentions),
        "subject of answer": any(m.role == "assistant" and m.sentence == m.place == 0 for m in mentions),
    }


def _of_overlap(phrase: Phrase, scene: Scene) -> dict[str, float]:
    own, head = phrase.stems, phrase.head
    rest = scene.said - own
    beside = max((len(rest & mention.beside) for mention in phrase.mentions), default=0)
    size = max(1, len(scene.lines))
    covered = sum(own <= line for line in scene.lines)
    return {
        "lines with it": math.log1p(covered),
        "share of lines with it": covered / size,
        "share of lines with head": sum(head in line for line in scene.lines) / size,
        "whole in newest question": own <= scene.newest_user,
        "some in newest question": bool(own & scene.newest_user),
        "whole in newest answer": own <= scene.newest_answer,
        "some in newest answer": bool(own & scene.newest_answer),
        "whole in first question": own <= scene.first_user,
        "some in first question": bool(own & scene.first_user),
        "in title": own <= scene.title,
        "some in title": bool(own & scene.title),
        "in message": len(own & scene.said) / max(1, len(own)),
        "all in message": own <= scene.said,
        "head in message": head in scene.said,
        "beside message's words": beside / max(1, len(rest)),
        "beside a word": beside > 0,
    }


def _of_agreement(known: Numbers, scene: Scene) -> dict[str, float]:
    """What fits which pronoun: products that a small network need not find by itself."""
    meant = scene.reference
    pairs = {
        "it": ("plural", "capitals", "in newest question", "in newest answer", "date", "at start of chain"),
        "they": ("plural", "capitals", "in newest question", "in newest answer", "at start of chain"),
        "person": ("full name", "one name", "capitals", "date", "numbered", "before chain", "at start of chain"),
        "pointing": ("capitals", "in newest question", "in newest answer", "beside a word"),
        "": ("whole in first question", "in newest question", "in newest answer", "beside a word", "some in title"),
    }
    return {
        f"{one or 'nothing'}: {name}": known[name] * (meant == one) for one, names in pairs.items() for name in names
    }
