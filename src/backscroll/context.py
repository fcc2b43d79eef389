"""A finished context: the messages to send, what they cost, and why every line is in it or not.

Knows nothing about how it was made.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from typing import Any

from backscroll.types import Entry, Source

PARTS = ("anchors", "summary", "window", "recalled", "prompt")  # in the order in which they are sent
_BAR_CHARACTERS = 40
_TEXT_CHARACTERS = 56


@dataclass(frozen=True, eq=False)
class Report:
    """Every part and every line of a context: in or out, why, at what cost.

    The entries are made when they are first looked at: most contexts are sent, and never explained.

    Attributes:
        max_tokens: what was allowed; tokens: what all of it costs; tools_tokens: the tools' schemas among them.
        counter: name of the counter of tokens; preset: the settings' name; embedder: its name.
        query: what was searched for.
        scope: thread, user or all.
        explain: makes the entries.
        notes: what could not run or was chosen otherwise, in words.
    """

    max_tokens: int
    tokens: int
    tools_tokens: int
    counter: str
    preset: str
    embedder: str
    query: str
    scope: str
    explain: Callable[[], Iterable[Entry]] = field(repr=False)
    notes: tuple[str, ...] = ()

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """One a line, in the order in which they are sent; what was left out stands last in its part."""
        return tuple(self.explain())

    def __eq__(self, other: object) -> bool:
        """Whether both tell the same."""
        return self.to_dict() == other.to_dict() if isinstance(other, Report) else NotImplemented

    def __hash__(self) -> int:
        """By the figures: equal reports have equal ones."""
        return hash((self.max_tokens, self.tokens, self.query))

    def __getstate__(self) -> dict[str, Any]:
        """Copied and pickled with its entries, and without what they are made of."""
        entries = self.entries
        return {**vars(self), "explain": partial(tuple, entries)}

    def part_tokens(self) -> dict[str, int]:
        """Tokens of each part that is in the context; what is left of `tokens` is roles, fences and dates."""
        return {
            part: sum(entry.tokens for entry in self.entries if entry.part == part and entry.included) for part in PARTS
        }

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        plain = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "explain"}
        entries = [
            entry._asdict()
            | {
                "created_at": entry.created_at and entry.created_at.isoformat(),
                "source": entry.source and entry.source._asdict(),
            }
            for entry in self.entries
        ]
        return {**plain, "entries": entries, "parts": self.part_tokens()}

    def to_json(self, indent: int | None = 2) -> str:
        """The report as JSON text."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)

    def __str__(self) -> str:
        """The report as a table."""
        return "\n".join(self._rows())

    def _rows(self) -> Iterator[str]:
        yield f"{self.tokens} of {self.max_tokens} tokens ({self.counter}), preset {self.preset}, scope {self.scope}"
        for part, tokens in self.part_tokens().items():
            bar = "█" * round(_BAR_CHARACTERS * tokens / max(1, self.max_tokens))
            yield f"  {part:<9}{tokens:>7}  {bar}"
        yield ""
        for entry in self.entries:
            yield _row(entry)
        for note in self.notes:
            yield f"note: {note}"


@dataclass(frozen=True, slots=True)
class Context:
    """What to send.

    Attributes:
        messages: OpenAI-style dicts, ready to send.
        tokens: what they cost with the tools' schemas and the opening of the reply, by the counter of the model.
        sources: every stored line whose text is in the messages, in the order in which they stand there.
        report: why.
    """

    messages: list[dict[str, Any]]
    tokens: int
    sources: tuple[Source, ...]
    report: Report

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The messages, one after the other."""
        return iter(self.messages)

    def __len__(self) -> int:
        """How many messages there are."""
        return len(self.messages)

    def __getitem__(self, place: int) -> dict[str, Any]:
        """The message at a place."""
        return self.messages[place]


def _row(entry: Entry) -> str:
    mark = "+" if entry.included else "-"
    where = f"{entry.source.thread}:{entry.source.position}" if entry.source else ""
    near = "" if entry.similarity is None else f"{entry.similarity:.2f}"
    text = " ".join(entry.text.split())
    short = text if len(text) <= _TEXT_CHARACTERS else text[: _TEXT_CHARACTERS - 1] + "…"
    who = f"{entry.speaker}: " if entry.speaker else ""
    return f"{mark} {entry.part:<9}{entry.tokens:>6} {near:>5}  {where:<24} {who}{short}  [{entry.why}]"
