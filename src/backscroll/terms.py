"""A text's terms: what the text index holds of a line, and what a query asks it for.

Words are folded (NFKC, case, accents), English stop words left out, and the rest stemmed by Snowball's English
stemmer, which leaves most words of other languages alone. Scripts that are written without spaces become
overlapping pairs of characters, which finds their words without a dictionary.
Knows nothing about users, scores or stores.

    >>> terms("She's painting sunrises, isn't she?")
    ['paint', 'sunris']
    >>> terms("我喜欢这个颜色")
    ['我喜', '喜欢', '欢这', '这个', '个颜', '颜色']
"""

import re
import threading
import unicodedata
from collections.abc import Callable
from itertools import chain
from typing import TypeVar

import Stemmer

Made = TypeVar("Made")

VERSION = "1"  # stored with the index: other rules mean that it has to be rebuilt

# Han, kana, Hangul, Thai, Lao, Khmer, Burmese, Tibetan
_UNSPACED = (
    "\u0e00-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+(?:['’][^\W_{_UNSPACED}]+)*")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")
_MAX_CHARACTERS = 40  # longer "words" are addresses and encoded data; their head is enough to find them by
_REMEMBERED_WORDS = 65_536
# ASCII, folded, with a space for all that stands between words: to split there takes a quarter of what _WORD takes.
_ASCII = bytes(ord(chr(c).lower()) if chr(c).isalnum() or c == ord("'") else ord(" ") for c in range(128)) + bytes(128)

STOP_WORDS = frozenset(
    """a about above after again against all also am an and any are aren't as at be because been before being below
    between both but by can can't cannot could couldn't did didn't do does doesn't doing don't down during each even
    ever few for from further get gets getting go goes going gonna got had hadn't has hasn't have haven't having he
    he'd he'll he's her here here's hers herself him himself his how how's i i'd i'll i'm i've if in into is isn't it
    it'd it'll it's its itself just let let's like me more most much my myself no nor not now of off oh ok okay on
    once only or other our ours ourselves out over own really s same shall she she'd she'll she's should shouldn't so
    some such t than that that'd that'll that's the their theirs them themselves then there there's these they they'd
    they'll they're they've this those through to too under until up us very was wasn't we we'd we'll we're we've well
    were weren't what what's when when's where where's which while who who's whom whose why why's will with won't
    would wouldn't yeah yes you you'd you'll you're you've your yours yourself yourselves hi
    hey hello bye thanks thank please wow haha hmm lol""".split()
)

_stemmers = threading.local()  # a Snowball stemmer may not be shared between threads


def _stem(word: str) -> str:
    if not hasattr(_stemmers, "english"):
        _stemmers.english = Stemmer.Stemmer("english")
    return str(_stemmers.english.stemWord(word))[:_MAX_CHARACTERS]


def _fold(text: str) -> str:
    """Fold compatibility forms, case and accents away; é becomes e, Ｆ becomes f."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    if folded.isascii():
        return folded
    decomposed = unicodedata.normalize("NFD", folded)
    bare = "".join(c for c in decomposed if not "\u0300" <= c <= "\u036f")  # only Latin, Greek, Cyrillic accents:
    return unicodedata.normalize("NFC", bare).replace("’", "'")  # the voice marks of kana make other words


def _terms_of(word: str) -> tuple[str, ...]:
    """What a folded word is searched by: nothing, a stem, or pairs of characters."""
    if _IS_UNSPACED.match(word):
        return tuple(word[i : i + 2] for i in range(len(word) - 1)) or (word,)
    return () if word in STOP_WORDS else (_stem(word).replace("'", ""),)


def terms_of(said: str) -> tuple[str, ...]:
    """The terms of a folded word, or of what stands between two spaces."""
    return tuple(chain.from_iterable(map(_terms_of, _WORD.findall(said))))


class Remembering(dict[str, Made]):
    """What a function makes of words, which come again and again; of long ones it is not kept."""

    def __init__(self, make: Callable[[str], Made]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, word: str) -> Made:
        made = self._make(word)
        if len(word) <= _MAX_CHARACTERS:
            if len(self) >= _REMEMBERED_WORDS:
                self.clear()  # what is in use comes back; threads need no lock for it
            self[word] = made
        return made


_known = Remembering(terms_of)


def topical_words(text: str) -> float:
    """About how many different words of a text carry a topic.

    Of scripts without spaces three characters count as one: words have one or two, and half of them carry none.

        >>> topical_words("She's painting sunrises"), round(topical_words("我喜欢这个颜色"))
        (2.0, 2)
    """
    return sum(1 / 3 if _IS_UNSPACED.match(term) else 1.0 for term in set(terms(text)))


def terms(text: str) -> list[str]:
    """The terms of a text in order, repeated as often as they occur.

    Args:
        text: any text; what is not a letter or a digit separates.
    """
    return list(chain.from_iterable(map(_known.__getitem__, words(text))))


def words(text: str) -> list[str]:
    """The folded words of a text in order; of ASCII, what stands between two spaces."""
    if text.isascii():
        return text.encode().translate(_ASCII).decode().split()
    return _WORD.findall(_fold(text))
