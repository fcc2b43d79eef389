"""The prompt -> what is asked: the messages that come last, the text to search for, and the place in the thread.

A new prompt stands alone. Where the stored messages themselves are asked for, or a tool's result is given, what comes
last is the exchange in progress: the newest user's message, the calls, and their results. What others stored amid it,
as another tab does while a tool runs, stands in front of it.
Decides only; knows nothing about tokens or stores.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backscroll.errors import LLMError, MessageError
from backscroll.exchanges import sendable
from backscroll.messages import is_empty, parse_message
from backscroll.types import Line, Message, Source


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked.

    Attributes:
        messages: what comes last, in order.
        lines: the stored line of each of them; None for one that is not stored.
        before: the newest stored lines in front of them, oldest first.
        text: what to search for; empty where there are no words.
        at: the position asked at: where the next line of the thread will stand.
    """

    messages: tuple[Message, ...]
    lines: tuple[Line | None, ...]
    before: tuple[Line, ...]
    text: str
    at: int


def ask_for(
    prompt: str | Mapping[str, Any] | Message | None, newest: Sequence[Line], own: Sequence[Source] = ()
) -> Asked:
    """Take a prompt and the newest stored lines apart.

    Args:
        prompt: text, a message, or None for the messages stored so far.
        newest: the newest lines of the thread, oldest first, down to the question in progress at least.
        own: where lines of the exchange in progress stand, in order; empty where all of the newest may be of it.

    Raises: MessageError for an empty prompt, or for None where nothing is stored; LLMError where lines of the exchange
        are gone.
    """
    given = parse_prompt(prompt)
    at = newest[-1].position + 1 if newest else 0
    if given is not None and given.role != "tool":
        return Asked((given,), (None,), tuple(newest), given.text, at)
    if not {line.source for line in newest}.issuperset(own):
        raise LLMError("lines of this turn were deleted, or left for a branch, while it went on: ask again")
    others = [line for line in newest if is_meanwhile(line, own)]
    ours = [line for line in newest if not is_meanwhile(line, own)]
    start = max((i for i, line in enumerate(ours) if line.message.role == "user"), default=0)
    before, stored = (*ours[:start], *others), tuple(ours[start:])
    if not stored:
        raise MessageError("nothing is stored in this thread yet: give a prompt")
    messages = tuple(line.message for line in stored)
    text = stored[0].message.text
    if given is None:
        return Asked(messages, stored, before, text, at)
    if len(messages) not in sendable([*(message.payload for message in messages), given.payload]):
        raise MessageError("a tool's result answers the last call of the thread, with all its other results before it")
    return Asked((*messages, given), (*stored, None), before, text, at)


def is_meanwhile(line: Line, own: Sequence[Source]) -> bool:
    """Whether a line was stored by others amid an exchange of which `own` are stored."""
    return bool(own) and line.position > own[0].position and line.source not in own


def parse_prompt(prompt: str | Mapping[str, Any] | Message | None) -> Message | None:
    """The prompt as a message; None stays None.

    Raises: MessageError for an empty one, and for one that is neither a user's message nor a tool's result.
    """
    if prompt is None:
        return None
    if isinstance(prompt, str):
        if not prompt.strip():
            raise MessageError("the prompt is empty: give text, a message, or None to ask for what is stored")
        return parse_message({"role": "user", "content": prompt})
    given = parse_message(prompt)
    if given.role not in ("user", "tool"):
        raise MessageError(
            f"a prompt is a user's message or a tool's result, not of role {given.role}: append it first"
        )
    if is_empty(given.payload):
        raise MessageError("the prompt is empty: give text, a message, or None to ask for what is stored")
    return given
