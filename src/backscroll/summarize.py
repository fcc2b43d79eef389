"""Lines that left the window -> a rolling summary, without a language model.

The thread is cut into chunks of whole exchanges, `CHUNK_TOKENS` each, on boundaries that depend on its lines alone.
A chunk that has left the window becomes a summary of its most telling sentences, word for word. Four neighbors in a
row become one summary of a higher level when the fourth is there, so that a long thread has a few of each level:
what is old is told in fewer words. Chunks are only ever appended behind what stands; the same lines always give the
same summaries.
Source of the sentence score: the mean log frequency of its terms in the chunk, after SumBasic (Nenkova and
Vanderwende 2005); unlike there, nothing is re-weighted after a choice, and figures and names count more.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence

from backscroll.exchanges import atoms, exchanges
from backscroll.terms import terms
from backscroll.types import Line, Summary

METHOD, METHOD_MERGED = "extractive-1", "extractive-1 merged"
CHUNK_TOKENS = 500
SUMMARY_TOKENS = 60  # of one summary, at any level
FAN_IN = 4

_SENTENCE = re.compile(r"[^.!?。！？\n]+(?:[.!?。！？]+|\n|$)")
_MIN_TERMS, _MAX_CHARACTERS = 3, 300

Counting = Callable[[str], int]


def chunks(lines: Sequence[Line]) -> list[Sequence[Line]]:
    """The whole chunks in lines that begin where a chunk begins; the open one at the end is left out.

    A chunk ends where an exchange does; one that would be twice too long ends at any message, or call with results.
    """
    whole: list[Sequence[Line]] = []
    start = 0
    payloads = [line.message.payload for line in lines]
    opening = {exchange.start for exchange in exchanges(payloads)}
    for atom in atoms(payloads):
        held = lines[atom.start].offset - lines[start].offset
        if held >= (CHUNK_TOKENS if atom.start in opening else 2 * CHUNK_TOKENS):
            whole.append(lines[start : atom.start])
            start = atom.start
    return whole


def summarize(lines: Sequence[Line], count: Counting) -> Summary:
    """The most telling sentences of a chunk, in its order, at most SUMMARY_TOKENS of them.

    Args:
        lines: a chunk, not empty.
        count: tokens of a text.
    """
    talk = [line for line in lines if line.message.role in ("user", "assistant")]
    said = [(line, sentence) for line in talk for sentence in _sentences(line)]
    frequency = Counter(term for _, sentence in said for term in set(terms(sentence)))
    spoken = [f"{line.speaker}: {sentence}" for line, sentence in said]
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


def cover(parts: Sequence[Summary], before: int, merged: Callable[[Sequence[Summary]], Summary]) -> list[Summary]:
    """The fewest summaries that tell all whole chunks before a position: old ones merged, by fours.

    Args:
        parts: the summaries of single chunks, in order, without a gap.
        before: position where the window starts.
        merged: `merge`, or where its result is kept already.
    """
    level = [part for part in parts if part.last < before]
    rest: list[Summary] = []
    while len(level) >= FAN_IN:
        full = len(level) - len(level) % FAN_IN
        rest = [*level[full:], *rest]
        level = [merged(level[i : i + FAN_IN]) for i in range(0, full, FAN_IN)]
    return [*level, *rest]


def _sentences(line: Line) -> list[str]:
    found = (match.group().strip() for match in _SENTENCE.finditer(line.message.text))
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
