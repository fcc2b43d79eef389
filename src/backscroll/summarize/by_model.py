"""Lines, or notes on them -> notes in few words, by a language model, looked at before they are taken.

What the model works on is quoted as data, in a message of its own, between words of ours: a line that tells the model
what to write stands there as something that was said. Notes are taken when they are whole, not empty, under their cap
and shorter than what they tell of; those that are too long are asked for once more.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backscroll.answer import plain_text
from backscroll.errors import LLMError
from backscroll.prompts import Prompt
from backscroll.protocols import LLM
from backscroll.quoting import Quotes, quoted_block, quoted_summary
from backscroll.types import Block, Line, Span, Summary

NOTES_TOKENS = 120  # of one summary, at any level: what 8 % of a context of 2,000 tokens hold
_WORDS = 60  # asked for; models take it for less than a cap
_LINE_CHARACTERS = 4000  # of one line: its beginning tells what a pasted page is
_BREAKS = re.compile(r"(?<=[.!?。！？]) ")
_NOTHING = "Nothing was said in words."

_ABOUT_LINES = f"Write the notes on the lines between <recalled> and </recalled>, in at most {_WORDS} words."
_ABOUT_LINES_AND_BEFORE = (
    "What stands between <summary> and </summary> is noted already: use it to understand the lines, do not repeat it."
)
_ABOUT_NOTES = f"Write one text in place of the notes between <summary> and </summary>, in at most {_WORDS} words."
_TOO_LONG = f"That is too long. Write it again, in at most {_WORDS * 2 // 3} words: keep what matters most."

Counting = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class Material:
    """What is told in fewer words.

    Attributes:
        text: its words, one after the other.
        quoted: as the model is sent it, with what to do.
    """

    text: str
    quoted: str


def of_lines(lines: Sequence[Line], earlier: Sequence[Summary]) -> Material:
    """Lines, with the notes on what stands in front of them."""
    said = [line for line in lines if line.message.role not in ("system", "developer") and line.message.text.strip()]
    text = " ".join(f"{line.speaker}: {' '.join(line.message.text.split())}" for line in said)
    blocks = tuple(_block(line) for line in said)
    before = [quoted_summary(earlier)] if earlier else []
    quoted = quoted_block(Quotes(blocks, asking_user=lines[0].user))
    what = [_ABOUT_LINES, *([_ABOUT_LINES_AND_BEFORE] if earlier else [])]
    return Material(text, "\n\n".join([*before, quoted, " ".join(what)]))


def of_notes(notes: Sequence[Summary]) -> Material:
    """Notes on neighbors in a row."""
    text = " ".join(sentence for one in notes for sentence in one.sentences)
    return Material(text, f"{quoted_summary(notes)}\n\n{_ABOUT_NOTES}")


def write_notes(llm: LLM, prompt: Prompt, material: Material, count: Counting) -> str:
    """Notes by the model, in one paragraph; what is no longer than notes may be is taken as it is.

    Args:
        prompt: what the model is told; ``{words}`` in it is how many it may write.
        count: tokens of a text.

    Raises: LLMError, or one under it, where there are none that can be taken.
    """
    source_tokens = count(material.text)
    if source_tokens <= NOTES_TOKENS:
        return material.text or _NOTHING
    asked = [
        {"role": "system", "content": prompt.filled(words=_WORDS)},
        {"role": "user", "content": material.quoted},
    ]
    notes = _one_paragraph(plain_text(llm.complete(asked)))
    if count(notes) > NOTES_TOKENS:
        again = {"role": "user", "content": _TOO_LONG}
        notes = _one_paragraph(plain_text(llm.complete([*asked, {"role": "assistant", "content": notes}, again])))
    if count(notes) > NOTES_TOKENS:
        raise LLMError(f"the model's summary has {count(notes)} tokens, asked twice; at most {NOTES_TOKENS} are taken")
    return notes


def sentences_in(text: str) -> tuple[str, ...]:
    """A paragraph's sentences, which joined by spaces are the paragraph.

    >>> sentences_in("It costs 3.50 EUR. Who pays? Rita.")
    ('It costs 3.50 EUR.', 'Who pays?', 'Rita.')
    """
    return tuple(_BREAKS.split(text))


def _block(line: Line) -> Block:
    span = Span(line.user, line.family, line.position, line.position, 0.0, 0.0, line.position)
    is_long = len(line.message.text) > _LINE_CHARACTERS
    return Block(span, (line,), passage=(0, _LINE_CHARACTERS), is_excerpt=is_long)


def _one_paragraph(text: str) -> str:
    return " ".join(text.split())
