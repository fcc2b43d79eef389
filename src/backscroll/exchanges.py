"""Which messages belong together: a call and its results, and a question with all that answered it.

Two units, both as ranges of places in a list of messages:

    an atom      one message, or an assistant's calls with the results that follow them; a provider refuses parts
    an exchange  a user's message and everything up to the next one

Knows nothing about tokens or stores.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from backscroll.messages import is_empty

Payload = Mapping[str, Any]  # an OpenAI-style message, checked


def atoms(messages: Sequence[Payload]) -> list[range]:
    """Split messages into the smallest runs that may be sent alone, in order; together they are all of them."""
    if not any(map(_is_of_call, messages)):  # most chats call nothing
        return [range(place, place + 1) for place in range(len(messages))]
    runs = []
    start = 0
    while start < len(messages):
        stop = start + 1
        waiting = call_ids(messages[start])
        while stop < len(messages) and _answers(messages[stop], waiting):
            waiting = waiting - {messages[stop]["tool_call_id"]}
            stop += 1
        runs.append(range(start, stop))
        start = stop
    return runs


def is_whole(messages: Sequence[Payload]) -> bool:
    """Whether an atom may be sent: every call in it has its result, every result its call.

    >>> is_whole([{"role": "tool", "tool_call_id": "c1", "content": "12 km"}])
    False
    """
    if messages[0]["role"] == "tool":
        return False
    answered = {message["tool_call_id"] for message in messages[1:]}
    return call_ids(messages[0]) == answered


def exchanges(messages: Sequence[Payload]) -> list[range]:
    """Split messages into exchanges, in order; what stands before the first user's message is one of its own.

    Users who speak one after the other share an exchange only where nobody spoke between them.
    """
    if not messages:
        return []
    starts = [0]
    for place in range(1, len(messages)):
        opens = messages[place]["role"] == "user"
        if opens and messages[place - 1]["role"] != "user":
            starts.append(place)
        elif opens and _is_named_talk(messages[place - 1], messages[place]):
            starts.append(place)
    return [range(start, stop) for start, stop in pairwise([*starts, len(messages)])]


def call_ids(payload: Payload) -> frozenset[str]:
    """The ids of the calls that a message makes."""
    return frozenset(str(call["id"]) for call in payload.get("tool_calls") or ())


def _is_of_call(payload: Payload) -> bool:
    return payload["role"] == "tool" or bool(payload.get("tool_calls"))


def _answers(payload: Payload, waiting: frozenset[str]) -> bool:
    return payload["role"] == "tool" and payload["tool_call_id"] in waiting


def _is_named_talk(before: Payload, after: Payload) -> bool:
    """In a meeting every speaker is a user: there a change of the speaker opens the next exchange."""
    return before.get("name") != after.get("name")


def sendable(messages: Sequence[Payload]) -> list[int]:
    """Places of the messages that a provider takes: not empty, every call with all its results.

    Returns: places, ascending.
    """
    if not any(map(_is_of_call, messages)):
        return [place for place, message in enumerate(messages) if not is_empty(message)]
    places: list[int] = []
    for atom in atoms(messages):
        run = [messages[place] for place in atom]
        if is_whole(run):
            places.extend(place for place in atom if not is_empty(messages[place]))
    return places
