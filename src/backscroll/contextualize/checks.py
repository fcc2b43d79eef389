"""Whether a query that a language model wrote may take the place of the message that it was made of.

It may say what the lines and the message say, in other words, and no more. What cannot be told for sure counts against
it: the message as it is is always there instead.

    >>> recent = [Said("user", "What is throat cancer?")]
    >>> problem_of("Is throat cancer treatable?", "Is it treatable?", recent)
    ''
    >>> problem_of("Yes, it is treatable.", "Is it treatable?", recent)
    'it is no question any more'
    >>> problem_of("Is throat cancer treatable by Dr. Reyes?", "Is it treatable?", recent)
    "it names 'Dr', which nobody said"
"""

import re
from collections.abc import Sequence

from backscroll.contextualize.values import Said
from backscroll.terms import terms

_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")
_WORD = re.compile(r"[^\W\d_][\w'’-]*")
_SENTENCE_END = re.compile(r"(?:^|[!?:]|(?<!\b[A-Z])(?<!\b[A-Z]\w)(?<!\b[A-Z]\w\w)\.)[\s\"']*$")  # "Dr." ends none
_QUESTION = ("?", "？", "؟", ";")
_LONGEST = 3.0  # times the message, beside what it may take from the lines
_FROM_LINES_CHARACTERS = 240
_MAX_NEW_SHARE = 0.5  # of its terms; another word order brings a few, an answer is made of them


def problem_of(query: str, message: str, recent: Sequence[Said], is_same_language: bool = True) -> str:
    """What is wrong with a query, in words; empty where nothing is.

    Args:
        query: what the model wrote.
        message: what it was made of.
        recent: the lines that the model was shown.
        is_same_language: whether it may only say what was said by the same words, names and numbers aside.
    """
    known = "\n".join([message, *(line.text for line in recent)])
    asks = message.rstrip().endswith(_QUESTION[:3])
    if not query.strip():
        return "it is empty"
    if "\n" in query.strip() or len(query) > _LONGEST * len(message) + _FROM_LINES_CHARACTERS:
        return "it is too long for a query"
    if asks and not query.rstrip().endswith(_QUESTION):
        return "it is no question any more"
    return new_in(query, known) or (_unsaid(query, known) if is_same_language else "")


def new_in(query: str, known: str) -> str:
    """The first number or name of a query that is not in what was said, in words; empty for none."""
    numbers = set(_NUMBER.findall(known))
    for number in _NUMBER.findall(query):
        if number not in numbers:
            return f"it has the number {number}, which nobody said"
    said, words = set(terms(known)), {word.casefold() for word in _WORD.findall(known)}
    for word in _WORD.finditer(query):
        name, begins = word.group(), _SENTENCE_END.search(query[: word.start()])
        if name[0].isupper() and not begins and name.casefold() not in words and not _is_said(name, said):
            return f"it names {name!r}, which nobody said"
    return ""


def _is_said(name: str, said: set[str]) -> bool:
    """Whether it is another form of a word that was said."""
    found = set(terms(name))
    return bool(found) and found <= said


def _unsaid(query: str, known: str) -> str:
    """Whether most of what it says was never said: then it is an answer, or about something else."""
    said, asked = set(terms(known)), set(terms(query))
    new = asked - said
    told = f"most of it was not said before: {', '.join(sorted(new)[:3])}"
    return told if len(new) > _MAX_NEW_SHARE * len(asked) else ""
