"""A caller's message dict -> a checked `Message`, and back to the dict that a provider is sent.

Knows nothing about threads, tokens or budgets.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from backscroll.errors import MessageError
from backscroll.types import Message

ROLES = ("system", "developer", "user", "assistant", "tool")
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)  # json.dumps makes one for each call
# Thoughts in front of a reply: a block whose tag ends its line, or a line of its own. A reply may speak of the tags.
_BLOCK = r"<think(?:ing)?>[ \t]*\r?\n.*?(?:</think(?:ing)?>\s*|\Z)"
_LINE = r"<think(?:ing)?>[^\n]*?</think(?:ing)?>[ \t]*(?:\r?\n\s*|\Z)"
_THOUGHTS = re.compile(rf"\A(?:\s*(?:{_BLOCK}|{_LINE}))+", re.DOTALL)
_UNFINISHED = re.compile(r"\A\s*<think(?:ing)?>(?!.*</think).*", re.DOTALL)
_PLAIN_KEYS, _PLAIN_ROLES = frozenset({"role", "content", "name"}), ("system", "developer", "user", "assistant")
_TEXT = {str}
_KEPT_BESIDE = ("id", "created_at", "metadata")  # ours: stored with the message and never sent


def parse_message(given: Mapping[str, Any] | Message) -> Message:
    """Check one OpenAI-style message.

    Args:
        given: a dict with ``role``, ``content`` (text, or a list of parts), and where it has them ``tool_calls``,
            ``tool_call_id``, ``name``; optional ``id`` (text), ``created_at`` (datetime, ISO 8601 text or seconds
            since 1970; without a zone it is taken as UTC) and ``metadata`` (dict). Other keys are kept and sent.

    Raises:
        MessageError: says which key is wrong and what belongs there.

        >>> parse_message({"role": "user", "content": "Hi!", "id": "m1"}).text
        'Hi!'
    """
    if isinstance(given, Message):
        return given
    if type(given) is not dict and not isinstance(given, Mapping):
        raise MessageError(f"a message is a dict with role and content, not {type(given).__name__}")
    sent = {key: value for key, value in given.items() if key not in _KEPT_BESIDE}
    payload = _copied(sent, "message")
    metadata = _copied(given["metadata"], "metadata") if given.get("metadata") else {}
    is_plain = _is_plain(payload)
    if not is_plain:
        _check_role(payload)
        _check_content(payload)
        _check_calls(payload)
    return Message(
        role=payload["role"],
        payload=payload,
        text=payload["content"] if is_plain else _searchable(payload),
        id=_checked_id(given.get("id")),
        created_at=parse_time(given.get("created_at")),
        metadata=metadata,
    )


def parse_messages(given: Mapping[str, Any] | Message | Iterable[Mapping[str, Any] | Message]) -> list[Message]:
    """Check one message or many; the error names the place of the one that is wrong."""
    if isinstance(given, (Mapping, Message)):
        return [parse_message(given)]
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise MessageError(f"give a message dict or a list of them, not {type(given).__name__}")
    parsed = []
    for place, one in enumerate(given):
        try:
            parsed.append(parse_message(one))
        except MessageError as error:
            raise MessageError(f"message {place}: {error}") from error
    return parsed


def parse_time(given: object) -> datetime | None:
    """A datetime with a zone from a datetime, ISO 8601 text or seconds since 1970; None stays None."""
    if given is None:
        return None
    try:
        if isinstance(given, datetime):
            moment = given
        elif isinstance(given, str):
            moment = datetime.fromisoformat(given)
        elif isinstance(given, (int, float)) and not isinstance(given, bool):
            moment = datetime.fromtimestamp(given, UTC)
        else:
            raise TypeError(type(given).__name__)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        wanted = "a datetime, ISO 8601 text or seconds since 1970"
        raise MessageError(f"created_at is {wanted}, not {given!r}") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def text_of(content: object) -> str:
    """The text of a message's content: the text itself, or its text parts joined by line ends."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    texts = [part.get("text") or part.get("refusal") or "" for part in content if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def without_thought(text: str, is_partial: bool = False) -> str:
    """A reply's text without what the model thought first, which some servers leave in it.

    Args:
        is_partial: whether the reply broke off: then a thought without an end is one, however it begins.

    >>> without_thought("<think>Ten and two.</think>\\n\\nTwelve vans."), without_thought("<think>\\nTen and")
    ('Twelve vans.', '')
    >>> without_thought("<think> opens a thought.")
    '<think> opens a thought.'
    """
    if "<think" not in text:  # where a pattern finds nothing it tries every character
        return text
    said = _THOUGHTS.sub("", text)
    return _UNFINISHED.sub("", said) if is_partial else said


def paired(text: str) -> str:
    """The text with the halves of characters that came apart put together; a half that is alone is replaced.

    >>> paired("\\ud83d" + "\\ude9a")
    '🚚'
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def is_empty(payload: Mapping[str, Any]) -> bool:
    """Whether a provider would be sent nothing by this message: no text, no part, no call."""
    content = payload.get("content")
    if isinstance(content, str) and content and not content.isspace():  # nearly every message
        return False
    if payload["role"] == "tool" or any(payload.get(key) for key in ("tool_calls", "audio", "refusal")):
        return False
    if isinstance(content, str):
        return True
    return not any(part.get("type") != "text" or str(part.get("text", "")).strip() for part in content or ())


def _copied(value: object, what: str) -> dict[str, Any]:
    """A deep copy as JSON keeps it, so that what is stored is what was checked."""
    if not isinstance(value, Mapping):
        raise MessageError(f"{what} is a dict, not {type(value).__name__}")
    is_flat = {*map(type, value), *map(type, value.values())} <= _TEXT  # most are: a third of a line's work
    try:
        text = "".join([*value, *value.values()]) if is_flat else _ENCODER.encode(value)
        text.encode()
    except UnicodeEncodeError as error:
        raise MessageError(f"{what} holds half of a surrogate pair, which is no text: {error}") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageError(f"{what} must be made of JSON values: {error}") from error
    return dict(value) if is_flat else json.loads(text)


def _is_plain(payload: Mapping[str, Any]) -> bool:
    """Whether it is a role, a text and at most a name, as nearly every message is: then there is no more to check."""
    return (
        payload.keys() <= _PLAIN_KEYS
        and payload.get("role") in _PLAIN_ROLES
        and type(payload.get("content")) is str
        and type(payload.get("name", "")) is str
    )


def _check_role(payload: Mapping[str, Any]) -> None:
    if "role" not in payload:
        raise MessageError("a message needs a role: one of " + ", ".join(ROLES))
    if payload["role"] not in ROLES:
        raise MessageError(f"role is one of {', '.join(ROLES)}, not {payload['role']!r}")
    for key in ("name", "tool_call_id", "refusal"):
        if not isinstance(payload.get(key), str | None):
            raise MessageError(f"{key} is text, not {payload[key]!r}")


def _check_content(payload: Mapping[str, Any]) -> None:
    content = payload.get("content")
    if content is None:
        if payload["role"] == "assistant" and any(payload.get(key) for key in ("tool_calls", "audio", "refusal")):
            return
        raise MessageError(f"a message of role {payload['role']} needs content: text, or a list of parts")
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise MessageError(f"content is text or a list of parts, not {type(content).__name__}")
    for place, part in enumerate(content):
        if not isinstance(part, dict) or not isinstance(part.get("type"), str):
            raise MessageError(f"part {place} of content is a dict with a type, such as text or image_url")
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            raise MessageError(f"part {place} of content has type text and no text")


def _check_calls(payload: Mapping[str, Any]) -> None:
    if payload["role"] == "tool" and not isinstance(payload.get("tool_call_id"), str):
        raise MessageError("a message of role tool needs tool_call_id: the id of the call that it answers")
    calls = payload.get("tool_calls")
    if not calls:
        return
    if payload["role"] != "assistant" or not isinstance(calls, list):
        raise MessageError("tool_calls is a list of calls in a message of role assistant")
    for place, call in enumerate(calls):
        if not isinstance(call, dict) or not isinstance(call.get("id"), str):
            raise MessageError(f"call {place} of tool_calls is a dict with an id")
        if not all(isinstance(call.get(kind) or {}, dict) for kind in ("function", "custom")):
            raise MessageError(f"call {place} of tool_calls names what it calls by a dict")


def _checked_id(given: object) -> str | None:
    if given is None:
        return None
    if not isinstance(given, str) or not given.strip():
        raise MessageError(f"id is text that is not empty, not {given!r}")
    return given


def _searchable(payload: Mapping[str, Any]) -> str:
    """All that can be searched: content, a refusal, a transcript, names and arguments of calls."""
    texts = [text_of(payload.get("content")), payload.get("refusal") or ""]
    audio = payload.get("audio")
    if isinstance(audio, Mapping):
        texts.append(str(audio.get("transcript") or ""))
    for call in payload.get("tool_calls") or ():
        called = call.get("function") or call.get("custom") or {}
        texts.append(f"{called.get('name', '')} {called.get('arguments') or called.get('input') or ''}".strip())
    return "\n".join(text for text in texts if text)
