"""How far a query is from what a human would have searched for."""

import numpy as np

from backscroll.types import Vector, Vectors


def embedding_distance(query: Vector, references: Vectors) -> float:
    """The distance to the nearest of the human rewrites: min over references of 1 - cosine.

    Args:
        query: (d,), of any length above 0.
        references: (n, d), n >= 1.

    Returns: 0 where they point the same way, 1 where they have nothing in common, at most 2.

    Source: the `embedding_distance` evaluator of LangChain (cosine), as used to compare a contextualized query with a
    human one; of several references the nearest, as several rewrites are right.

    >>> round(embedding_distance(np.array([3.0, 4.0]), np.array([[0.0, 1.0], [1.0, 0.0]])), 6)  # 1 - 4 / 5
    0.2
    """
    lengths = np.linalg.norm(references, axis=1) * np.linalg.norm(query)  # (n,)
    cosines = (references @ query) / lengths  # (n,)
    return max(0.0, 1.0 - float(cosines.max()))  # rounding may give a cosine above 1
