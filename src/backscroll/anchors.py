"""What anchors a chat: the system prompt, pinned messages, and the first messages (the attention sink).

They stand first in every context and are never left out.
Source of the sink: Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks; there the first
tokens are kept, here whole messages.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from backscroll.exchanges import sendable
from backscroll.types import Line

FIRST_LINES = 16  # of a thread, where the system prompt and the sink are looked for
INSTRUCTING = ("system", "developer")
REPLACES_SYSTEM = "replaces_system"  # key in the metadata of a system prompt that was sent anew later


class Said(Protocol):
    """A message, or what a store tells of one."""

    @property
    def role(self) -> str:
        """Who speaks."""

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What is known of it."""


def leading_system(messages: Sequence[Said]) -> int:
    """How many messages stand before the first that anyone says."""
    return next((i for i, message in enumerate(messages) if message.role not in INSTRUCTING), len(messages))


def times_replaced(message: Said) -> int:
    """For a system prompt that was sent anew, for the how manieth time; 0 for any other message."""
    times = message.metadata.get(REPLACES_SYSTEM)
    return times if message.role in INSTRUCTING and isinstance(times, int) else 0


def system_prompt(first_lines: Sequence[Line], pinned: Sequence[Line]) -> list[Line]:
    """The system prompt in force: the one that was sent anew last, else what stands before anyone speaks."""
    newest = max((times_replaced(line.message) for line in pinned), default=0)
    in_force = [line for line in pinned if newest and times_replaced(line.message) == newest]
    return in_force or list(first_lines[: leading_system([line.message for line in first_lines])])


def anchors(first_lines: Sequence[Line], pinned: Sequence[Line], sink_messages: int) -> list[Line]:
    """Choose the anchors.

    Args:
        first_lines: the thread's first lines, in order.
        pinned: the thread's pinned lines, in order.
        sink_messages: how many messages after the system prompt belong to the anchors.

    Returns: system prompt, then sink and pins in the order of the thread; no line twice.
    """
    leading = leading_system([line.message for line in first_lines])
    system = system_prompt(first_lines, pinned)
    sink = first_lines[leading : leading + sink_messages]
    talk = [line for line in (*sink, *pinned) if not times_replaced(line.message)]
    others = {line.row: line for line in talk if line not in system}
    ordered = sorted(others.values(), key=lambda line: line.position)
    chosen = [*system, *ordered]
    return [chosen[place] for place in sendable([line.message.payload for line in chosen])]
