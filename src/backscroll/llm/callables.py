"""Any function of messages as an LLM: for a model in the same process, or a client that is there already."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backscroll.errors import LLMError
from backscroll.messages import text_of
from backscroll.protocols import Pieces
from backscroll.types import Reply, ReplyOptions

Answering = Callable[..., str | Mapping[str, Any]]
_AS_IT_IS = ReplyOptions()


class CallableLLM:
    """Answers by a function `(messages) -> text or message`.

    Args:
        function: handed the messages as a list of dicts; returns the reply's text, or an OpenAI-style dict of role
            assistant. One with a parameter ``tools`` is handed the tools' schemas too. What it raises goes through
            as it is; where it raises ContextTooLongError, it is asked once more with less.
        model: whose tokens are counted; None counts as o200k_base.

        >>> CallableLLM(lambda messages: "You said: " + messages[-1]["content"]).complete(
        ...     [{"role": "user", "content": "Hi!"}]).text
        'You said: Hi!'
    """

    def __init__(self, function: Answering, model: str | None = None) -> None:
        self.model = model
        self._function = function
        self._takes_tools = "tools" in inspect.signature(function).parameters

    def complete(self, messages: Sequence[Mapping[str, Any]], options: ReplyOptions = _AS_IT_IS) -> Reply:
        sent = [dict(message) for message in messages]
        said = self._function(sent, tools=list(options.tools)) if self._takes_tools else self._function(sent)
        if isinstance(said, str):
            return Reply({"role": "assistant", "content": said})
        if not isinstance(said, Mapping):
            raise LLMError(f"the function given as LLM returns text or a message, not {type(said).__name__}")
        message = {"content": None, **said, "role": "assistant"}
        return Reply(message, "tool_calls" if message.get("tool_calls") else "stop")

    def stream(self, messages: Sequence[Mapping[str, Any]], options: ReplyOptions = _AS_IT_IS) -> Pieces:
        reply = self.complete(messages, options)
        text = text_of(reply.message.get("content"))
        if text:
            yield text
        yield reply

    def close(self) -> None:
        """Nothing is held."""
