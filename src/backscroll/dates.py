"""The days that a question speaks of: "in August", "on 7 May 2023", "2023-05-07", "last week".

English names of months, figures, and a few words that count back from now. What is found raises the rank of lines of
those days; it never leaves a line out, since what was said in May may tell of April.
Knows nothing about lines.
"""

import re
from datetime import date, timedelta

from backscroll.types import Days

_MONTHS = "january february march april may june july august september october november december".split()
_MONTH = "|".join(_MONTHS)
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?:,?\s+(?:of\s+)?(?P<year>(?:19|20)\d\d))?"
_NAMED = (
    re.compile(rf"\b{_DAY}\s+(?:of\s+)?(?P<month>{_MONTH})\b{_YEAR}", re.IGNORECASE),
    re.compile(rf"\b(?P<month>{_MONTH})\s+{_DAY}\b(?!\s*(?:am|pm|:)){_YEAR}", re.IGNORECASE),
    re.compile(rf"\b(?P<month>{_MONTH}){_YEAR}", re.IGNORECASE),
)
_ISO = re.compile(r"\b(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)(?:-(?P<day>\d\d))?\b")
_IS_A_VERB = re.compile(  # "what may she do", "they march on": no month without a figure or a word of time beside it
    r"\b(?<!\bin )(?<!\bof )(?<!\bby )(?<!\blast )(?<!\bsince )(?<!\buntil )(?<!\bduring )(?<!\d )(?<!st )(?<!nd )"
    r"(?<!rd )(?<!th )(?:may|march)\b(?!,?\s+\d)",
    re.IGNORECASE,
)
_BACK = (
    (re.compile(r"\btoday\b", re.IGNORECASE), 0, 0),
    (re.compile(r"\byesterday\b", re.IGNORECASE), 1, 1),
    (re.compile(r"\blast week\b", re.IGNORECASE), 5, 13),
    (re.compile(r"\blast month\b", re.IGNORECASE), 20, 62),
)
_AGO = re.compile(r"\b(?P<count>\d+|a|one|two|three|four|five|six)\s+(?P<unit>day|week|month)s?\s+ago\b", re.IGNORECASE)
_COUNTS = {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_MOST_DAYS = 36_500  # nobody chatted longer ago
_MAX_CHARACTERS = 20_000  # a pasted book asks about no day
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30}


def days_of(text: str, now: date | None = None) -> tuple[Days, ...]:
    """The days that a text speaks of.

    Args:
        now: the day from which "yesterday" counts back; None leaves such words alone.

        >>> days_of("What did she paint on 7 May 2023?")
        (Days(month=5, day=7, year=2023, first=None, last=None),)
    """
    text = text[:_MAX_CHARACTERS]
    rest = _IS_A_VERB.sub(" ", text)
    found = [_named(match, int(match["month"])) for match in _ISO.finditer(rest)]
    for pattern in _NAMED:
        found.extend(_named(match, _MONTHS.index(match["month"].lower()) + 1) for match in pattern.finditer(rest))
        rest = pattern.sub(" ", rest)
    if now is not None:
        found.extend(_back(text, now))
    return tuple(found)


def _named(match: re.Match[str], month: int) -> Days:
    parts = match.groupdict()
    day, year = parts.get("day"), parts.get("year")
    return Days(month, int(day) if day else None, int(year) if year else None)


def _back(text: str, now: date) -> list[Days]:
    """Spans that are told by how long ago they were, as wide as people mean them."""
    spans = [(least, most) for pattern, least, most in _BACK if pattern.search(text)]
    for match in _AGO.finditer(text):
        count = _COUNTS.get(match["count"].lower()) or int(match["count"])
        unit = _UNIT_DAYS[match["unit"].lower()]
        spans.append((count * unit - unit // 2, count * unit + unit // 2))
    return [
        Days(first=now - timedelta(days=most), last=now - timedelta(days=least))
        for least, most in spans
        if most < min(_MOST_DAYS, now.toordinal())
    ]
