"""A message that leaves something out + a phrase -> the message that says it.

A pronoun of the third person, or one that points ("this", "those"), is replaced by the phrase; where there is none
the phrase is appended: texts that read like what a human would have written lie closer to it than keywords behind
the message do (with the best phrase .13 to .41 of the message's own distance, in brackets .22 to .46; docs/LOG.md).
Knows nothing about which phrase is meant.

    >>> say("Is it treatable?", "lung cancer")
    'Is lung cancer treatable?'
    >>> say("What are his best songs?", "Bob Dylan")
    "What are Bob Dylan's best songs?"
    >>> say("What are the symptoms?", "anemia")
    'What are the symptoms of anemia?'
"""

import re

KINDS = {
    "it": "it",
    "its": "it",
    "it's": "it",
    "itself": "it",
    "they": "they",
    "them": "they",
    "their": "they",
    "theirs": "they",
    "they're": "they",
    "they've": "they",
    "themselves": "they",
    "he": "person",
    "him": "person",
    "his": "person",
    "he's": "person",
    "himself": "person",
    "she": "person",
    "her": "person",
    "hers": "person",
    "she's": "person",
    "herself": "person",
    "this": "pointing",
    "that": "pointing",
    "these": "pointing",
    "those": "pointing",
    "that's": "pointing",
    "there": "place",
    "then": "place",
    "here": "place",
    "one": "one",
    "ones": "one",
    "other": "one",
    "others": "one",
    "another": "one",
    "same": "one",
}
_REPLACEABLE = re.compile(
    r"\b(it's|it|itself|its|they're|they|them|theirs|their|themselves|he's|he|him|his|himself|she's|she|hers|her|"
    r"herself|that's|this|that|these|those|there)\b(?!['’])",
    re.IGNORECASE,
)
_POSSESSIVE = frozenset({"its", "their", "his", "theirs", "hers"})
_OF_THEM = frozenset({"their", "theirs", "themselves"})
_TIME = re.compile(
    r"\s+(day|night|morning|afternoon|evening|week|weekend|month|year|time|spring|summer|fall|autumn|winter|"
    r"(mon|tues|wednes|thurs|fri|satur|sun)day)\b",
    re.IGNORECASE,
)
_TAKES = re.compile(r"\s+(take|takes|took)\b", re.IGNORECASE)  # "how long did it take to …"
_WITH_IS = frozenset({"it's", "he's", "she's", "that's"})
_NAME = re.compile(r"(?<=\w )(?!I\b)[A-Z]\w+")  # behind the first word, which is capitalized anyway
# What may follow a pronoun that stands by itself; before other words "this" and "her" belong to a noun.
_NO_NOUN = re.compile(
    r"\s+(is|are|was|were|do|does|did|has|have|had|can|could|will|would|should|in|on|at|for|to|with|from|by|of|and|or|"
    r"as|be|been|any|not|so|if|when|a|an|the|it|he|she|they|about|work|start|happen|get|go|make|come|differ|compare)\b",
    re.IGNORECASE,
)


def reference(message: str) -> re.Match[str] | None:
    """The first pronoun that a phrase can take the place of."""
    return next((found for found in _REPLACEABLE.finditer(message) if _is_replaceable(message, found)), None)


def kind(message: str) -> str:
    """What kind of pronoun that is: it, they, person, pointing, place; empty where there is none."""
    found = reference(message)
    return KINDS[found.group().lower()] if found else ""


def say(message: str, phrase: str) -> str:
    """The message with the phrase in the place of its first pronoun, or at its end."""
    found = reference(message)
    if not found:
        return _append(message, phrase)
    word, rest = found.group().lower(), message[found.end() :]
    if word in _WITH_IS:
        said = f"{phrase} is"
    elif word == "they're":
        said = f"{phrase} are"
    elif word in _POSSESSIVE or (word == "her" and _has_noun(rest)):
        said = f"{phrase}'" if phrase.endswith("s") else f"{phrase}'s"
    else:
        said = phrase
    return message[: found.start()] + said + rest


def _is_replaceable(message: str, found: re.Match[str]) -> bool:
    """Not "there is", "that" before a clause, "this week", "did it take", nor "her" behind a name."""
    word, rest = found.group().lower(), message[found.end() :]
    if (KINDS[word] == "person" or word in _OF_THEM) and _NAME.search(message[: found.start()]):
        return False
    if word == "it" and _TAKES.match(rest):
        return False
    if KINDS[word] == "pointing" and _TIME.match(rest):
        return False
    if word == "there":
        return not rest.strip(" ?.!,")
    return word != "that" or not message[: found.start()].strip() or not _has_noun(rest)


def _has_noun(rest: str) -> bool:
    return bool(rest.strip(" ?.!,")) and rest[0] not in ",?.!" and not _NO_NOUN.match(rest)


def _append(message: str, phrase: str) -> str:
    bare = message.rstrip()
    end = bare[-1:] if bare[-1:] in ("?", ".", "!") else ""
    return f"{bare[: len(bare) - len(end)].rstrip()} of {phrase}{end}"
