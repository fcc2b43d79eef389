"""A stored line -> the forms that are exported; importing them gives the same line again.

Knows nothing about files and stores.
"""

from collections.abc import Sequence
from typing import Any

from backscroll.messages import text_of
from backscroll.types import Line, ThreadKey


def common_line(line: Line, key: ThreadKey, index: int) -> dict[str, Any]:
    """A line in the common form.

    Args:
        key: the thread that it is exported as part of; a line in front of a fork stands in the branch's path too.
        index: its place among the exported lines, from 0; positions may have holes where lines were deleted.

    Returns: ``message`` is there only where role, speaker and text do not say all of it.
    """
    message = line.message
    text = text_of(message.payload.get("content"))
    plain = {"role": message.role, "content": text}
    said = plain if line.speaker == message.role else {**plain, "name": line.speaker}
    exported: dict[str, Any] = {
        "conversation": key.user,
        "thread": key.thread,
        "index": index,
        "speaker": line.speaker,
        "role": message.role,
        "text": message.text if said != message.payload else text,
        "time": line.created_at.isoformat(),
        "id": line.id,
    }
    if said != message.payload:
        exported["message"] = dict(message.payload)
    if message.metadata:
        exported["metadata"] = dict(message.metadata)
    if line.pinned:
        exported["pinned"] = True
    return exported


def openai_chat(lines: Sequence[Line], key: ThreadKey) -> dict[str, Any]:
    """A thread as one OpenAI-style chat: the messages as they were given, without ids and times."""
    return {"user": key.user, "thread": key.thread, "messages": [dict(line.message.payload) for line in lines]}
