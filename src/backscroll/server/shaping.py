"""The memory's values -> what goes over the wire."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from backscroll.context import Context
from backscroll.exporting import common_line
from backscroll.memory import Memory
from backscroll.protocols import MemoryStore
from backscroll.reply import CONTEXT_TOKENS, LATENCY, PARTIAL, PRESET, Turn
from backscroll.server import shapes
from backscroll.server.paging import end
from backscroll.types import Hit, Line, Source, Summary, ThreadInfo, ThreadKey

_TITLE_CHARACTERS = 80
_TITLE_LINES = 16
_READ_POSITIONS = 500


def user_shape(name: str, infos: Sequence[ThreadInfo]) -> shapes.UserShape:
    """A user with their threads."""
    roots = [info for info in infos if info.parent is None]
    newest = max((info.last_at for info in infos if info.last_at), default=None)
    return shapes.UserShape(user=name, threads=len(roots), lines=sum(info.lines for info in roots), updated_at=newest)


def thread_shape(memory: Memory, info: ThreadInfo) -> shapes.ThreadShape:
    """A thread, titled by the first words that were said in it."""
    first = memory.store.read(ThreadKey(info.user, info.thread), 0, _TITLE_LINES)
    said = next((line.message.text for line in first if line.message.role == "user"), "")
    return shapes.ThreadShape(
        user=info.user,
        thread=info.thread,
        title=" ".join(said.split())[:_TITLE_CHARACTERS],
        lines=info.lines,
        tokens=info.tokens,
        created_at=info.first_at,
        updated_at=info.last_at,
        parent=info.parent,
        fork_position=info.fork_position,
        head=info.head,
        family=info.family,
    )


def line_shape(line: Line) -> shapes.LineShape:
    """A stored line."""
    payload = line.message.payload
    return shapes.LineShape(
        position=line.position,
        id=line.id,
        role=line.message.role,
        name=payload.get("name"),
        text=line.message.text,
        content=payload.get("content"),
        tool_calls=payload.get("tool_calls") or None,
        tool_call_id=_text(payload.get("tool_call_id")),
        created_at=line.created_at,
        tokens=line.tokens,
        pinned=line.pinned,
        partial=bool(line.message.metadata.get(PARTIAL)),
    )


def hit_shape(hit: Hit) -> shapes.HitShape:
    """A line that was found."""
    line = hit.line
    return shapes.HitShape(
        user=line.user,
        thread=line.family,
        position=line.position,
        id=line.id,
        role=line.message.role,
        name=line.message.payload.get("name"),
        text=line.message.text,
        created_at=line.created_at,
        score=hit.score,
        similarity=hit.similarity,
    )


def summary_shape(summary: Summary) -> shapes.SummaryShape:
    """A summary."""
    return shapes.SummaryShape(
        first=summary.first,
        last=summary.last,
        text=" ".join(summary.sentences),
        method=summary.method,
        created_at=summary.created_at,
    )


def source_shapes(sources: Iterable[Source]) -> list[shapes.SourceShape]:
    """Where lines stand."""
    return [shapes.SourceShape(**source._asdict()) for source in sources]


def context_shape(made: Context) -> shapes.ContextShape:
    """A context, and why it is as it is."""
    return shapes.ContextShape(
        messages=made.messages,
        tokens=made.tokens,
        max_tokens=made.report.max_tokens,
        sources=source_shapes(made.sources),
        report=made.report.to_dict(),
    )


def turn_shape(turn: Turn) -> shapes.TurnShape:
    """A prompt and its reply."""
    return shapes.TurnShape(
        message=dict(turn.message),
        finish_reason=turn.reply.finish_reason,
        model=turn.reply.model,
        partial=turn.reply.is_partial,
        usage=asdict(turn.reply.usage) if turn.reply.usage else None,
        sources=source_shapes(turn.sources),
        context=context_shape(turn.context) if turn.context else None,
    )


def sent_shape(line: Line) -> shapes.SentShape:
    """What a reply was sent: what was noted with it, else what the provider counted; what is no note is left out."""
    noted = line.message.metadata
    usage = noted.get("usage")
    counted = _count(usage.get("prompt_tokens")) if isinstance(usage, Mapping) else None
    return shapes.SentShape(
        position=line.position,
        at=line.created_at,
        tokens_sent=_count(noted.get(CONTEXT_TOKENS)) or counted,
        tokens_full=line.offset,
        latency_ms=_count(noted.get(LATENCY)),
        preset=_text(noted.get(PRESET)),
        model=_text(noted.get("model")),
    )


def by_age(info: ThreadInfo) -> tuple[float, str]:
    """Sorts the thread that was written to last to the front."""
    return (-_seconds(info.last_at), info.thread)


def exported(store: MemoryStore, keys: Iterable[ThreadKey]) -> Iterator[str]:
    """The lines of threads in the common form, one a line, a part at a time."""
    for key in keys:
        index = 0
        for first in range(0, end(store, key) + 1, _READ_POSITIONS):
            for line in store.read(key, first, first + _READ_POSITIONS - 1):
                yield _json_line(common_line(line, key, index))
                index += 1


def _json_line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _count(given: object) -> int | None:
    return given if isinstance(given, int) and not isinstance(given, bool) else None


def _text(given: object) -> str | None:
    return given if isinstance(given, str) else None


def _seconds(moment: datetime | None) -> float:
    return moment.timestamp() if moment else 0.0
