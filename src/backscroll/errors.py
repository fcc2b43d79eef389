"""Every error that Backscroll raises on purpose, in one tree.

    BackscrollError
    ├── BudgetError         (ValueError)    what must be sent does not fit in max_tokens
    ├── MessageError        (ValueError)    a message, a file or a setting is not what it should be
    │   └── ImportFileError                 the same, with the file and the line
    ├── NotFoundError       (LookupError)   no such thread, line, preset, embedder
    ├── StoreError          (OSError)       the file cannot be opened, read or written
    │   ├── NotAStoreError                  it is a file of something else
    │   ├── StoreBusyError                  another process kept the writer's place too long
    │   └── EmbedderMismatchError           it was written with another embedder
    ├── EmbedderError       (RuntimeError)  the embedder could not run
    │   └── ModelNotFoundError              its model is not on this machine
    └── LLMError            (RuntimeError)  the language model gave no reply that could be taken
        ├── LLMUnavailableError (ConnectionError)  it cannot be reached, or has no room now
        ├── LLMTimeoutError (TimeoutError)  it did not answer in time
        ├── ContextTooLongError             what was sent is longer than it takes
        ├── EmptyReplyError                 it answered nothing
        └── CutOffReplyError                it stopped before the end

Each leaf is also the builtin it resembles, keeps what caused it as ``__cause__``, carries its facts
as attributes, and says what to do.
"""


class BackscrollError(Exception):
    """The base of all errors of this package."""


class BudgetError(BackscrollError, ValueError):
    """The parts that may not be left out need more tokens than there are.

    Attributes:
        needed: tokens that the anchors, the tools and the prompt need together.
        max_tokens: tokens that the caller allowed.
    """

    def __init__(self, needed: int, max_tokens: int) -> None:
        self.needed = needed
        self.max_tokens = max_tokens
        super().__init__(
            f"the anchors, tools and prompt need {needed} tokens, max_tokens is {max_tokens}: "
            f"raise max_tokens to at least {needed}, or shorten the prompt, the system prompt, the tools or the pins"
        )


class MessageError(BackscrollError, ValueError):
    """A message, or a value given with it, is not what it should be."""


class ImportFileError(MessageError):
    """A file to be imported cannot be read as lines.

    Attributes:
        path: the file.
        line_number: the line in it, from 1; None where the file as a whole is at fault.
    """

    def __init__(self, path: str, line_number: int | None, problem: str) -> None:
        self.path = path
        self.line_number = line_number
        where = path if line_number is None else f"{path}:{line_number}"
        super().__init__(f"{where}: {problem}")


class NotFoundError(BackscrollError, LookupError):
    """What was named does not exist; the message lists what does where the list is short."""


class StoreError(BackscrollError, OSError):
    """The store could not be opened, read or written."""


class NotAStoreError(StoreError):
    """The file exists and is not a store of Backscroll's, or is one of a newer version."""


class StoreBusyError(StoreError):
    """Another process held the writer's place for longer than the wait allowed."""


class EmbedderMismatchError(StoreError):
    """The store's vectors were made by another embedder than the one asked for.

    Attributes:
        stored: name of the embedder that made the stored vectors.
        asked: name of the embedder asked for.
    """

    def __init__(self, stored: str, asked: str, path: str) -> None:
        self.stored = stored
        self.asked = asked
        super().__init__(
            f"{path} was embedded with {stored!r}, not {asked!r}: open it with embedder={stored!r}, "
            f"or run `backscroll reembed --db {path} --embedder {asked}`"
        )


class EmbedderError(BackscrollError, RuntimeError):
    """The embedder could not turn texts into vectors."""


class ModelNotFoundError(EmbedderError):
    """The embedder's model is not on this machine."""


class LLMError(BackscrollError, RuntimeError):
    """The language model gave no reply that could be taken.

    Attributes:
        status: the HTTP status, where a server answered with one.
        received: the text that had come before it failed; it is not stored.
    """

    def __init__(self, problem: str, status: int | None = None, received: str = "") -> None:
        self.status = status
        self.received = received
        super().__init__(problem)


class LLMUnavailableError(LLMError, ConnectionError):
    """The language model cannot be reached, is overloaded, or the connection broke; later it may answer."""


class LLMTimeoutError(LLMError, TimeoutError):
    """The language model did not answer in time."""


class ContextTooLongError(LLMError):
    """What was sent is longer than the model takes.

    Attributes:
        limit: the most tokens that it takes, where it said so.
    """

    def __init__(self, problem: str, status: int | None = None, limit: int | None = None) -> None:
        self.limit = limit
        super().__init__(problem, status)


class EmptyReplyError(LLMError):
    """The language model answered nothing: no text, no call."""


class CutOffReplyError(LLMError):
    """The language model stopped before the end of its reply; `received` has what there is of it.

    Attributes:
        finish_reason: why, in the provider's word: ``length``, ``content_filter``.
    """

    def __init__(self, problem: str, finish_reason: str, received: str = "") -> None:
        self.finish_reason = finish_reason
        super().__init__(problem, received=received)
