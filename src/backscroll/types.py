"""The values that pass between the stages: frozen, and without behavior.

Those of which a context makes a hundred are tuples, which are made in a fifth of a frozen dataclass's time.
Knows nothing about stores, embedders or budgets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]  # (d,) unit length
Vectors = NDArray[np.float32]  # (n, d) unit rows


class ThreadKey(NamedTuple):
    """What names a thread: names are unique per user."""

    user: str
    thread: str


FACTS_THREAD = "~facts"  # of each user: what is known and was not said in a chat


def own_path(thread: str) -> str:
    """The name of a thread's own lines, also while its name stands for a branch of it."""
    return f"{thread}~0"


class Source(NamedTuple):
    """Where a stored line stands."""

    user: str
    thread: str
    position: int
    id: str


class Message(NamedTuple):
    """One message of a chat, checked, as it goes to a provider.

    Attributes:
        role: system, developer, user, assistant or tool.
        payload: the OpenAI-style dict as it was given, less id, created_at and metadata.
        text: everything in it that can be searched: content, text parts, names and arguments of calls.
        id: the caller's name for it, unique per user and thread; None lets the store make one.
        created_at: when it was said, with a time zone; None lets the store take the time of storing.
        metadata: whatever the caller keeps with it; never sent.
    """

    role: str
    payload: Mapping[str, Any]
    text: str
    id: str | None = None
    created_at: datetime | None = None
    metadata: Mapping[str, Any] = {}  # one for all: nobody writes into it


class Line(NamedTuple):
    """A stored message: it is on disk, and keeps its place for good.

    Attributes:
        row: the store's own number for it; grows with the order of storing.
        user, thread: where it was stored; a line before a fork keeps the parent's thread.
        family: the thread that all its branches grew from; positions are unique on a family's current path.
        position: running integer in the thread, from 0, over all roles.
        speaker: the message's name, else its role.
        tokens: what it costs as a message of its own, by the store's counter (o200k_base).
        offset: tokens of the lines in front of it in its thread when it was stored, by the same counter.
    """

    row: int
    user: str
    thread: str
    family: str
    position: int
    id: str
    message: Message
    speaker: str
    created_at: datetime
    tokens: int
    offset: int
    pinned: bool = False

    @property
    def source(self) -> Source:
        """Where it stands."""
        return Source(self.user, self.thread, self.position, self.id)


class Mark(NamedTuple):
    """What of a line tells where a resent history goes on.

    Attributes:
        position, role: the line's.
        fingerprint: what it says, as `backscroll.fingerprint` has it.
        metadata: of a system prompt; of any other line nothing.
    """

    position: int
    role: str
    fingerprint: int
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ThreadInfo:
    """One thread as the store lists it.

    Attributes:
        parent, fork_position: for a branch, where it left its parent; its own lines begin at fork_position.
        head: the branch that the thread's name stands for now; its own name where it has none.
        family: the thread that all the branches grew from; its own name where it is that one.
    """

    user: str
    thread: str
    lines: int
    tokens: int
    first_at: datetime | None
    last_at: datetime | None
    parent: str | None = None
    fork_position: int | None = None
    head: str | None = None
    family: str = ""


@dataclass(frozen=True, slots=True)
class Scope:
    """Which lines a search may see; a condition of the store's query, never a filter after it.

    Attributes:
        user: the one user whose lines are searched; None only where the caller opted in to all users.
        thread: one thread of that user, or a branch by its own name; None for all of them.
        roles: roles whose lines are searched; empty for all.
        also: threads that are searched beside, whosever they are, with all roles; each line stands for itself there.
    """

    user: str | None
    thread: str | None = None
    roles: frozenset[str] = frozenset()
    also: tuple[ThreadKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Days:
    """A set of days.

    Attributes:
        month, day, year: those that it names; None stands for any.
        first, last: where it counts back from now instead, both included.
    """

    month: int | None = None
    day: int | None = None
    year: int | None = None
    first: date | None = None
    last: date | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """What is searched for: a text that stands alone, its vector, its terms, and the days that it speaks of."""

    text: str
    vector: Vector | None  # None: the dense side is off
    terms: tuple[str, ...]
    days: tuple[Days, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidates:
    """Lines that a search found worth scoring, as columns of one length n, ordered by family and position.

    Attributes:
        row: (n,) int64, the store's line numbers.
        family: (n,) int32, index into `families`.
        position, tokens: (n,) int32.
        speaker: (n,) int32, index into `speakers`.
        is_user: (n,) bool, whether the role is user.
        created_at: (n,) float64, seconds since 1970 UTC.
        dense: (n,) float32, cosine of the query and the line's best passage, -1 to 1; 0 where the dense side is off.
        lexical: (n,) float32, BM25 of the line by the statistics of its user's current lines, from 0.
        passage: (n,) int32, which passage of the line was nearest.
        families, speakers: what the indexes mean; a family is (user, thread).
    """

    row: NDArray[np.int64]
    family: NDArray[np.int32]
    position: NDArray[np.int32]
    tokens: NDArray[np.int32]
    speaker: NDArray[np.int32]
    is_user: NDArray[np.bool_]
    created_at: NDArray[np.float64]
    dense: NDArray[np.float32]
    lexical: NDArray[np.float32]
    passage: NDArray[np.int32]
    families: tuple[ThreadKey, ...]
    speakers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ranking:
    """Candidates with what they are ranked by.

    Attributes:
        candidates: the n lines that were scored.
        score: (n,) float32; comparable within one ranking only.
        order: (m,) int64, m <= n, places in the columns of those that are in the running, best first.
    """

    candidates: Candidates
    score: NDArray[np.float32]
    order: NDArray[np.int64]


class Hit(NamedTuple):
    """A line that a search returned, best first.

    Attributes:
        line: the stored line.
        similarity: cosine of query and line, -1 to 1.
        lexical: BM25 of the line.
        score: what the hits are ranked by; higher is better; comparable within one search only.
    """

    line: Line
    similarity: float
    lexical: float
    score: float


class Span(NamedTuple):
    """Lines that stand next to each other in one thread and are recalled together.

    Attributes:
        user, family: the thread they stand in.
        first, last: positions, both included.
        score: the best score of a hit in it.
        similarity: the best similarity of a hit in it.
        asked_at: the position asked at when it was recalled.
    """

    user: str
    family: str
    first: int
    last: int
    score: float
    similarity: float
    asked_at: int

    def overlaps(self, other: "Span") -> bool:
        """Whether both have a line in common."""
        same = (self.user, self.family) == (other.user, other.family)
        return same and self.first <= other.last and other.first <= self.last


class Block(NamedTuple):
    """A recalled span with its lines.

    Attributes:
        lines: the stored lines of the span, in order.
        is_buffered: whether it was recalled at an earlier turn and is still in the relevance buffer.
        passage: the (start, end) characters of the best line's text that matched, for where the whole is too long.
        is_excerpt: whether only that passage is meant.
    """

    span: Span
    lines: tuple[Line, ...]
    is_buffered: bool = False
    passage: tuple[int, int] | None = None
    is_excerpt: bool = False


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run of lines said, in fewer words.

    Attributes:
        first, last: positions that it covers, both included.
        sentences: the summary's sentences in the order of the lines.
            None, where a model is at it: that is a claim and no summary yet.
        method: how it was made, with its version: ``extractive-2``, or a model and a prompt's version.
        created_at: the time of the newest line that it covers.
        made_at: when a model made it, or began to; None where none did.
    """

    user: str
    thread: str
    first: int
    last: int
    sentences: tuple[str, ...]
    method: str
    created_at: datetime
    made_at: datetime | None = None


class Entry(NamedTuple):
    """One line of a context's report.

    Attributes:
        part: anchors, summary, recalled, window or prompt.
        included: whether it is in the context.
        why: the reason, in words.
        tokens: what it costs there, or would.
        source: where the line stands; None for what is not a stored line.
        speaker: who said it; created_at: when.
        similarity: cosine to the query; score: rank value; None where it was not searched for.
        text: its first characters.
    """

    part: str
    included: bool
    why: str
    tokens: int
    source: Source | None = None
    speaker: str = ""
    created_at: datetime | None = None
    similarity: float | None = None
    score: float | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that `check` found wrong.

    Attributes:
        kind: ``vectors``, ``text index``, ``summaries``, ``buffers`` or ``lines``.
        count: how many.
        problem: what is wrong, in words.
        derived: whether it can be rebuilt from the lines.
        repaired: whether it has been.
    """

    kind: str
    count: int
    problem: str
    derived: bool
    repaired: bool


@dataclass(frozen=True, slots=True)
class Usage:
    """What a reply cost, as the provider counted it.

    Attributes:
        prompt_tokens: of everything sent.
        completion_tokens: of the reply, what the model thought included.
        cached_tokens: how many of the prompt's were served from a prefix cache; None where it was not said.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """What a language model answered.

    Attributes:
        message: an OpenAI-style dict of role assistant: content, refusal, tool_calls.
        finish_reason: ``stop``, ``tool_calls``, ``length``, ``content_filter``, or another word of the provider's.
        usage: what it cost; None where it was not said.
        model: as the provider names the one that answered; None where it was not said.
        is_partial: whether the caller left before the end.
    """

    message: Mapping[str, Any]
    finish_reason: str = "stop"
    usage: Usage | None = None
    model: str | None = None
    is_partial: bool = False

    @property
    def text(self) -> str:
        """What it says: its content, or the words it refuses with; empty where it only calls tools."""
        return str(self.message.get("content") or self.message.get("refusal") or "")


@dataclass(frozen=True, slots=True)
class ReplyOptions:
    """How a language model is asked, beside the messages.

    Attributes:
        tools: schemas of the tools that it may call.
        temperature: None takes the LLM's own.
        reply_tokens: the longest reply; None takes the LLM's own.
        timeout_seconds: how long to wait, for each piece where it streams; None takes the LLM's own.
    """

    tools: Sequence[Mapping[str, Any]] = ()
    temperature: float | None = None
    reply_tokens: int | None = None
    timeout_seconds: float | None = None
