"""Vectors that were made once are kept in a file: by the embedder's name and the text, whatever store asks for them.

A run that was interrupted, or is repeated with other settings, embeds no line twice. Knows nothing about lines.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import apsw
import numpy as np

from backscroll.errors import StoreError
from backscroll.protocols import Embedder
from backscroll.types import Vector, Vectors

FILE = "vectors.db"
_WAIT_SECONDS = 30
_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
  embedder TEXT NOT NULL,
  digest   BLOB NOT NULL,  -- blake2b of the text, 16 bytes
  vector   BLOB NOT NULL,  -- float32, little-endian
  PRIMARY KEY (embedder, digest)
) WITHOUT ROWID
"""


class VectorCache:
    """A file of vectors. Several processes may share it; it can be deleted at any time."""

    def __init__(self, folder: Path) -> None:
        """Open the cache in a folder, and make it where there is none. Raises: StoreError."""
        path = folder / FILE
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._database = apsw.Connection(str(path))
            self._database.set_busy_timeout(_WAIT_SECONDS * 1000)
            for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=OFF", _SCHEMA):
                self._database.execute(statement).fetchall()
        except (OSError, apsw.Error) as error:
            raise StoreError(f"{path} is no cache of vectors ({error}): delete it, or name another --cache") from error

    def get(self, embedder: str, text: str) -> Vector | None:
        """The vector of a text, or None."""
        query = "SELECT vector FROM vectors WHERE embedder = ? AND digest = ?"
        found = self._database.execute(query, (embedder, _digest(text))).get
        return None if found is None else np.frombuffer(found, dtype="<f4")

    def put(self, embedder: str, texts: Sequence[str], vectors: Vectors) -> None:
        """Keep the vectors of texts."""
        rows = [
            (embedder, _digest(text), vector.astype("<f4").tobytes())
            for text, vector in zip(texts, vectors, strict=True)
        ]
        with self._database:
            self._database.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?, ?)", rows)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


class CachedEmbedder:
    """An embedder that asks a cache first; its vectors and its name are those of the one that it wraps."""

    def __init__(self, embedder: Embedder, cache: VectorCache) -> None:
        """Wrap an embedder."""
        self.name = embedder.name
        self.dimension = embedder.dimension
        self.max_tokens = embedder.max_tokens
        self._embedder = embedder
        self._cache = cache
        self._is_direct = False

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts: those that the cache does not have, each once."""
        if self._is_direct or not texts:
            return self._embedder.embed(texts)
        known = {text: self._cache.get(self.name, text) for text in texts}
        new = [text for text, vector in known.items() if vector is None]
        if new:
            made = self._embedder.embed(new)
            self._cache.put(self.name, new, made)
            known |= dict(zip(new, made, strict=True))
        return np.stack([vector for text in texts if (vector := known[text]) is not None])

    @contextmanager
    def direct(self) -> Iterator[None]:
        """Ask the embedder itself: for queries, so that the time measured is what a user waits."""
        self._is_direct = True
        try:
            yield
        finally:
            self._is_direct = False

    def close(self) -> None:
        """Nothing: the embedder is shared by the memories of a run."""


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
