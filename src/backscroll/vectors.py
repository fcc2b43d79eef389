"""What an embedder gives, held to what an embedder promises: a unit row of finite numbers for each text.

An embedder may be anybody's; what it does wrong must be told before it stands in a store as vectors.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from backscroll.errors import EmbedderError
from backscroll.protocols import Embedder
from backscroll.types import Vectors

_ABOUT_ONE = 1e-3  # rows that are so near to length 1 stay as they are, to the bit


def embedded(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """The vectors of texts; of a blank one zeros, which the embedder is not asked for.

    Returns: (n, d) float32, rows of length 1, in the order of `texts`; zeros also where the embedder gave zeros.
    Raises: EmbedderError, also where the embedder gave something else than so many rows of finite numbers.
    """
    places = [place for place, text in enumerate(texts) if text.strip()]
    if len(places) == len(texts):
        return _embedded(embedder, texts)
    said = _embedded(embedder, [texts[place] for place in places]) if places else None
    rows = np.zeros((len(texts), embedder.dimension if said is None else said.shape[1]), np.float32)
    if said is not None:
        rows[places] = said
    return rows


def _embedded(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    given = embedder.embed(texts)
    try:
        return unit_rows(given, len(texts))
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbedderError(
            f"the embedder {embedder.name!r} gave no vectors: {error}; its embed(texts) has to give one row of "
            "finite numbers for each text"
        ) from error


def unit_rows(given: Any, count: int) -> Vectors:
    """Rows at length 1.

    Args:
        given: (count, d) numbers, as an array or as lists.

    Raises: ValueError, TypeError or OverflowError where it is something else, or a number is not finite.
    """
    rows = np.asarray(given)
    if rows.ndim != 2 or len(rows) != count or (count and not rows.shape[1]):
        raise ValueError(f"for {count} texts an array of shape {rows.shape}")
    wide = rows.astype(np.float64)
    lengths = np.sqrt(np.einsum("nd,nd->n", wide, wide))  # (n,)
    if not np.isfinite(lengths).all():
        place = int(np.flatnonzero(~np.isfinite(lengths))[0])
        raise ValueError(f"row {place} has a number that is not finite, or too large to be squared")
    is_unit = np.abs(lengths - 1) < _ABOUT_ONE
    if is_unit.all():
        return rows.astype(np.float32, copy=False)
    scales = np.where(is_unit | (lengths == 0), 1, lengths)
    unit: Vectors = (wide / scales[:, np.newaxis]).astype(np.float32)
    return unit
