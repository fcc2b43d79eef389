"""What a server sends -> a Reply: a whole answer, or the pieces of a streamed one put together.

Takes plain dicts. Keys that are not known to be taken back by providers (what the model thought, log
probabilities) are left out of the message; what stands in a call is kept, since some sign their calls.
"""

import codecs
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backscroll.answer import normal_calls
from backscroll.messages import paired, text_of
from backscroll.types import Reply, Usage


def whole(answer: Mapping[str, Any]) -> Reply:
    """The reply of an answer that came at once; one without a choice is an empty reply."""
    choice = _choice(answer)
    said = choice.get("message") or {}
    message = _message(text_of(said.get("content")), said.get("refusal"), said.get("tool_calls") or ())
    reason = _name(choice.get("finish_reason")) or "stop"
    return Reply(message, reason, _usage(answer.get("usage")), _name(answer.get("model")))


def as_chunk(answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """An answer that came at once as the one chunk of a stream: some servers do not stream what was asked so."""
    choice = _choice(answer)
    return {**answer, "choices": [{**choice, "delta": choice.get("message") or {}}] if choice else []}


class Deltas:
    """Puts the pieces of a streamed answer together."""

    def __init__(self) -> None:
        """Nothing has come yet."""
        self._whole_characters = codecs.getincrementaldecoder("utf-16-le")("replace")
        self._texts: list[str] = []
        self._refusals: list[str] = []
        self._calls: list[dict[str, Any]] = []
        self._usage: Usage | None = None
        self._model: str | None = None
        self.finish_reason: str | None = None

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Take one chunk; returns the text that it adds: half a character waits for its other half."""
        self._usage = _usage(chunk.get("usage")) or self._usage
        self._model = _name(chunk.get("model")) or self._model
        choice = _choice(chunk)
        self.finish_reason = _name(choice.get("finish_reason")) or self.finish_reason
        delta = choice.get("delta") or {}
        for part in delta.get("tool_calls") or ():
            self._add_call(part)
        text, refusal = text_of(delta.get("content")), str(delta.get("refusal") or "")
        self._texts.append(text)
        self._refusals.append(refusal)
        return self._whole_characters.decode((text + refusal).encode("utf-16-le", "surrogatepass"))

    def rest(self) -> str:
        """What still waits for its other half, as the replacement character that is stored for it."""
        return self._whole_characters.decode(b"", final=True)

    def reply(self) -> Reply:
        """All of it."""
        message = _message("".join(self._texts), "".join(self._refusals), self._calls)
        return Reply(message, self.finish_reason or "stop", self._usage, self._model)

    def _add_call(self, part: Mapping[str, Any]) -> None:
        """A part of a call; some servers number all calls 0, or none, and tell them apart by id alone."""
        index = part.get("index")
        known = [call for call in self._calls if index is None or call["index"] == index]
        call = known[-1] if known else None
        if call is None or (part.get("id") and call.get("id") and part["id"] != call["id"]):
            call = {"index": index, "function": {}}
            self._calls.append(call)
        for key, value in part.items():
            if key != "function" and value:
                call[key] = value
        for key, value in (part.get("function") or {}).items():
            call["function"][key] = _joined(call["function"].get(key), value)


def _choice(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The first choice; empty where there is none, as in the last chunk, which brings the usage."""
    choices: Sequence[Mapping[str, Any]] = given.get("choices") or ()
    return choices[0] if choices else {}


def _joined(before: Any, after: Any) -> Any:
    return before + after if isinstance(before, str) and isinstance(after, str) else after or before


def _message(text: str, refusal: str | None, calls: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": paired(text) or None}
    if refusal:
        message["refusal"] = paired(refusal)
    told = normal_calls(list(calls))
    if told:
        message["tool_calls"] = told
    if text == "" and not refusal and not told:
        message["content"] = ""
    return message


def _usage(given: object) -> Usage | None:
    """The tokens of a reply; those from a cache under the names that OpenAI, DeepSeek and Anthropic give them.

    Where a server counts otherwise than in numbers nothing is known: a reply is worth more than what it cost.
    """
    if not isinstance(given, Mapping) or (prompt := _count(given.get("prompt_tokens"))) is None:
        return None
    details = given.get("prompt_tokens_details")
    names = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")
    told = [
        details.get("cached_tokens") if isinstance(details, Mapping) else None,
        *(given.get(name) for name in names),
    ]
    cached = next((count for one in told if (count := _count(one)) is not None), None)
    return Usage(prompt, _count(given.get("completion_tokens")) or 0, cached)


def _name(given: object) -> str | None:
    return str(given) if given else None


def _count(given: object) -> int | None:
    if isinstance(given, float) and given.is_integer():
        return int(given)
    return given if isinstance(given, int) else None
