"""Lines -> the phrases in them that a later message may mean without saying so.

A phrase is a run of words between function words and punctuation ("lung cancer" in "What is lung cancer?"); a name
also runs over a link ("Bank of England"), and is a phrase by itself within a longer run. No grammar, no dictionary
but a list of words that are never meant.
Knows nothing about the message that comes after.

    >>> [phrase.text for phrase in phrases([Said("user", "What did the Bank of England say about interest rates?")])]
    ['Bank of England', 'interest rates']
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from backscroll.contextualize.values import Said
from backscroll.terms import STOP_WORDS

MAX_PHRASES = 40
_MAX_LINES = 13  # the newest; the two that opened the thread are looked at as well
_MAX_WORDS = 6
_MAX_CHARACTERS = 400  # of a line: what is meant later stands at its beginning; the newest answer is read to its end
_MAX_OLD_ANSWER = 200
_MAX_TITLE_WORDS = 16  # a longer system prompt instructs, and names no topic

# Words that carry no topic, beside the stop words of the text index.
_VAGUE = frozenset(
    """tell describe explain know think want need like make made makes give gives gave given find found say said says
    see look looking show use used uses using try tried happen happened happens become became come came comes take took
    taken takes put keep kept start started begin began end ended work worked works played play mean means include
    includes included including called known provide provides offer help learn love compare discuss elaborate
    recommend suggest interested interesting understand sure great good nice cool maybe actually also however many lot
    lots thing things something anything everything nothing someone anyone everyone kind sort type types way ways
    example examples different difference differences similar important main common major first second third last next
    best new old big small better worse long short high low ever still even yet since may might must always never often
    usually sometimes one ones two three another though although because currently article aspects aspect information
    info details question answer options option following based several various famous popular successful well-known
    ago today tomorrow yesterday later earlier early soon around right left""".split()
)
_INSTRUCTS = frozenset({"you", "your", "assistant", "respond", "reply", "always", "never"})
_LINKS = frozenset({"of", "the", "and", "for", "in", "to", "de", "la", "von"})
_WORD = re.compile(r"[^\W_]+(?:[-'’.&][^\W_]+)*")
_PIECE = re.compile(r"\w+")
_SENTENCE_ENDS = re.compile(r"[.!?;\n]")


class Word(NamedTuple):
    """A word and its place in the text; `is_vague` where it can be no part of a phrase."""

    start: int
    end: int
    text: str
    lower: str
    stem: str
    is_vague: bool
    is_capital: bool


class Mention(NamedTuple):
    """A phrase in one line.

    Attributes:
        role: of the line.
        line: which of the lines, from 0, the oldest.
        age: how many of the user's messages came after that line.
        sentence, place: which sentence of the line, and which of its phrases, from 0.
        phrases: how many phrases the line has.
        opens: whether nothing but function words stands before it in its sentence.
        before: the word in front of it, in lower case; empty at the beginning.
        beside: the stems of its sentence.
    """

    role: str
    line: int
    age: int
    sentence: int
    place: int
    phrases: int
    opens: bool
    before: str
    beside: frozenset[str]


@dataclass(frozen=True, slots=True)
class Phrase:
    """What a message may mean.

    Attributes:
        text: as it was written the last time.
        key: in lower case, words only.
        words: of `text`.
        stems: of its words that carry a topic, or of all; head: that of the last.
        mentions: in the order of the lines, at least one.
    """

    text: str
    key: str
    words: tuple[str, ...]
    stems: frozenset[str]
    head: str
    mentions: tuple[Mention, ...]


class _Run(NamedTuple):
    first: int
    last: int
    sentence: int
    opens: bool
    before: str


@lru_cache(maxsize=256)  # a line is read again with every message after it, and by each stage here
def words(text: str) -> tuple[Word, ...]:
    """The words of a text in order."""
    found = []
    for match in _WORD.finditer(text):
        lower = match.group().lower().replace("’", "'")
        bare = lower.removesuffix("'s")
        vague = bare in STOP_WORDS or bare in _VAGUE or lower in STOP_WORDS
        found.append(Word(*match.span(), match.group(), lower, _stem(bare), vague, match.group()[0].isupper()))
    return tuple(found)


def _stem(word: str) -> str:
    for suffix in ("es", "s"):
        if word.endswith(suffix) and len(word) > len(suffix) + 2:
            return word[: -len(suffix)]
    return word


def stems(text: str) -> frozenset[str]:
    """The stems of the words that carry a topic."""
    return frozenset(word.stem for word in words(text) if not word.is_vague)


def relevant(lines: Sequence[Said]) -> list[Said]:
    """The lines that a message may refer to, oldest first, long ones cut; a system prompt only where it is a title."""
    chosen = [*lines[:2], *lines[-_MAX_LINES:]] if len(lines) > _MAX_LINES + 2 else list(lines)
    kept = [line for line in chosen if line.text.strip() and (line.role in ("user", "assistant") or _is_title(line))]
    return [Said(line.role, _cut(line, place == len(kept) - 1)) for place, line in enumerate(kept)]


def _is_title(line: Said) -> bool:
    said = line.text.lower().split()
    return line.role in ("system", "developer") and len(said) <= _MAX_TITLE_WORDS and not _INSTRUCTS & set(said)


def _cut(line: Said, is_newest: bool) -> str:
    if line.role != "assistant":
        return line.text[:_MAX_CHARACTERS]
    if not is_newest:
        return line.text[:_MAX_OLD_ANSWER]
    if len(line.text) <= 1.5 * _MAX_CHARACTERS:
        return line.text
    return f"{line.text[:_MAX_CHARACTERS]}\n{line.text[-_MAX_OLD_ANSWER:]}"


def phrases(lines: Sequence[Said], max_phrases: int = MAX_PHRASES) -> list[Phrase]:
    """The phrases of the lines.

    Args:
        lines: oldest first, as `relevant` gives them.
        max_phrases: the newest and most often said are kept.

    Returns: in the order of how likely they are kept: newest and most often said first.
    """
    ages = [sum(later.role == "user" for later in lines[place + 1 :]) for place in range(len(lines))]
    found: dict[str, list[Mention]] = {}
    written: dict[str, str] = {}
    for place, line in enumerate(lines):
        for text, mention in _mentions(line, place, ages[place]):
            key = " ".join(_PIECE.findall(text.lower()))
            if len(key) < 2 or (key.isdigit() and len(key) < 3):
                continue
            found.setdefault(key, []).append(mention)
            written[key] = text
    oldest = max(ages, default=0)
    best = sorted(found, key=lambda key: _rank(written[key], found[key], oldest))[:max_phrases]
    return [_phrase(written[key], key, tuple(found[key])) for key in best]


def _phrase(text: str, key: str, mentions: tuple[Mention, ...]) -> Phrase:
    said = words(text)
    carrying = frozenset(word.stem for word in said if not word.is_vague)
    return Phrase(text, key, tuple(_PIECE.findall(text)), carrying or frozenset(key.split()), said[-1].stem, mentions)


def _rank(text: str, mentions: Sequence[Mention], oldest: int) -> float:
    newest = min(mention.age + (0.5 + 0.1 * mention.sentence if mention.role == "assistant" else 0)
                 for mention in mentions)  # fmt: skip
    is_topic = any(mention.age == oldest or mention.role not in ("user", "assistant") for mention in mentions)
    return (0.0 if is_topic else newest) - 0.3 * len(mentions) - 0.3 * text[0].isupper()


def _mentions(line: Said, place: int, age: int) -> Iterator[tuple[str, Mention]]:
    said = words(line.text)
    sentences = _sentences(line.text, said)
    beside: dict[int, set[str]] = {}
    for word, sentence in zip(said, sentences, strict=True):
        beside.setdefault(sentence, set()).add(word.stem)
    runs = list(_runs(line.text, said, sentences))
    shared = {sentence: frozenset(of) for sentence, of in beside.items()}
    for number, run in enumerate(runs):
        text = line.text[said[run.first].start : said[run.last].end]
        yield (
            text.removesuffix("'s").removesuffix("’s"),
            Mention(line.role, place, age, run.sentence, number, len(runs), run.opens, run.before,
                    shared[run.sentence]),
        )  # fmt: skip


def _sentences(text: str, said: Sequence[Word]) -> list[int]:
    """Which sentence each word is in."""
    numbers, number = [], 0
    for place, word in enumerate(said):
        if place and _SENTENCE_ENDS.search(text, said[place - 1].end, word.start):
            number += 1
        numbers.append(number)
    return numbers


def _runs(text: str, said: Sequence[Word], sentences: Sequence[int]) -> Iterator[_Run]:
    """Runs of words that carry a topic, and the names within them."""
    place, opened = 0, -1
    while place < len(said):
        if said[place].is_vague:
            place += 1
            continue
        last = _end_of_run(text, said, place)
        opens = sentences[place] != opened
        opened = sentences[place]
        before = said[place - 1].lower if place and sentences[place - 1] == sentences[place] else ""
        run = _Run(place, min(last, place + _MAX_WORDS + 2), sentences[place], opens, before)
        names = list(_names(said, run))
        if not _is_full_name(said, names, run):  # "Freddie King grew": the name is meant, without the verb
            yield run
        if names != [(run.first, run.last)]:
            for first, end in names:
                yield run._replace(first=first, last=end)
        place = last + 1


def _is_full_name(said: Sequence[Word], names: Sequence[tuple[int, int]], run: _Run) -> bool:
    """Whether the run is a name of two words or more and one word that is none."""
    first, end = names[0] if names else (run.last, run.last)
    return first == run.first and end > first and end == run.last - 1 and not said[run.last].is_capital


def _end_of_run(text: str, said: Sequence[Word], first: int) -> int:
    last = first
    while last + 1 < len(said) and text[said[last].end : said[last + 1].start].strip() in ("", "-"):
        if not said[last + 1].is_vague:
            last += 1
        elif (reached := _over_link(text, said, last)) > last:
            last = reached
        else:
            break
    return last


def _over_link(text: str, said: Sequence[Word], last: int) -> int:
    """Where a name goes on behind "of" or "of the"; `last` where it does not."""
    if not said[last].is_capital or said[last + 1].lower not in _LINKS:
        return last
    target = last + (3 if last + 2 < len(said) and said[last + 2].lower == "the" else 2)
    if target >= len(said) or not said[target].is_capital or said[target].is_vague:
        return last
    return target if "".join(text[said[i].end : said[i + 1].start] for i in range(last, target)).isspace() else last


def _names(said: Sequence[Word], run: _Run) -> Iterator[tuple[int, int]]:
    """The stretches of capitalized words in a run."""
    place = run.first
    while place <= run.last:
        end = place
        while end < run.last and (said[end + 1].is_capital or (
            said[end + 1].lower in _LINKS and end + 2 <= run.last and said[end + 2].is_capital
        )):  # fmt: skip
            end += 1
        if said[place].is_capital:
            yield place, end
        place = end + 1
