"""Whether two messages say the same, however a client writes it.

A client that resends its history writes a message otherwise than it came: content as a list of parts, keys of null,
a call's arguments with other spaces, blanks at the ends left out; and a reply with what the model thought in front,
which is not stored. What stays the same is hashed here.
Knows nothing about threads.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from json.encoder import encode_basestring_ascii as quoted
from types import NoneType
from typing import Any

from backscroll.messages import text_of, without_thought
from backscroll.types import Message

_ENCODER = json.JSONEncoder(sort_keys=True)  # json.dumps makes one for each call
_PLAIN = frozenset({"role", "content", "name"})


def fingerprint(payload: Mapping[str, Any]) -> int:
    """A number of 64 bits, with its sign, for what a message says.

    >>> plain = {"role": "user", "content": "Hi!"}
    >>> parts = {"role": "user", "content": [{"type": "text", "text": " Hi! "}], "name": None}
    >>> fingerprint(plain) == fingerprint(parts)
    True
    >>> fingerprint(plain) == fingerprint({"role": "assistant", "content": "Hi!"})
    False
    """
    content, name = payload.get("content"), payload.get("name") or None
    if type(content) is str and payload.keys() <= _PLAIN and type(name) in (str, NoneType):
        # nearly every message: the same bytes in a sixth of the time
        role, named = payload["role"], quoted(name) if name else "null"
        text = without_thought(content) if role == "assistant" else content
        return _hashed(f"[{quoted(role)}, {named}, {quoted(text.strip())}, [], [], null]")
    said = [
        payload["role"],
        name,
        (_text(payload) or str(payload.get("refusal") or "")).strip(),
        _beside_text(content),
        [_call(call) for call in payload.get("tool_calls") or ()],
        payload.get("tool_call_id") or None,
    ]
    return _hashed(_ENCODER.encode(said))


def says_the_same(one: Message, other: Message) -> bool:
    """Whether both say the same."""
    return one.payload == other.payload or fingerprint(one.payload) == fingerprint(other.payload)


def _text(payload: Mapping[str, Any]) -> str:
    text = text_of(payload.get("content"))
    return without_thought(text) if payload["role"] == "assistant" else text


def _hashed(said: str) -> int:
    return int.from_bytes(blake2b(said.encode(), digest_size=8).digest(), signed=True)


def _beside_text(content: object) -> list[Any]:
    """Images, audio, files."""
    parts = content if isinstance(content, list) else []
    return [part for part in parts if not (isinstance(part.get("text"), str) or isinstance(part.get("refusal"), str))]


def _call(call: Mapping[str, Any]) -> list[Any]:
    called = call.get("function") or call.get("custom") or {}
    given = called.get("arguments") or called.get("input")
    return [call.get("id"), called.get("name"), _arguments(given)]


def _arguments(given: Any) -> Any:
    """A call's arguments as values where they are JSON."""
    try:
        return json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        return given
