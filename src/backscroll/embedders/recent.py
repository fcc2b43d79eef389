"""An embedder that remembers its newest texts: what is said is embedded as a line, and at once again as a query.

Texts are remembered by their hashes, vectors alone are kept. Knows nothing about any model.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from backscroll.protocols import Embedder
from backscroll.types import Vector, Vectors

_MAX_TEXTS = 32  # between a line and its query lie those of the requests beside it


class RecentEmbedder:
    """Fulfils `backscroll.protocols.Embedder` by another one, which is asked for what is new. Safe to share.

    >>> from backscroll.embedders import open_embedder
    >>> embedder = RecentEmbedder(open_embedder("hashing"))
    >>> embedder.embed(["Hi!"]).tobytes() == embedder.embed(["Hi!"]).tobytes()
    True
    """

    dimension: int

    def __init__(self, embedder: Embedder) -> None:
        """Take who embeds."""
        self.name = embedder.name
        self.max_tokens = embedder.max_tokens
        self._embedder = embedder
        self._vectors: OrderedDict[bytes, Vector] = OrderedDict()  # by a text's hash, the newest last
        self._changing = threading.Lock()

    def __getattr__(self, name: str) -> int:
        """The dimension: some embedders have to ask for it."""
        if name != "dimension":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return self._embedder.dimension

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, those that are not among the newest; the empty text always, since it asks whether that can be.

        Returns: (n, d) float32, unit rows, in the order of `texts`.
        Raises: EmbedderError.
        """
        if len(texts) > _MAX_TEXTS or not texts or not all(texts):
            return self._embedder.embed(texts)
        keys = [blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
        with self._changing:
            known = {key: self._vectors[key] for key in keys if key in self._vectors}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            known |= zip(missing, self._embedder.embed(list(missing.values())), strict=True)
            self._remember({key: known[key] for key in keys})
        return np.stack([known[key] for key in keys])

    def close(self) -> None:
        """Forget all, and close it."""
        with self._changing:
            self._vectors.clear()
        self._embedder.close()

    def _remember(self, vectors: dict[bytes, Vector]) -> None:
        with self._changing:
            for key, vector in vectors.items():
                self._vectors[key] = vector
                self._vectors.move_to_end(key)
            while len(self._vectors) > _MAX_TEXTS:
                self._vectors.popitem(last=False)
