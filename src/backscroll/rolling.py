"""The rolling summary of a thread: what stands in front of the window, told in few words, and kept.

A chunk that has left the window is summarized by its own sentences at once. Where there is a language model, it tells
the same runs of chunks in words of its own, in the background, and they take the place of the sentences when they are
there. The watermark moves with each summary that was looked at and stored, and with nothing else: whatever fails or
dies in between, what stood there still stands.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from backscroll.background import Background
from backscroll.notes import Notes
from backscroll.prompts import Prompt
from backscroll.protocols import LLM, MemoryStore
from backscroll.summarize.chunks import CHUNK_TOKENS, FAN_IN, Run, chunks, cover, quarters, span_of, split
from backscroll.summarize.extractive import METHOD, METHOD_MERGED, merge, summarize
from backscroll.tokens import count_stored
from backscroll.types import Summary, ThreadKey

_ALL = 2**62  # behind every position
_NEXT_LINES = 16  # behind the window's start: whether a chunk ends there shows in the lines behind it
_CLOSE_SECONDS = 2.0

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class _Kept:
    """What is stored of a thread.

    Attributes:
        parts: summaries of its single chunks without a model, in order, without a gap.
        stored: all its summaries.
        keep: stores one.
    """

    parts: Run
    stored: Sequence[Summary]
    keep: Callable[[Summary], Summary]


class Rolling:
    """Makes, keeps and finds summaries.

    Args:
        store: where lines and summaries are.
        llm: who writes them; None leaves it at the lines' own sentences.
        prompt: what the LLM is told; needed where there is one.
        background: where the LLM is asked.
    """

    def __init__(
        self,
        store: MemoryStore,
        llm: LLM | None = None,
        prompt: Prompt | None = None,
        background: Background | None = None,
    ) -> None:
        self._store = store
        self._llm = llm
        self._notes = Notes(store, llm, prompt) if llm is not None and prompt is not None else None
        self._background = background or Background()

    @property
    def has_model(self) -> bool:
        """Whether a language model writes summaries."""
        return self._notes is not None

    def told(
        self, key: ThreadKey, before: int, ahead: int, trigger_tokens: int
    ) -> tuple[list[Summary], tuple[str, ...]]:
        """What the lines in front of a position say, oldest first, and what the report is to note.

        The model is asked in the background: when there is a first chunk to tell, again whenever `trigger_tokens` that
        it has not told have left the window, and for four chunks in a row that will leave it next.

        Args:
            before: where the window starts.
            ahead: where it will start when it slides next: what is told by then changes nothing in front of it.
        """
        kept = self._kept(key, ahead if self._notes else before)
        known = self._notes.known(kept.stored) if self._notes else {}
        runs = [piece for run in cover(kept.parts, before) for piece in split(run, lambda one: span_of(one) in known)]
        summaries = [known.get(span_of(run)) or _extractive(run, kept) for run in runs]
        if self._notes is None:
            return summaries, ()
        problem = self._background.problem(key)  # before it is tried again
        missing = sum(len(run) for run in runs if span_of(run) not in known)
        is_first = all(span_of(run) not in known for run in runs)
        is_due = missing > 0 and (is_first or missing * CHUNK_TOKENS >= trigger_tokens)
        soon = [run for run in cover(kept.parts, ahead) if len(run) >= FAN_IN and span_of(run) not in known]
        if is_due or (soon and not is_first):
            self._background.ask(key, partial(self.make, key, before if is_due else 0, ahead))
        return summaries, () if problem is None else (f"the summary stands without the model, which failed: {problem}",)

    def make(self, key: ThreadKey, before: int = _ALL, ahead: int = 0, progress: Progress | None = None) -> int:
        """Let the model tell the whole chunks in front of a position that it has not told yet, now.

        Args:
            ahead: in front of this position, four chunks in a row are told too.
            progress: told 1 after each summary that was made and stored.

        Returns: how many were made; those that another process is making are left to it.
        Raises: LLMError, StoreError; what was made before is kept.
        """
        if self._notes is None:
            return 0
        kept = self._kept(key, max(before, ahead))
        known = self._notes.known(kept.stored)
        made: list[Summary] = []

        def note(summary: Summary) -> None:
            made.append(summary)
            known[summary.first, summary.last] = summary
            if progress:
                progress(1)

        for position, least in ((before, 1), (ahead, FAN_IN)):
            earlier: list[Summary] = []
            for run in cover(kept.parts, position):
                wanted = len(run) >= least
                told = self._notes.make(key, run, known, earlier, note) if wanted else known.get(span_of(run))
                earlier.append(told or _extractive(run, kept))
        return len(made)

    def summaries(self, key: ThreadKey) -> list[Summary]:
        """All that are kept of a thread's path, however they were made: by first position, then longest first."""
        return [one for one in self._store.summaries(key) if one.sentences or one.made_at is None]

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the model is not asked any more. Returns: whether it came to that in time."""
        return self._background.wait(timeout_seconds)

    def close(self) -> None:
        """Ask no more, and let go of the model; a call that is going on is left to itself after a moment."""
        if self._background.close(_CLOSE_SECONDS) and self._llm is not None:
            self._llm.close()

    def _kept(self, key: ThreadKey, before: int) -> _Kept:
        """What is stored, with the chunks that left the window since, which are summarized now."""
        with self._store.one_state():
            keep = partial(self._keep, self._store.deletions(key.user))
            stored = self._store.summaries(key)
            single = [one for one in stored if one.method == METHOD]
            covered = single[-1].last + 1 if single else 0
            left = self._store.read(key, covered, before + _NEXT_LINES) if covered < before else []
        single = self._without_gaps(key, single, keep)
        gone = [chunk for chunk in chunks(left) if chunk[-1].position < before]
        return _Kept([*single, *(keep(summarize(chunk, count_stored)) for chunk in gone)], stored, keep)

    def _without_gaps(
        self, key: ThreadKey, summaries: Sequence[Summary], keep: Callable[[Summary], Summary]
    ) -> list[Summary]:
        """The summaries of single chunks; one that went with a deleted line is made anew of the rest."""
        told: list[Summary] = []
        for summary in summaries:
            covered = told[-1].last + 1 if told else 0
            left = self._store.read(key, covered, summary.first - 1) if covered < summary.first else []
            told += [keep(summarize(left, count_stored))] if left else []
            told.append(summary)
        return told

    def _keep(self, deletions: str, summary: Summary) -> Summary:
        """The summary, stored unless lines went since its own were read."""
        self._store.add_summary(summary, deletions)
        return summary


def _extractive(run: Run, kept: _Kept) -> Summary:
    """The summary of a run without a model: the stored one, or its quarters' most telling sentences, kept."""
    if len(run) == 1:
        return run[0]
    first, last = span_of(run)
    stored = [one for one in kept.stored if (one.first, one.last, one.method) == (first, last, METHOD_MERGED)]
    return stored[0] if stored else kept.keep(merge([_extractive(part, kept) for part in quarters(run)], count_stored))
