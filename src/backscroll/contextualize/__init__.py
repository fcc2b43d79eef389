"""Newest message + recent lines -> a query that stands alone.

"Is it treatable?", after talk of lung cancer, finds nothing by itself. A contextualizer gives the texts to search for,
by the words of all of them and by the sum of their weighted vectors; whoever calls embeds them:

    made = contextualize(message, recent)
    vector = combine(embedder.embed([part.text for part in made.parts]), made)

Deterministic, and asks nobody, but for those by a language model: `by_model`. Knows nothing about stores and budgets.

    >>> recent = [Said("user", "What is throat cancer?"), Said("assistant", "A disease of the pharynx.")]
    >>> contextualize("Is it treatable?", recent).text
    'Is throat cancer treatable?'
    >>> contextualize("How tall is the Eiffel Tower in Paris?", recent).is_changed
    False
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from backscroll.contextualize.by_model import Rewriter
from backscroll.contextualize.plain import blend, none
from backscroll.contextualize.resolve import trained
from backscroll.contextualize.values import Contextualized, Contextualizer, Part, Said
from backscroll.errors import LLMError, NotFoundError
from backscroll.settings import BY_MODEL
from backscroll.tracing import stage
from backscroll.types import Vector, Vectors

__all__ = [
    "CONTEXTUALIZERS",
    "Contextualized",
    "Contextualizer",
    "Part",
    "Rewriter",
    "Said",
    "combine",
    "contextualize",
]

CONTEXTUALIZERS: Mapping[str, Contextualizer] = MappingProxyType({"none": none, "blend": blend, "trained": trained})


@stage("contextualize")
def contextualize(
    message: str, recent: Sequence[Said], name: str = "trained", rewriter: Rewriter | None = None
) -> Contextualized:
    """Make a query of a message that may only be understood from the lines before it.

    Args:
        message: the newest message.
        recent: the lines before it, oldest first; the newest 13 and the first 2 are looked at. A short system prompt
            that does not instruct is taken as a title.
        name: ``trained``; ``blend``, which changes no word; ``none``; or ``rewrite``, ``multi``, ``hyde``, which ask
            the `rewriter`, and where there is none, or it fails, are ``trained``, with a note.

    Returns: the message as it is where it stands alone.
    Raises: NotFoundError for an unknown name.
    """
    if name in BY_MODEL:
        return _by_model(message, recent, name, rewriter)
    if name not in CONTEXTUALIZERS:
        raise NotFoundError(f"no contextualizer {name!r}: there are {', '.join((*CONTEXTUALIZERS, *BY_MODEL))}")
    return CONTEXTUALIZERS[name](message, recent)


def _by_model(message: str, recent: Sequence[Said], name: str, rewriter: Rewriter | None) -> Contextualized:
    if rewriter is None:
        problem = "there is no language model to ask"
    else:
        try:
            return rewriter.queries(name, message, recent)
        except LLMError as error:
            problem = f"the language model failed: {error}"
    instead = trained(message, recent)
    told = f"{name} was done without a language model: {problem}"
    return replace(instead, note="; ".join(filter(None, (told, instead.note))))


def combine(vectors: Vectors, made: Contextualized) -> Vector:
    """The query's vector.

    Args:
        vectors: (n, d) of the texts of `made.parts`, in their order, unit rows.

    Returns: (d,) float32, unit length.
    """
    total = np.array([part.weight for part in made.parts], dtype=np.float32) @ vectors
    length = float(np.linalg.norm(total))
    return np.asarray(total / length if length > 0 else vectors[0], dtype=np.float32)
