"""What anchors a chat: the system prompt, pinned messages, and the first messages (the attention sink).

They stand first in every context and are never left out.
Source of the sink: Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks; there the first
tokens are kept, here whole messages.
"""

from collections.abc import Sequence

from backscroll.exchanges import sendable
from backscroll.types import Line, Message

INSTRUCTING = ("system", "developer")
REPLACES_SYSTEM = "replaces_system"  # metadata of a system prompt that was sent anew later: for the how manieth time


def leading_system(messages: Sequence[Message]) -> int:
    """How many messages stand before the first that anyone says."""
    return next((i for i, message in enumerate(messages) if message.role not in INSTRUCTING), len(messages))


def system_prompt(first_lines: Sequence[Line], pinned: Sequence[Line]) -> list[Line]:
    """The system prompt in force: the one that was sent anew last, else what stands before anyone speaks."""
    replacing = [line for line in pinned if line.message.metadata.get(REPLACES_SYSTEM)]
    newest = max((line.message.metadata[REPLACES_SYSTEM] for line in replacing), default=None)
    in_force = [line for line in replacing if line.message.metadata[REPLACES_SYSTEM] == newest]
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
    replacing = [line for line in pinned if line.message.metadata.get(REPLACES_SYSTEM)]
    others = {line.row: line for line in (*sink, *pinned) if line not in replacing and line not in system}
    ordered = sorted(others.values(), key=lambda line: line.position)
    chosen = [*system, *ordered]
    return [chosen[place] for place in sendable([line.message.payload for line in chosen])]
