"""The messages of a context -> the lines that stand in them, as the words were said.

A fence is taken apart into its lines and their escapes are undone; a message outside of fences is one line. This reads
the text that is sent, not the report on it. Knows nothing about evidence.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backscroll.fence import RECALLED, SUMMARY, unquote
from backscroll.messages import text_of

_FENCE = re.compile(rf"<({RECALLED}|{SUMMARY})>\n(.*?)\n</\1>", re.DOTALL)
_LINE_END = re.compile(r"\n(?!  )")  # what stays inside a quoted line is indented
_CUT = "…"  # where an excerpt leaves something out


def rendered_lines(messages: Sequence[Mapping[str, Any]], prompt: str = "") -> list[str]:
    r"""The lines of a context.

    Args:
        messages: OpenAI-style, as they would be sent.
        prompt: what was asked: it ends the last message, and is not among the lines.

    >>> quoted = "<recalled>\nNote.\n[2026-01-01 a]\nuser: One,\n  two.\n</recalled>"
    >>> rendered_lines([{"role": "user", "content": quoted + "\n\nWhat?"}], prompt="What?")
    ['[2026-01-01 a]', 'user: One,\ntwo.']
    """
    texts = [text_of(message.get("content")) for message in messages]
    if texts:
        texts[-1] = texts[-1].removesuffix(prompt)
    return [line for text in texts for line in _lines(text) if line.strip()]


def _lines(text: str) -> Iterator[str]:
    end = 0
    for fence in _FENCE.finditer(text):
        yield text[end : fence.start()]
        yield from map(unquote, _LINE_END.split(fence[2])[1:])  # the first is the note
        end = fence.end()
    yield text[end:]


def holds(lines: Sequence[str], text: str) -> bool:
    """Whether a text stands whole within one of the lines; one without words stands nowhere.

    >>> holds(["user: One, two."], "One, two."), holds(["user: One,", "user: two."], "One, two.")
    (True, False)
    """
    wanted = text.strip()
    return bool(wanted) and any(wanted in line for line in lines)


def excerpt_of(lines: Sequence[str], text: str) -> str:
    """The longest passage of a text that stands in the lines as an excerpt, marked as cut; empty for none.

    >>> excerpt_of(["user: …two of it…", "user: of"], "All two of it and more.")
    'two of it'
    """
    cut = (line.partition(": ")[2] for line in lines if _CUT in line)
    found = [passage for line in cut if (passage := line.strip(_CUT).strip()) and passage in text]
    return max(found, key=len, default="")
