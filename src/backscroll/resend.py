"""A resent history against the stored one: what is new, and where it goes another way.

Decides only; knows nothing about stores or branches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

_SURE = 2  # messages in a row that are the same: a greeting alone stands in many places


@dataclass(frozen=True, slots=True)
class Resent:
    """What a resent history says.

    Attributes:
        same: how many stored messages it confirms, from the first one on.
        known: how many of its own messages are those; what comes behind them is to be stored.
        differs: whether stored messages behind the confirmed ones are not in it: the thread goes on as a branch.
    """

    same: int
    known: int
    differs: bool


def compare(stored: Sequence[int], resent: Sequence[int]) -> Resent:
    """Match a resent history with the stored one by content and place; both are told as fingerprints.

    A client that only keeps its newest messages resends an end of what is stored: that is no other way. It may edit one
    of them too: two messages in a row are enough to know the place.
    """
    same = common(stored, resent)
    start = 0
    if same == 0 and stored and resent:
        start, same = _place(stored, resent)
    reached = start + same
    return Resent(reached, same, differs=reached < len(stored))


def common(stored: Sequence[int], resent: Sequence[int]) -> int:
    """How many messages both begin with."""
    return _run(stored, 0, resent)


def _place(had: Sequence[int], told: Sequence[int]) -> tuple[int, int]:
    """Where in the stored messages the resent ones begin, and how many follow each other there; (0, 0) for nowhere.

    The longest run counts, of those the latest; one message alone may stand anywhere, and counts at the end only.
    """
    runs = [(_run(had, start, told), start) for start in range(len(had)) if had[start] == told[0]]
    known = [(run, start) for run, start in runs if run >= _SURE or start + run == len(had)]
    run, start = max(known, default=(0, 0))
    return start, run


def _run(had: Sequence[int], start: int, told: Sequence[int]) -> int:
    pairs = zip(islice(had, start, None), told, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
