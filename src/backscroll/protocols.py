"""What may be swapped, and what each promises: Store, Index, Embedder, LLM, TokenCounter.

Knows nothing about any implementation. A store of lines and its derived index are two protocols because
they promise different things: what a `Store` acknowledged is never lost; what an `Index` holds can be
rebuilt from the lines at any time. One class usually fulfils both, so that they share a transaction.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from backscroll.types import (
    Candidates,
    Finding,
    Line,
    Mark,
    Message,
    Reply,
    ReplyOptions,
    Scope,
    Span,
    Summary,
    ThreadInfo,
    ThreadKey,
    Vector,
    Vectors,
)

Pieces = Generator[str | Reply, None, None]
_AS_IT_IS = ReplyOptions()


class TokenCounter(Protocol):
    """Counts tokens the way one family of models does.

    Attributes:
        name: vocabulary or model, as the report names it.
        tokens_per_message: what a message costs beside its texts.
        tokens_per_name: what a message's name costs beside its text.
        tokens_per_reply: what opens the model's reply, once per request.
    """

    name: str
    tokens_per_message: int
    tokens_per_name: int
    tokens_per_reply: int

    def count(self, text: str) -> int:
        """Number of tokens of `text`, taken as ordinary text: no special token is recognized in it."""


class Embedder(Protocol):
    """Turns texts into vectors whose dot product says how near their meanings are.

    Attributes:
        name: identity of the vectors: model and precision; stored with them.
        dimension: d.
        max_tokens: longest text that it reads, in its own tokens; the rest of a text is not seen.
    """

    name: str
    dimension: int
    max_tokens: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts.

        A text's vector depends on the text alone, not on its neighbors in the batch.

        Returns: (n, d) float32, unit rows, in the order of `texts`.
        Raises: EmbedderError when it cannot run; never returns fewer rows.
        """

    def close(self) -> None:
        """Let go of what it holds; embedding again opens it again."""


class LLM(Protocol):
    """Answers messages.

    One that has a true `is_concurrent` too may be asked by several threads at once: given for everything, it is also
    asked in the background. Any other is asked for replies alone, unless it is named for more.

    Attributes:
        model: whose tokens are counted, as `backscroll.tokens.open_counter` takes it; None counts as o200k_base.
    """

    model: str | None

    def complete(self, messages: Sequence[Mapping[str, Any]], options: ReplyOptions = _AS_IT_IS) -> Reply:
        """The reply to messages, whole; it may be empty or cut off, which its finish_reason says.

        Raises: LLMUnavailableError, LLMTimeoutError, ContextTooLongError, or LLMError for anything else that it
            refuses; never an empty reply in place of a failure.
        """

    def stream(self, messages: Sequence[Mapping[str, Any]], options: ReplyOptions = _AS_IT_IS) -> Pieces:
        """The reply's text in pieces as they come, and last of all the Reply that they make.

        Closing the generator ends the request. Raises: as `complete`, also after the first piece.
        """

    def close(self) -> None:
        """Let go of what it holds; asking again opens it again."""


class Store(Protocol):
    """Keeps lines. What a method returned as stored is on disk, whatever dies after that."""

    def append(self, key: ThreadKey, messages: Sequence[Message]) -> list[Line]:
        """Store messages at the end of the thread, in one transaction; make the thread on first use.

        Every message stands at the next position of its thread. A message whose id the thread has already
        (on the path that `key` names) is not stored again.

        Returns: the lines in the order of `messages`; for a repeated id the line that was there.
        Raises: MessageError where it would make a thread named like a branch (``~`` and a number at the end), or the
            name is `own_path`'s; StoreError. Then none of them is stored.
        """

    def put(self, key: ThreadKey, message: Message, pinned: bool) -> Line:
        """Store a message at the end of the thread, and delete the line that has its id, in one transaction.

        The old line's bytes are in none of the store's files when this returns; where another process keeps them just
        then, `check` says so, and its repair or the next deletion takes them.
        Raises: MessageError, StoreError; then the old line stays.
        """

    def exclusive(self) -> AbstractContextManager[None]:
        """While it lasts, nobody else changes anything: what is read inside still holds when it is acted on.

        What was stored inside is on disk when it ends; where it raises, nothing of it is stored. Other writers wait:
        nothing slow belongs inside, no search, and no `delete`.
        """

    def one_state(self) -> AbstractContextManager[None]:
        """While it lasts, what is read is of one state of the store, until something is written inside.

        Cheaper than reading one after the other, too. Other threads of this process wait: nothing slow belongs inside,
        and no `delete`.
        """

    def fork(self, key: ThreadKey, position: int) -> ThreadKey:
        """Let the thread go on from `position` as a branch; the lines from there on are no longer current.

        The thread's name stands for the branch from now on. The abandoned lines stay stored.

        Returns: the branch's own key.
        Raises: NotFoundError where there is no such thread, or the position is not 0 to its next one.
        """

    def switch(self, key: ThreadKey, branch: str) -> None:
        """Make an existing branch the one that the thread's name stands for; `own_path` names the root's own lines.

        Raises: NotFoundError, naming the branches that there are.
        """

    def tail(self, key: ThreadKey, tokens: int) -> list[Line]:
        """The newest current lines, oldest first: as few as have `tokens` tokens together, or all there are."""

    def read(self, key: ThreadKey, first: int, last: int) -> list[Line]:
        """The current lines from position `first` to `last`, both included, in order; missing ones are skipped."""

    def marks(self, key: ThreadKey) -> list[Mark]:
        """What all the current lines say, in order, without reading it."""

    def fetch(self, rows: Sequence[int]) -> list[Line]:
        """Lines by the store's own numbers, in the order asked; a number that is gone is skipped."""

    def find(self, key: ThreadKey, line_id: str) -> Line | None:
        """The current line that has an id, or None."""

    def said(self, user: str, message: Message, max_lines: int) -> list[Line]:
        """The user's lines that say the same as a message (see `fingerprint`), newest first, current or not."""

    def threads(self, user: str | None = None, family: str | None = None) -> list[ThreadInfo]:
        """All threads, or those of one user, branches included, in the order of users and first lines.

        Args:
            family: only the user's thread of this name, with its branches.
        """

    def pinned(self, key: ThreadKey) -> list[Line]:
        """The pinned lines of the thread's current path, in order."""

    def pin(self, key: ThreadKey, position: int, pinned: bool) -> Line:
        """Pin or unpin a line. Raises: NotFoundError."""

    def delete(self, user: str, thread: str | None = None, position: int | Iterable[int] | None = None) -> int:
        """Delete a user, a thread with its branches, or lines by their positions, with all that was derived from them.

        Their bytes are in none of the store's files when this returns. Deleting a branch takes those that grew from
        it, and the thread's name goes back to its parent.

        Returns: how many lines were deleted.
        Raises: NotFoundError when there is no such user, thread or line; StoreBusyError where they are deleted and
            another process still keeps their bytes.
        """

    def close(self) -> None:
        """Close the files; a closed store raises StoreError."""


class Index(Protocol):
    """Keeps what is derived from lines: vectors, text index, summaries, relevance buffers."""

    def unembedded(self, user: str | None, max_lines: int) -> list[Line]:
        """Lines that have no vectors yet, oldest first: all, or the first `max_lines`; of all users for None."""

    def unembedded_count(self, user: str | None) -> int:
        """How many lines have no vectors yet."""

    def add_vectors(self, rows: Sequence[int], passages: Sequence[Sequence[tuple[int, int]]], vectors: Vectors) -> None:
        """Store the vectors of lines.

        Args:
            rows: the lines.
            passages: for each line, the (start, end) characters of its text that each of its vectors stands for.
            vectors: (sum of passages, d), in that order. A line deleted or embedded meanwhile is
                skipped; no passages at all mark a line as embedded.
        """

    def search(
        self, scope: Scope, vector: Vector | None, terms: Sequence[str], max_lines: int, reach: int
    ) -> Candidates:
        """The `max_lines` best current lines by cosine and as many by BM25, and the lines around them.

        Args:
            scope: which lines may be seen; where it names no user, each user is scored by their own statistics.
            vector: (d,) unit; None searches by terms alone.
            terms: of the query, by `backscroll.terms`; may repeat no term.
            max_lines: at least 1; a scope of no more lines is returned whole.
            reach: how many positions around each found line come along, on both sides.
        """

    def speakers(self, scope: Scope) -> tuple[str, ...]:
        """Who speaks in the scope's current lines."""

    def passage(self, row: int, passage: int) -> tuple[int, int]:
        """The (start, end) characters of a line's text that one of its vectors stands for."""

    def summaries(self, key: ThreadKey) -> list[Summary]:
        """The thread's summaries of its current path, by first position, then longest first."""

    def deletions(self, user: str) -> str:
        """A mark that is another one after any deletion of the user's lines."""

    def add_summary(self, summary: Summary, deletions: str | None = None) -> bool:
        """Keep a summary; one of the same lines by the same method is replaced.

        Args:
            deletions: the user's mark from before the summary's lines were read: where it is another one by now, the
                summary may tell deleted words and is not kept. None keeps it.

        Returns: whether it was kept.
        """

    def blocks(self, key: ThreadKey, before: int) -> list[Span]:
        """What was recalled when the thread was asked at positions below `before`, oldest first."""

    def put_blocks(self, key: ThreadKey, asked_at: int, spans: Sequence[Span], max_blocks: int) -> None:
        """Replace what was recalled at `asked_at`, and forget all but the newest `max_blocks` blocks up to there."""

    def setting(self, name: str) -> str | None:
        """A value kept with the store (embedder, calibration), or None."""

    def put_setting(self, name: str, value: str) -> None:
        """Keep a value with the store."""

    def drop_vectors(self) -> None:
        """Forget all vectors: the first step of embedding again."""

    def check(self, repair: bool = False) -> list[Finding]:
        """Compare what is derived with the lines; with `repair`, rebuild what can be rebuilt without an embedder.

        Missing vectors are reported and stay missing: the caller embeds `unembedded`.
        """


class MemoryStore(Store, Index, Protocol):
    """A store whose lines and index share one transaction."""


Counting = Callable[[str], int]
Lines = Iterable[Line]
