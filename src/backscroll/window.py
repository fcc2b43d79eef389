"""The newest part of the thread: whole exchanges, as many as fit, sliding in steps.

The start of the window is not moved with every message: it stands on boundaries that are fixed in the thread, one to
a step of tokens, so that the messages in front of the newest ones stay the same, to the byte, from turn to turn,
and a provider's prefix cache can serve them. Where the window starts depends on the lines alone, on no state.
Knows nothing about recall, summaries or what else is in the budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from backscroll.exchanges import atoms, exchanges
from backscroll.types import Line


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """What the window may and must hold, in tokens of the counter in force.

    Attributes:
        max_tokens: the most it takes by itself.
        min_tokens: it grows up to this where the thread has lines, even by an exchange that passes max_tokens, or by
            the end of one that does not fit.
        space_tokens: what it never passes: all that is left beside the parts that must be in.
        step_tokens: how far the start moves at once; 0 moves it with every message.
        max_messages: the window is just so many newest messages; None for no such cap.
        unit: what stays together.
        skip_oversized: whether older units are tried after one that does not fit.
        from_first: whether the lines go back to the thread's first; else the first of them may stand amid an exchange.
    """

    max_tokens: int
    min_tokens: int
    space_tokens: int
    step_tokens: int
    max_messages: int | None = None
    unit: Literal["exchange", "message"] = "exchange"
    skip_oversized: bool = False
    from_first: bool = False


def window(lines: Sequence[Line], tokens: Sequence[int], limits: WindowLimits) -> list[int]:
    """Choose the places of the lines that are in the window.

    Args:
        lines: the newest lines of the thread, oldest first, each one sendable.
        tokens: what each costs as a message, by the counter in force.
        limits: see there.

    Returns: places in `lines`, ascending.
    """
    if not lines:
        return []
    split = atoms if limits.unit == "message" else exchanges
    units = split([line.message.payload for line in lines])
    if limits.max_messages is not None:
        return _newest_messages(units, tokens, limits)
    if limits.step_tokens == 0:
        return _newest_first(units, tokens, limits.max_tokens, limits.skip_oversized)
    kept = _stepped(lines, units, tokens, limits)
    if not kept and limits.unit == "exchange":  # the newest exchange alone does not fit
        kept = _stepped(
            lines, atoms([line.message.payload for line in lines]), tokens, replace(limits, from_first=True)
        )
    return _filled(lines, kept, tokens, limits)


def _newest_messages(units: Sequence[range], tokens: Sequence[int], limits: WindowLimits) -> list[int]:
    """The newest units of at most max_messages messages together, but the newest unit in any case."""
    kept: list[int] = []
    for unit in reversed(units):
        is_full = bool(kept) and len(kept) + len(unit) > (limits.max_messages or 0)
        if is_full or _sum(tokens, [*unit, *kept]) > limits.max_tokens:
            break
        kept = [*unit, *kept]
    return kept if limits.max_messages else []


def _newest_first(units: Sequence[range], tokens: Sequence[int], max_tokens: int, skip_oversized: bool) -> list[int]:
    """From the newest unit to the oldest until one does not fit, or past it where smaller ones may follow."""
    kept: list[int] = []
    left = max_tokens
    for unit in reversed(units):
        cost = _sum(tokens, unit)
        if cost <= left:
            kept = [*unit, *kept]
            left -= cost
        elif not skip_oversized:
            break
    return kept


def _stepped(lines: Sequence[Line], units: Sequence[range], tokens: Sequence[int], limits: WindowLimits) -> list[int]:
    """Start at the oldest fixed boundary from which on everything fits."""
    costs = [_sum(tokens, unit) for unit in units]
    after = list(accumulate(reversed(costs), initial=0))[::-1]  # after[i]: tokens from unit i to the end
    first_whole = 0 if limits.from_first else 1  # amid the thread the first unit may lack its beginning
    fitting = (i for i in range(first_whole, len(units)) if after[i] <= limits.max_tokens)
    start = next((i for i in fitting if i == 0 or _is_boundary(lines, units[i], limits.step_tokens)), len(units))
    while start > first_whole and after[start - 1] <= limits.space_tokens:
        holds_too_little = after[start] < limits.min_tokens
        is_second = len(units) - start < 2 and after[start - 1] <= limits.max_tokens
        if not (holds_too_little or is_second):
            break
        start -= 1
    return list(range(units[start].start, len(lines))) if start < len(units) else []


def _filled(lines: Sequence[Line], kept: list[int], tokens: Sequence[int], limits: WindowLimits) -> list[int]:
    """With the end of the next older exchange, where the whole exchanges hold less than the window has to."""
    held = _sum(tokens, kept)
    older = lines[: kept[0]] if kept else lines
    for atom in reversed(atoms([line.message.payload for line in older])):
        cost = _sum(tokens, atom)
        if held >= limits.min_tokens or held + cost > limits.space_tokens:
            break
        kept = [*atom, *kept]
        held += cost
    return kept


def _is_boundary(lines: Sequence[Line], unit: range, step_tokens: int) -> bool:
    """Whether a multiple of step_tokens lies in the unit, counted in stored tokens from the thread's first line."""
    begin = lines[unit.start].offset
    end = lines[unit[-1]].offset + lines[unit[-1]].tokens
    return -(-begin // step_tokens) * step_tokens < end


def _sum(tokens: Sequence[int], places: Sequence[int]) -> int:
    return sum(tokens[place] for place in places)
