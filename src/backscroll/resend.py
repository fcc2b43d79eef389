"""A resent history against the stored one: what is new, and where it goes another way.

Decides only; knows nothing about stores or branches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from backscroll.types import Message


@dataclass(frozen=True, slots=True)
class Resent:
    """What a resent history says.

    Attributes:
        same: how many stored messages it confirms, from the first one on.
        new: the messages to store behind them.
        differs: whether stored messages behind the confirmed ones are not in it: the thread goes on as a branch.
    """

    same: int
    new: tuple[Message, ...]
    differs: bool


def compare(stored: Sequence[Message], resent: Sequence[Message]) -> Resent:
    """Match a resent history with the stored one by content and place.

    A client that only keeps its newest messages resends an end of what is stored: that is no other way.
    """
    same = common(stored, resent)
    if same == 0 and stored and resent:
        overlap = _overlap(stored, resent)
        if overlap:
            return Resent(len(stored), tuple(resent[overlap:]), differs=False)
    return Resent(same, tuple(resent[same:]), differs=same < len(stored))


def common(stored: Sequence[Message], resent: Sequence[Message]) -> int:
    """How many messages both begin with."""
    same = 0
    while same < min(len(stored), len(resent)) and stored[same].payload == resent[same].payload:
        same += 1
    return same


def _overlap(stored: Sequence[Message], resent: Sequence[Message]) -> int:
    """The longest end of the stored messages that the resent ones begin with, or 0."""
    for length in range(min(len(stored), len(resent)), 0, -1):
        if common(stored[-length:], resent[:length]) == length:
            return length
    return 0
