"""One conversation, replayed through the public API, and asked.

All lines are appended, then each question is asked by every preset within every budget. A question is asked in a thread
of its own, so that the window is empty and only recall can bring the evidence; or at the end of the newest thread.
No question sees what an earlier one recalled: the presets are asked without their relevance buffer
(`buffer_blocks=0`), which keeps nothing for the next turn, whatever thread it is asked in. A question's history is
appended to a thread of its own, which is deleted before the next question.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType

from backscroll import api
from backscroll.context import Context
from backscroll.errors import BudgetError
from backscroll.evaluation.datasets import Conversation, Question
from backscroll.evaluation.metrics.answer_in_context import answer_in_context, occurs
from backscroll.evaluation.metrics.spans_hit import is_hit
from backscroll.evaluation.rendered import excerpt_of, holds, rendered_lines
from backscroll.evaluation.results import Outcome, Result
from backscroll.evaluation.vector_cache import CachedEmbedder
from backscroll.exchanges import exchanges
from backscroll.memory import Thread
from backscroll.messages import is_empty
from backscroll.settings import ContextualizerName, Settings, open_preset
from backscroll.tokens import DEFAULT_VOCABULARY, open_counter
from backscroll.types import Message

NAMED_THREADS = "evidence threads"  # relevant are the threads that the set names
USER_LINES = "threads with a user's evidence line"  # as LongMemEval's own code takes it
SMALL_TALK = ("Hi!", "Thanks!", "Good morning, how are you?", "OK, great.", "Haha, that's funny.", "Good night!")

Place = tuple[str, int]  # thread, position


@dataclass(frozen=True, slots=True)
class Plan:
    """How every question is asked.

    Attributes:
        presets: their names.
        max_tokens: the budgets.
        same_thread: at the end of the newest thread instead of in a thread of its own.
        contextualizer: the one that every preset uses; None leaves each its own.
    """

    presets: tuple[str, ...]
    max_tokens: tuple[int, ...]
    same_thread: bool = False
    contextualizer: ContextualizerName | None = None

    def settings(self, preset: str) -> Settings:
        """A preset as it is measured: without the buffer, so that no question sees what an earlier one recalled."""
        chosen = replace(open_preset(preset), buffer_blocks=0)
        return replace(chosen, contextualizer=self.contextualizer) if self.contextualizer else chosen


def small_talk(conversation: str) -> list[Question]:
    """Messages for which nothing needs to be recalled."""
    return [
        Question(f"small talk {number}", conversation, text, "", "small talk", "small talk")
        for number, text in enumerate(SMALL_TALK, 1)
    ]


class Replay:
    """A memory that holds one conversation."""

    def __init__(self, conversation: Conversation, embedder: CachedEmbedder, plan: Plan) -> None:
        """Append and embed all lines. Raises: EmbedderError, MessageError."""
        self._conversation = conversation
        self._embedder = embedder
        self._plan = plan
        self._texts = {str(one.id): one for messages in conversation.threads.values() for one in messages}
        self._exchange = _exchange_of(conversation.threads)
        self._count = open_counter(DEFAULT_VOCABULARY).count
        self._memory = api.open(":memory:", embedder=embedder)
        for name, messages in conversation.threads.items():
            self._memory.thread(name, conversation.name).append(messages, embed=False)
        self._memory.embed()
        self._warm_up()

    def __enter__(self) -> "Replay":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._memory.close()

    def ask(self, question: Question) -> Result:
        """Ask a question by every preset within every budget."""
        thread = self._asking_thread(question)
        if question.history:
            thread.append([{"role": role, "content": text} for role, text in question.history])
        outcomes, rankings = [], {}
        for preset in self._plan.presets:
            self._memory.settings = self._plan.settings(preset)
            outcomes += [self._outcome(question, thread, preset, budget) for budget in self._plan.max_tokens]
            if question.evidence_threads and self._memory.settings.recall_lines != 0:
                rankings[preset] = self._ranking(question, thread)
        if question.history:
            self._memory.delete(*thread.key)
        return Result(
            id=question.id,
            conversation=question.conversation,
            category=question.category,
            kind=question.kind,
            is_any_enough=question.is_any_enough,
            roles=tuple(self._texts[one].role for one in question.evidence),
            outcomes=tuple(outcomes),
            relevant=self._relevant(question),
            rankings=rankings,
        )

    def _asking_thread(self, question: Question) -> Thread:
        own = f"asking {question.id}"
        name = own if question.history or not self._plan.same_thread else list(self._conversation.threads)[-1]
        return self._memory.thread(name, self._conversation.name)

    def _warm_up(self) -> None:
        """Let every preset do what is done once per memory: calibration, matrices, summaries."""
        thread = self._asking_thread(Question("warm-up", self._conversation.name, "", "", "", "small talk"))
        for preset in self._plan.presets:
            with suppress(BudgetError):
                thread.context("Hello world", max_tokens=max(self._plan.max_tokens), preset=self._plan.settings(preset))

    def _outcome(self, question: Question, thread: Thread, preset: str, max_tokens: int) -> Outcome:
        with self._embedder.direct():
            started = time.perf_counter()
            try:
                context = thread.context(question.text, max_tokens=max_tokens, now=question.asked_at)
            except BudgetError as error:
                missed = (False,) * len(question.evidence)
                unhit = (False,) * len(question.spans)
                answered = False if self._is_verbatim(question) else None
                return Outcome(preset, max_tokens, 0, 0.0, missed, answered, unhit, refused=str(error))
            seconds = time.perf_counter() - started
        lines = rendered_lines(context.messages, question.text)
        recalled, with_exchange = self._recalled(context)
        return Outcome(
            preset=preset,
            max_tokens=max_tokens,
            tokens=context.tokens,
            seconds=seconds,
            found=tuple(holds(lines, self._texts[one].text) for one in question.evidence),
            answered=answer_in_context(question.answer, lines) if self._is_verbatim(question) else None,
            hits=tuple(is_hit(self._span_tokens(span, lines)) for span in question.spans),
            recalled=recalled,
            with_exchange=with_exchange,
        )

    def _is_verbatim(self, question: Question) -> bool:
        """Whether the answer occurs word for word in an evidence line."""
        return any(occurs(question.answer, self._texts[one].text) for one in question.evidence)

    def _span_tokens(self, span: tuple[int, int], lines: Sequence[str]) -> list[tuple[int, int]]:
        """For each line of a span its tokens, and how many of them are in the context."""
        id_at = self._conversation.id_at
        ids = [id_at[index] for index in range(span[0], span[1] + 1) if index in id_at]
        texts = [text for one in ids if (text := self._texts[one].text.strip())]
        held = [text if holds(lines, text) else excerpt_of(lines, text) for text in texts]
        return [(self._count(text), self._count(part)) for text, part in zip(texts, held, strict=True)]

    def _recalled(self, context: Context) -> tuple[int, int]:
        """How many recalled lines there are, and how many of them with all lines of their exchange."""
        present = {(source.thread, source.position) for source in context.sources}
        entries = [entry for entry in context.report.entries if entry.part == "recalled" and entry.included]
        recalled = [(entry.source.thread, entry.source.position) for entry in entries if entry.source]
        return len(recalled), sum(self._exchange.get(place, frozenset()) <= present for place in recalled)

    def _ranking(self, question: Question, thread: Thread) -> tuple[str, ...]:
        """All threads with a hit, by their best line."""
        hits = thread.recall(question.text, k=max(1, len(self._texts)))
        names = dict.fromkeys(hit.line.thread for hit in hits)
        return tuple(name for name in names if name in self._conversation.threads)

    def _relevant(self, question: Question) -> dict[str, tuple[str, ...]]:
        """The threads that count, by both readings; one without any is left out."""
        told = [one for one in question.evidence if self._texts[one].role == "user"]
        with_user = dict.fromkeys(self._conversation.thread_of[one] for one in told)
        found = {NAMED_THREADS: question.evidence_threads, USER_LINES: tuple(with_user)}
        return {name: threads for name, threads in found.items() if threads and question.evidence_threads}


def _exchange_of(threads: Mapping[str, Sequence[Message]]) -> dict[Place, frozenset[Place]]:
    """For each line the lines of its exchange that say something."""
    found = {}
    for name, messages in threads.items():
        payloads = [message.payload for message in messages]
        for run in exchanges(payloads):
            members = frozenset((name, place) for place in run if not is_empty(payloads[place]))
            found.update(dict.fromkeys(((name, place) for place in run), members))
    return found
