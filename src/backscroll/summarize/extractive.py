"""A chunk, or summaries in a row -> the most telling sentences, word for word: without a language model.

The same lines always give the same summary. Source of the sentence score: the mean log frequency of its terms in the
chunk, after SumBasic (Nenkova and Vanderwende 2005); unlike there, nothing is re-weighted after a choice, and figures
and names count more.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

from backscroll.quoting import who
from backscroll.terms import terms
from backscroll.types import Line, Summary

METHOD, METHOD_MERGED = "extractive-2", "extractive-2 merged"
SUMMARY_TOKENS = 60  # of one summary, at any level

_BREAKS = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n")  # not within 3.50 or v1.2
_MIN_TERMS, _MAX_CHARACTERS = 3, 300

Counting = Callable[[str], int]


def summarize(lines: Sequence[Line], count: Counting) -> Summary:
    """The most telling sentences of a chunk, in its order, at most SUMMARY_TOKENS of them.

    Args:
        lines: a chunk, not empty.
        count: tokens of a text.
    """
    talk = [line for line in lines if line.message.role in ("user", "assistant")]
    said = [(line, sentence) for line in talk for sentence in _sentences(line)]
    frequency = Counter(term for _, sentence in said for term in set(terms(sentence)))
    spoken = [f"{who(line)}: {sentence}" for line, sentence in said]
    chosen = _best(spoken, [_score(sentence, line, frequency) for line, sentence in said], count)
    newest = lines[-1]
    return Summary(
        user=newest.user,
        thread=newest.family,
        first=lines[0].position,
        last=newest.position,
        sentences=tuple(chosen),
        method=METHOD,
        created_at=newest.created_at,
    )


def merge(summaries: Sequence[Summary], count: Counting) -> Summary:
    """One summary of neighbors in a row: their most telling sentences in as many words as one of them has."""
    sentences = [sentence for summary in summaries for sentence in summary.sentences]
    frequency = Counter(term for sentence in sentences for term in set(terms(sentence)))
    scores = [_telling(sentence, frequency) for sentence in sentences]
    first, last = summaries[0], summaries[-1]
    return Summary(
        user=last.user,
        thread=last.thread,
        first=first.first,
        last=last.last,
        sentences=tuple(_best(sentences, scores, count)),
        method=METHOD_MERGED,
        created_at=last.created_at,
    )


def _sentences(line: Line) -> list[str]:
    found = (sentence.strip() for sentence in _BREAKS.split(line.message.text))
    return [sentence for sentence in found if sentence and len(sentence) <= _MAX_CHARACTERS]


def _score(sentence: str, line: Line, frequency: Counter[str]) -> float:
    """A user's own words tell more about the chat than an answer's."""
    return _telling(sentence, frequency) * (1.25 if line.message.role == "user" else 1.0)


def _telling(sentence: str, frequency: Counter[str]) -> float:
    found = set(terms(sentence))
    if len(found) < _MIN_TERMS or sentence.endswith(("?", "？")):
        return 0.0
    mean = math.fsum(math.log1p(frequency[term]) for term in found) / (len(found) + 2)  # fsum: in any order
    has_figure = any(c.isdigit() for c in sentence)
    has_name = any(word[:1].isupper() for word in sentence.split()[2:])  # behind the speaker and the first word
    return mean * (1.0 + 0.3 * has_figure + 0.2 * has_name)


def _best(sentences: Sequence[str], scores: Sequence[float], count: Counting) -> list[str]:
    """The best sentences that fit, in their own order."""
    left = SUMMARY_TOKENS
    chosen: list[int] = []
    for place in sorted(range(len(sentences)), key=lambda i: (-scores[i], i)):
        cost = count(sentences[place]) + 1
        if scores[place] > 0 and cost <= left:
            chosen.append(place)
            left -= cost
    return [sentences[place] for place in sorted(chosen)]
