"""A model's reply, looked at before anything is done with it: whole, not empty, words where words were asked for."""

import re

from backscroll.errors import CutOffReplyError, EmptyReplyError, LLMError
from backscroll.messages import is_empty
from backscroll.types import Reply

_CUT_OFF = ("length", "content_filter", "max_tokens")
_THOUGHT = re.compile(r"\A\s*<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)  # some servers leave it in the text


def checked(reply: Reply) -> Reply:
    """The reply, if it is one that may be stored. Raises: CutOffReplyError, EmptyReplyError."""
    if reply.finish_reason in _CUT_OFF:
        raise CutOffReplyError(
            f"the reply was cut off ({reply.finish_reason}): allow the model a longer reply, or ask for less",
            reply.finish_reason,
            reply.text,
        )
    if is_empty(reply.message):
        raise EmptyReplyError("the model answered nothing: ask again, or look at what was sent")
    return reply


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
    text = _THOUGHT.sub("", said.text).strip()
    if not text or text.startswith("<think"):
        raise EmptyReplyError("the model thought and answered nothing: allow it a longer reply")
    return text
