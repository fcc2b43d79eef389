"""One conversation, taken in by every system and asked of each: question by question, so that all of them meet the same
moments of a busy machine.

Every system gets the same vectors from the same server, Backscroll too. Lines are embedded before anyone is timed.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import httpx
from packing import cost, lines_for, outcome
from systems import Running

from backscroll import api
from backscroll.embedders.remote import RemoteEmbedder
from backscroll.evaluation.datasets import Conversation, Question
from backscroll.evaluation.replay import Plan, Replay
from backscroll.evaluation.results import Outcome, Result
from backscroll.evaluation.vector_cache import CachedEmbedder, VectorCache
from backscroll.types import Line

CONTROL = "backscroll, its list packed alike"
MODEL = "all-MiniLM-L6-v2"
_TIMEOUT_SECONDS = 3600  # for the vectors of a whole conversation


@dataclass(frozen=True)
class Ingest:
    """What taking in a conversation took one system, vectors at hand."""

    conversation: str
    system: str
    lines: int
    seconds: float


class Asked:
    """All systems, holding one conversation."""

    def __init__(self, conversation: Conversation, names: Sequence[str], plan: Plan, url: str, folder: Path) -> None:
        """Start the peers, and let all take in the lines. Raises: StoreError, EmbedderError."""
        self._plan = plan
        self._user = conversation.name
        self._stack = ExitStack()
        embedder = RemoteEmbedder(url, MODEL, api_key="")
        cache = VectorCache(folder / "vectors")
        self._stack.callback(cache.close)
        lines = _lines(conversation)
        _remember(url, [_said(line) for line in lines])
        self._replay = self._stack.enter_context(Replay(conversation, CachedEmbedder(embedder, cache), plan))
        self._memory = self._stack.enter_context(api.open(str(folder / "backscroll.db"), embedder=embedder))
        self.ingests = [Ingest(self._user, "backscroll", len(lines), self._append(conversation))]
        self._lines = {line.id: line for name in conversation.threads for line in self._stored(name)}
        self._places = {str(line.row): line for line in self._lines.values()}
        self._peers = [self._started(name, url, folder / name) for name in names]

    def __enter__(self) -> "Asked":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def ask(self, question: Question) -> Result:
        """Ask every system within every budget."""
        result = self._replay.ask(question)
        others = [
            found
            for max_tokens in self._plan.max_tokens
            for found in (
                self._control(question, max_tokens),
                *(self._peer(peer, question, max_tokens) for peer in self._peers),
            )
        ]
        return replace(result, outcomes=(*result.outcomes, *others))

    def _append(self, conversation: Conversation) -> float:
        started = time.perf_counter()
        for name, messages in conversation.threads.items():
            self._memory.thread(name, self._user).append(messages)
        return time.perf_counter() - started

    def _stored(self, thread: str) -> list[Line]:
        return self._memory.thread(thread, self._user).lines()

    def _started(self, name: str, url: str, folder: Path) -> Running:
        """A peer that has the lines, and has answered once, so that the first question finds all prepared."""
        peer = Running(name, url, folder)
        self._stack.callback(peer.close)
        answer = peer.ask({"lines": [_given(place, line) for place, line in self._places.items()]})
        self.ingests.append(Ingest(self._user, name, len(self._places), answer["seconds"]))
        peer.ask({"query": "Hello?", "k": lines_for(max(self._plan.max_tokens)), "max_tokens": 500})
        return peer

    def _control(self, question: Question, max_tokens: int) -> Outcome:
        """Backscroll's hits, packed as a peer's are: what the difference in packing is worth."""
        thread = self._memory.thread(f"asking {question.id}", self._user)
        started = time.perf_counter()
        hits = thread.recall(question.text, k=lines_for(max_tokens))
        seconds = time.perf_counter() - started
        found = outcome(CONTROL, question, [hit.line for hit in hits], self._lines, max_tokens)
        return replace(found, seconds=seconds)

    def _peer(self, peer: Running, question: Question, max_tokens: int) -> Outcome:
        answer = peer.ask({"query": question.text, "k": lines_for(max_tokens), "max_tokens": max_tokens})
        ranked = [self._places[one] for one in dict.fromkeys(answer["ids"])]
        return replace(outcome(peer.name, question, ranked, self._lines, max_tokens), seconds=answer["seconds"])


def _lines(conversation: Conversation) -> list[Line]:
    """All lines as a store has them, without any vectors."""
    with api.open(":memory:", embedder="hashing") as memory:
        for name, messages in conversation.threads.items():
            memory.thread(name, conversation.name).append(messages, embed=False)
        return [line for name in conversation.threads for line in memory.thread(name, conversation.name).lines()]


def _said(line: Line) -> str:
    """A line as it is taken in: with the speaker in front where there is a name, as Backscroll embeds it."""
    return f"{line.speaker}: {line.message.text}" if line.message.payload.get("name") else line.message.text


def _given(place: str, line: Line) -> Mapping[str, object]:
    return {
        "id": place,
        "thread": line.thread,
        "role": line.message.role,
        "text": _said(line),
        "tokens": cost(line),
    }


def _remember(url: str, texts: Sequence[str]) -> None:
    """Have the lines embedded, with line ends and, as some clients send them, with spaces instead."""
    asked = list(dict.fromkeys([*texts, *(text.replace("\n", " ") for text in texts)]))
    response = httpx.post(url.removesuffix("/v1") + "/remember", json={"texts": asked}, timeout=_TIMEOUT_SECONDS)
    response.raise_for_status()
