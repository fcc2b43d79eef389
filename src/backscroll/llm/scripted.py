"""An LLM that says what a script says: for tests and examples, without a model and without a network."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backscroll.errors import LLMError
from backscroll.protocols import Pieces
from backscroll.types import Reply, ReplyOptions, Usage

_AS_IT_IS = ReplyOptions()


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One reply of a script.

    Attributes:
        message: its text, or an OpenAI-style dict of role assistant.
        pieces: how it is streamed; None streams word by word.
        finish_reason: None is ``tool_calls`` where there are calls, else ``stop``.
        usage: what it is said to have cost.
        delay_seconds: how long it takes before the reply, and before each piece.
        error: raised instead of the reply; where there are pieces to stream, after them.
    """

    message: str | Mapping[str, Any] = ""
    pieces: Sequence[str] | None = None
    finish_reason: str | None = None
    usage: Usage | None = None
    delay_seconds: float = 0.0
    error: Exception | None = None


class ScriptedLLM:
    """Gives the replies of a script, one a call.

    Args:
        script: texts, messages, errors to raise, or `ScriptedReply` values for the rest.
        model: whose tokens are counted; None counts as o200k_base.

    Attributes:
        asked: the messages of each call so far.
        options: the options of each call so far.

        >>> llm = ScriptedLLM(["Hello!"])
        >>> llm.complete([{"role": "user", "content": "Hi"}]).text, llm.asked[0][0]["content"]
        ('Hello!', 'Hi')
    """

    def __init__(
        self, script: Sequence[str | Mapping[str, Any] | Exception | ScriptedReply], model: str | None = None
    ) -> None:
        self.model = model
        self.asked: list[list[dict[str, Any]]] = []
        self.options: list[ReplyOptions] = []
        self._script = [_scripted(one) for one in script]

    def complete(self, messages: Sequence[Mapping[str, Any]], options: ReplyOptions = _AS_IT_IS) -> Reply:
        said = self._next(messages, options)
        time.sleep(said.delay_seconds)
        if said.error is not None:
            raise said.error
        return _reply(said, self.model)

    def stream(self, messages: Sequence[Mapping[str, Any]], options: ReplyOptions = _AS_IT_IS) -> Pieces:
        said = self._next(messages, options)
        reply = _reply(said, self.model)
        for piece in re.findall(r"\s*\S+\s*$|\s*\S+", reply.text) if said.pieces is None else said.pieces:
            time.sleep(said.delay_seconds)
            yield piece
        if said.error is not None:
            raise said.error
        yield reply

    def close(self) -> None:
        """Nothing is held."""

    def _next(self, messages: Sequence[Mapping[str, Any]], options: ReplyOptions) -> ScriptedReply:
        if len(self.asked) == len(self._script):
            raise LLMError(f"the script has {len(self._script)} replies, and they have all been given")
        self.asked.append([dict(message) for message in messages])
        self.options.append(options)
        return self._script[len(self.asked) - 1]


def _scripted(given: str | Mapping[str, Any] | Exception | ScriptedReply) -> ScriptedReply:
    if isinstance(given, ScriptedReply):
        return given
    return ScriptedReply(error=given) if isinstance(given, Exception) else ScriptedReply(given)


def _reply(said: ScriptedReply, model: str | None) -> Reply:
    text = "".join(said.pieces) if said.pieces is not None and said.message == "" else said.message
    message = {"role": "assistant", "content": text} if isinstance(text, str) else {"content": None, **text}
    usual = "tool_calls" if message.get("tool_calls") else "stop"
    return Reply({**message, "role": "assistant"}, said.finish_reason or usual, said.usage, model)
