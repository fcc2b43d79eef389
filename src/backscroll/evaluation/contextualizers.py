"""Ways to make a query that stands alone of a message and what was said before it, by name.

The one place to add another: what opens it is handed the embedder. Those by a language model are handed who asks it,
and let its failures through: what it did not write is not measured as if it had.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from backscroll.errors import LLMError, NotFoundError
from backscroll.evaluation.datasets import Turn
from backscroll.protocols import Embedder
from backscroll.settings import BY_MODEL
from backscroll.types import Vector
from backscroll.wiring import Rewriter, contextualizer_names, stand_alone

NOTHING = "none"


@dataclass(frozen=True, slots=True)
class Contextualized:
    """A query that stands alone.

    Attributes:
        text: what is searched for; None where there is only a vector.
        vector: (d,), where the query is no text, such as a blend; None takes the text's.
    """

    text: str | None
    vector: Vector | None = None


Contextualize = Callable[[str, Sequence[Turn]], Contextualized]  # message, history -> query


def leave_alone(message: str, history: Sequence[Turn]) -> Contextualized:
    """The message as it is: what every other way is measured against."""
    return Contextualized(message)


def _shipped(name: str, embedder: Embedder, rewriter: Rewriter | None = None) -> Contextualize:
    """One of the library's own; where it changes nothing, the query is the message."""

    def contextualize(message: str, history: Sequence[Turn]) -> Contextualized:
        text, vector = stand_alone(name, message, history, embedder, rewriter)
        return Contextualized(text, vector)

    return contextualize


CONTEXTUALIZERS: Mapping[str, Callable[[Embedder], Contextualize]] = {
    NOTHING: lambda embedder: leave_alone,
    **{name: partial(_shipped, name) for name in contextualizer_names() if name not in (NOTHING, *BY_MODEL)},
}


def open_contextualizer(name: str, embedder: Embedder, rewriter: Rewriter | None = None) -> Contextualize:
    """The contextualizer of a name. Raises: NotFoundError, which lists the known ones; LLMError without a rewriter."""
    if name in BY_MODEL:
        if rewriter is None:
            raise LLMError(f"{name} asks a language model: name one by --llm openai:MODEL")
        return _shipped(name, embedder, rewriter)
    if name not in CONTEXTUALIZERS:
        raise NotFoundError(f"no contextualizer {name!r}: there are {', '.join((*CONTEXTUALIZERS, *BY_MODEL))}")
    return CONTEXTUALIZERS[name](embedder)
