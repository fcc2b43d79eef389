"""A model's reply, looked at before anything is done with it: whole, not empty, words where words were asked for."""

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from backscroll.errors import CutOffReplyError, EmptyReplyError, LLMError
from backscroll.messages import is_empty, paired, without_thought
from backscroll.types import Reply

_THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)  # where words alone were asked for
_CUT_OFF = ("length", "content_filter", "max_tokens")


def checked(reply: Reply) -> Reply:
    """The reply, if it is one that may be stored, with its calls as they are stored; what it thought is still there.

    Raises: CutOffReplyError, EmptyReplyError; LLMError where it is no message.
    """
    if reply.finish_reason in _CUT_OFF:
        raise CutOffReplyError(
            f"the reply was cut off ({reply.finish_reason}): allow the model a longer reply, or ask for less",
            reply.finish_reason,
            reply.text,
        )
    message = _normal(reply.message)
    if is_empty(message):
        raise EmptyReplyError("the model answered nothing: ask again, or look at what was sent")
    if is_empty(to_store(message)):
        raise EmptyReplyError("the model thought and answered nothing: allow it a longer reply", received=reply.text)
    return replace(reply, message=message)


def to_store(message: Mapping[str, Any], is_partial: bool = False) -> dict[str, Any]:
    """A reply's message as it is stored, and so sent and recalled later: without what the model thought first."""
    said = message.get("content")
    answer = without_thought(said, is_partial) if isinstance(said, str) else said
    return {**message} if answer == said else {**message, "content": answer or None}


def plain_text(reply: Reply) -> str:
    """The words of a reply to a request for words, without what the model thought first.

    Raises: CutOffReplyError; EmptyReplyError; LLMError where it refuses, or calls a tool.

    >>> plain_text(Reply({"role": "assistant", "content": "<think>Hm.</think>\\n\\nTwelve vans."}))
    'Twelve vans.'
    """
    said = checked(reply)
    if said.message.get("refusal") or said.message.get("tool_calls"):
        what = "refused" if said.message.get("refusal") else "called a tool"
        raise LLMError(f"the model {what} where words were asked for", received=said.text)
    text = _THOUGHT.sub("", without_thought(said.text)).strip()
    if not text:
        raise EmptyReplyError("the model thought and answered nothing: allow it a longer reply", received=said.text)
    return text


def _normal(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as it is stored, however a function or a script gave it."""
    if not is_answer({"choices": [{"message": message}]}):
        raise LLMError("a reply is text, or a dict with content or tool_calls: a list of calls, each with a function")
    content = message.get("content")
    try:
        calls = normal_calls(message.get("tool_calls") or ())
    except (TypeError, ValueError, RecursionError) as error:
        raise LLMError(f"the arguments of a call are JSON: {error}") from error
    said = {"content": paired(content)} if isinstance(content, str) else {}
    return {"role": "assistant", **message, **said, **({"tool_calls": calls} if calls else {})}


def normal_calls(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Calls as they are stored and sent again: each with an id of its own, arguments as text, and a type."""
    told: list[dict[str, Any]] = []
    for call in calls:
        kept = {key: value for key, value in call.items() if key != "index"}
        kept["id"] = str(kept.get("id") or "")
        if not kept["id"] or any(kept["id"] == other["id"] for other in told):
            kept["id"] = f"call_{uuid.uuid4().hex[:24]}"
        if "custom" not in kept:
            called = dict(kept.get("function") or {})
            given = called.get("arguments") or "{}"
            called["arguments"] = paired(given if isinstance(given, str) else json.dumps(given, ensure_ascii=False))
            kept["function"] = called
        kept["type"] = kept.get("type") or "function"
        told.append(kept)
    return told


def is_answer(given: object) -> bool:
    """Whether it is built like an answer, or a chunk of one, as far as it is read here.

    >>> is_answer({"choices": [{"delta": {"content": "Yes."}}]}), is_answer({"choices": "Yes."})
    (True, False)
    """
    if not isinstance(given, Mapping):
        return False
    choices = given.get("choices") or []
    return isinstance(choices, list) and all(isinstance(one, Mapping) and _holds_message(one) for one in choices)


def _holds_message(choice: Mapping[str, Any]) -> bool:
    said = [choice.get(key) or {} for key in ("message", "delta")]
    return all(isinstance(one, Mapping) and _is_message(one) for one in said)


def _is_message(said: Mapping[str, Any]) -> bool:
    calls = said.get("tool_calls") or []
    is_text = isinstance(said.get("content"), str | list | None) and isinstance(said.get("refusal"), str | None)
    return is_text and isinstance(calls, list) and all(isinstance(call, Mapping) and _is_call(call) for call in calls)


def _is_call(call: Mapping[str, Any]) -> bool:
    return all(isinstance(call.get(kind) or {}, Mapping) for kind in ("function", "custom"))
