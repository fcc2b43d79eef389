"""A language model's summaries: claimed, asked for, and stored where what they tell of still stands.

The model is asked outside of any transaction. Before it is, the summary is claimed, so that no other process asks for
the same one; afterwards the lines are looked at again, so that nothing is kept that tells of deleted words, or of lines
that are no longer current. A process that dies leaves a claim, which is void after a while.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backscroll.prompts import Prompt
from backscroll.protocols import LLM, MemoryStore
from backscroll.summarize.by_model import of_lines, of_notes, sentences_in, write_notes
from backscroll.summarize.chunks import FAN_IN, Run, quarters, span_of
from backscroll.tokens import count_stored
from backscroll.types import Summary, ThreadKey

Spans = dict[tuple[int, int], Summary]

_CLAIM_TIME = timedelta(minutes=10)  # what takes longer may be made twice; the one that is there first is kept
_BEFORE_ALL = datetime(1970, 1, 1, tzinfo=UTC)


class Notes:
    """Makes the summaries of runs of chunks.

    Args:
        store: where lines and summaries are.
        llm: who writes them.
        prompt: what the LLM is told.

    Attributes:
        method: the model's name and the prompt's version, which each summary is kept with.
    """

    def __init__(self, store: MemoryStore, llm: LLM, prompt: Prompt) -> None:
        self.method = f"{llm.model or 'unnamed model'} {prompt.version}"
        self._store = store
        self._llm = llm
        self._prompt = prompt

    def known(self, stored: Sequence[Summary]) -> Spans:
        """Those of a thread's summaries that this model made by this prompt."""
        return {(one.first, one.last): one for one in stored if one.method == self.method and one.sentences}

    def make(
        self, key: ThreadKey, run: Run, known: Spans, earlier: Sequence[Summary], made: Callable[[Summary], None]
    ) -> Summary | None:
        """The summary of a run: of the lines of up to four chunks; of a longer run, of the notes on its quarters.

        Args:
            known: those that there are; they are not made again.
            earlier: what is noted of the lines in front of the run, oldest first.
            made: told each summary that was made and stored on the way.

        Returns: None where another process is at it, or its lines went meanwhile.
        Raises: LLMError where the model writes nothing that can be taken; StoreError.
        """
        there = known.get(span_of(run))
        if there is not None:
            return there
        notes: list[Summary] = []
        for quarter in quarters(run) if len(run) > FAN_IN else []:
            note = self.make(key, quarter, known, [*earlier, *notes], made)
            if note is None:
                return None
            notes.append(note)
        summary = self._claimed(key, run, notes, earlier)
        if summary is not None:
            made(summary)
        return summary

    def _claimed(
        self, key: ThreadKey, run: Run, notes: Sequence[Summary], earlier: Sequence[Summary]
    ) -> Summary | None:
        """Claim the summary of a run, make it and store it; where that fails, the claim is given up."""
        claim = Summary(*key, *span_of(run), (), self.method, run[-1].created_at, datetime.now(UTC))
        if not self._claim(claim, run):
            return None
        summary = None
        try:
            summary = self._written(claim, notes, earlier[-FAN_IN:])
        finally:
            if summary is None:
                self._give_up(claim)
        return summary

    def _claim(self, claim: Summary, run: Run) -> bool:
        """Whether the lines still stand, and nobody else made their summary or is making it: then nobody else will."""
        with self._store.exclusive():
            stored = self._store.summaries(ThreadKey(claim.user, claim.thread))
            there = _like(claim, stored)
            is_free = there is None or (not there.sentences and _age(there) >= _CLAIM_TIME)
            return is_free and all(part in stored for part in run) and self._store.add_summary(claim)

    def _give_up(self, claim: Summary) -> None:
        with self._store.exclusive():
            if _like(claim, self._store.summaries(ThreadKey(claim.user, claim.thread))) == claim:
                self._store.add_summary(replace(claim, made_at=_BEFORE_ALL))

    def _written(self, claim: Summary, notes: Sequence[Summary], earlier: Sequence[Summary]) -> Summary | None:
        key = ThreadKey(claim.user, claim.thread)
        lines = [] if notes else self._store.read(key, claim.first, claim.last)
        if not notes and not lines:
            return None
        material = of_notes(notes) if notes else of_lines(lines, earlier)
        text = write_notes(self._llm, self._prompt, material, count_stored)
        summary = replace(claim, sentences=sentences_in(text), made_at=datetime.now(UTC))
        with self._store.exclusive():
            stored = self._store.summaries(key)
            there = _like(claim, stored)
            read_again = [] if notes else self._store.read(key, claim.first, claim.last)
            stands = [line.row for line in read_again] == [line.row for line in lines]
            if (
                (there is not None and there.sentences)
                or not stands
                or not all(one in stored for one in (*notes, *earlier))
            ):
                return None
            self._store.add_summary(summary)
        return summary


def _like(claim: Summary, stored: Sequence[Summary]) -> Summary | None:
    """The summary of the claim's lines by its method, or whose claim there is."""
    same = [one for one in stored if (one.first, one.last, one.method) == (claim.first, claim.last, claim.method)]
    return same[0] if same else None


def _age(claim: Summary) -> timedelta:
    return datetime.now(UTC) - (claim.made_at or _BEFORE_ALL)
