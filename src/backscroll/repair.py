"""Messages -> messages that every provider takes: the last step after every other.

A call and its results stay together or go together, no message is empty, and where it is asked for, the roles take
turns and a user's message comes first, as strict chat templates want it. Doing it twice changes nothing.
Knows nothing about budgets or stores.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from backscroll.exchanges import sendable

OPENING = "(The chat goes on:)"  # stands for the user where the first message would be the assistant's
_PLAIN = {"role", "content", "name"}
_INSTRUCTING = ("system", "developer")


def repair(messages: Sequence[Mapping[str, Any]], merge_roles: bool) -> list[dict[str, Any]]:
    """Leave out what a provider would refuse, and where asked let the roles alternate.

    Args:
        messages: OpenAI-style dicts, checked; they are not changed.
        merge_roles: whether neighbors of the same role become one message.
    """
    places = sendable(messages)
    whole = [dict(messages[place]) for place in places]
    return _alternating(whole) if merge_roles else whole


def _alternating(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    merged: list[dict[str, Any]] = []
    for message in messages:
        if not merged or merged[-1]["role"] in _INSTRUCTING:
            if message["role"] == "assistant":
                merged.append({"role": "user", "content": OPENING})
        if merged and _may_merge(merged[-1], message):
            merged[-1] = _merge(merged[-1], message)
        else:
            merged.append(message)
    return merged


def _may_merge(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    is_talk = before["role"] == after["role"] and before["role"] in ("user", "assistant")
    return is_talk and _says(before) <= _PLAIN and _says(after) <= _PLAIN | {"tool_calls"}


def _says(message: Mapping[str, Any]) -> set[str]:
    """The keys that say something; clients send others along that are empty."""
    return {key for key, value in message.items() if value}


def _merge(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """One message of two; where different people spoke, each is named in the text instead.

    What an assistant says before it calls tools goes into the message with the calls.
    """
    merged: dict[str, Any] = {"role": before["role"]}
    if before.get("name") == after.get("name"):
        if before.get("name"):
            merged["name"] = before["name"]
        first, second = before["content"], after.get("content")
    else:
        first, second = _named(before), _named(after)
    if after.get("tool_calls"):
        merged["tool_calls"] = after["tool_calls"]
    if not second:
        merged["content"] = first
    elif isinstance(first, str) and isinstance(second, str):
        merged["content"] = f"{first}\n\n{second}"
    else:
        merged["content"] = [*_parts(first), *_parts(second)]
    return merged


def _named(message: Mapping[str, Any]) -> Any:
    name, content = message.get("name"), message.get("content")
    if not name or not content:
        return content
    return f"{name}: {content}" if isinstance(content, str) else [{"type": "text", "text": f"{name}:"}, *content]


def _parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
