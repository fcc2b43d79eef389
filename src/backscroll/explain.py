"""An assembled context -> a `Context` with the reason for every line.

Knows nothing about how the choice was made beyond what it is handed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from backscroll.assemble import Assembled, Frame, in_order
from backscroll.context import Context, Report
from backscroll.prompt import Asked
from backscroll.quoting import quoted_summary, rendered_fact, rendered_line
from backscroll.tokens import message_tokens, tools_tokens
from backscroll.tracing import stage
from backscroll.types import Block, Entry, Line, Source

_MAX_LEFT_OUT = 12  # entries of lines that were considered and are not in
_TEXT_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Labels:
    """Names for the report: of the settings, the embedder and the scope."""

    preset: str
    embedder: str
    scope: str


@dataclass(frozen=True, slots=True)
class Considered:
    """What was made, and what was looked at for it.

    Attributes:
        made: the context.
        asked: the prompt, and the newest lines in front of it.
        blocks: what recall offered, best first.
        notes: what was done otherwise than asked, in words.
    """

    made: Assembled
    asked: Asked
    blocks: Sequence[Block]
    notes: tuple[str, ...]


@stage("explain")
def explain(considered: Considered, frame: Frame, labels: Labels) -> Context:
    """Name the reason for every line that is in, and for the nearest ones that are not."""
    made = considered.made
    report = Report(
        max_tokens=frame.max_tokens,
        tokens=made.tokens,
        tools_tokens=tools_tokens(frame.tools, frame.counter),
        counter=frame.counter.name,
        preset=labels.preset,
        embedder=labels.embedder,
        query=considered.asked.text,
        scope=labels.scope,
        explain=partial(_entries, considered, frame),
        notes=considered.notes,
    )
    return Context(messages=made.messages, tokens=made.tokens, sources=_sources(considered, frame), report=report)


def _entries(considered: Considered, frame: Frame) -> Iterator[Entry]:
    made, asked = considered.made, considered.asked
    for line in made.parts.anchors:
        why = "system prompt" if line.message.role in ("system", "developer") else "pinned" if line.pinned else "sink"
        yield _entry("anchors", line, why, frame)
    for line in frame.facts:
        tokens = frame.counter.count(rendered_fact(line, frame.asking_thread[0]) + "\n")
        yield _entry("anchors", line, "pinned fact", frame, tokens=tokens)
    for summary in made.parts.summary:
        tokens = frame.counter.count(quoted_summary([summary]))
        why = f"lines {summary.first} to {summary.last} in short ({summary.method})"
        yield Entry("summary", True, why, tokens, created_at=summary.created_at, text=" ".join(summary.sentences))
    for line in made.parts.window:
        yield _entry("window", line, "among the newest", frame)
    for block in made.parts.recalled:
        yield from _recalled(block, made, frame)
    for message, stored in zip(asked.messages, asked.lines, strict=True):
        tokens = message_tokens(message.payload, frame.counter)
        source = _source(stored) if stored else None
        yield Entry("prompt", True, "asked", tokens, source, text=message.text[:_TEXT_CHARACTERS], speaker=message.role)
    yield from _left_out(considered, frame)


def _recalled(block: Block, made: Assembled, frame: Frame) -> Iterator[Entry]:
    for line in block.lines:
        if made.quotes.is_said(block):
            tokens = message_tokens(line.message.payload, frame.counter)
        else:
            tokens = frame.counter.count(rendered_line(line, block) + "\n")
        yield _entry("recalled", line, _why(block, line), frame, block=block, tokens=tokens)


def _why(block: Block, line: Line) -> str:
    if block.is_buffered:
        return f"recalled at {block.span.asked_at}, still in the buffer"
    if block.is_excerpt:
        return "its best passage: the whole does not fit"
    return "found" if len(block.lines) == 1 else "found, with its neighbors"


def _left_out(considered: Considered, frame: Frame) -> Iterator[Entry]:
    """The newest lines that the window does not hold, and the best blocks that did not fit."""
    made = considered.made
    recalled = [line for block in made.parts.recalled for line in block.lines]
    inside = {line.row for line in (*made.parts.anchors, *made.parts.window, *recalled)}
    older = [line for line in considered.asked.before if line.row not in inside]
    for line in reversed(older[-_MAX_LEFT_OUT:]):
        yield _entry("window", line, "older than the window", frame, is_in=False)
    missed = [block for block in considered.blocks if not inside & {line.row for line in block.lines}]
    for block in missed[:_MAX_LEFT_OUT]:
        for line in block.lines:
            yield _entry("recalled", line, "found; no room for it", frame, block=block, is_in=False)


def _entry(
    part: str,
    line: Line,
    why: str,
    frame: Frame,
    block: Block | None = None,
    is_in: bool = True,
    tokens: int | None = None,
) -> Entry:
    return Entry(
        part=part,
        included=is_in,
        why=why,
        tokens=message_tokens(line.message.payload, frame.counter) if tokens is None else tokens,
        source=_source(line),
        speaker=line.speaker,
        created_at=line.created_at,
        similarity=block.span.similarity if block else None,
        score=block.span.score if block else None,
        text=line.message.text[:_TEXT_CHARACTERS],
    )


def _sources(considered: Considered, frame: Frame) -> tuple[Source, ...]:
    made, parts = considered.made, considered.made.parts
    stored = [line for line in considered.asked.lines if line]
    quoted = [line for line, _ in made.quotes.in_order()]
    middle = in_order(parts.window, made.quotes.said())
    middle = [*quoted, *middle] if frame.settings.recalled_as == "preface" else [*middle, *quoted]
    return tuple(_source(line) for line in (*parts.anchors, *frame.facts, *middle, *stored))


def _source(line: Line) -> Source:
    return Source(line.user, line.thread, line.position, line.id)
