"""A long text -> parts that a channel carries, cut where a reader would pause. Knows nothing about channels."""

import re
import unicodedata

_PAUSES = (r"\n\s*\n", r"\n", r"(?<=[.!?…。！？])[\s)\"'”’»]*\s|(?<=[。！？])", r"(?<=[,;:])\s", r"\s")  # best first
_SHORTEST_SHARE = 0.4  # of a part: an early paragraph is no reason to send two lines and then a page
_JOINING = frozenset("\u200d\ufe0e\ufe0f")
_NUMBER = "({}/{}) "


def split(text: str, max_units: int) -> list[str]:
    """Cut a text into parts, numbered where there are several: they may arrive in another order.

    Args:
        text: what is to be sent.
        max_units: the longest part, its number included, in UTF-16 code units, which is how carriers count.

    Returns: the parts in order; none for a text of nothing but space.

        >>> split("One sentence. And one more.", 24)
        ['(1/2) One sentence.', '(2/2) And one more.']
        >>> split("Short.", 24)
        ['Short.']
    """
    if max_units < 24:
        raise ValueError(f"max_units is at least 24, not {max_units!r}")
    rest = text.strip()
    if units(rest) <= max_units:
        return [rest] if rest else []
    number = 6  # as in "(1/9) "
    while True:
        parts = _cut(rest, max_units - number)
        needed = len(_NUMBER.format(len(parts), len(parts)))
        if needed <= number:
            return [_NUMBER.format(i, len(parts)) + part for i, part in enumerate(parts, 1)]
        number = needed


def units(text: str) -> int:
    """The length of a text in UTF-16 code units.

    >>> units("a😀")
    3
    """
    return len(text) + sum(character > "\uffff" for character in text)


def _cut(rest: str, room: int) -> list[str]:
    parts = []
    while units(rest) > room:
        fits = _fitting(rest, room)
        end = _pause(rest, fits)
        parts.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return [*parts, rest] if rest else parts


def _fitting(text: str, room: int) -> int:
    """How many characters of the text fit."""
    end = min(len(text), room)
    while units(text[:end]) > room:
        end -= max(1, (units(text[:end]) - room) // 2)
    return end


def _pause(text: str, fits: int) -> int:
    """Where to cut: at the best pause that is not too early, else between two whole characters."""
    for pause in _PAUSES:
        ends = [found.end() for found in re.finditer(pause, text[: fits + 1]) if found.start() <= fits]
        if ends and ends[-1] >= fits * _SHORTEST_SHARE:
            return ends[-1]
    end = fits
    while end > 1 and _goes_on(text, end):
        end -= 1
    return end if end > 1 else fits


def _goes_on(text: str, end: int) -> bool:
    """Whether the character at `end` belongs to the one in front of it."""
    return bool(unicodedata.combining(text[end])) or text[end] in _JOINING or text[end - 1] == "\u200d"
