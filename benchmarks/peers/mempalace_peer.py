"""MemPalace on its sqlite_exact backend: candidates by meaning, or by meaning and by words, then its own re-ranking.

`chroma vector` is the first of them on chroma, the backend that it takes unless told otherwise. Each line is a drawer
with a source of its own, since hits of one source are taken as one.
"""

import os
from collections.abc import Sequence

from mempalace.palace import get_collection
from mempalace.searcher import search_memories
from peer_loop import Line, Start, serve

_BATCH_LINES = 256
_BACKENDS = {"vector": "sqlite_exact", "hybrid": "sqlite_exact", "chroma vector": "chroma"}
_STRATEGIES = {"vector": "vector", "hybrid": "union", "chroma vector": "vector"}


class MemPalace:
    """A palace with one wing, and a room for each thread."""

    def __init__(self, start: Start) -> None:
        os.environ["MEMPALACE_BACKEND"] = _BACKENDS[start.mode]  # asked for again at each search
        self._path = str(start.folder)
        self._strategy = _STRATEGIES[start.mode]
        self._collection = get_collection(self._path, create=True)

    def ingest(self, lines: Sequence[Line]) -> None:
        """File all lines."""
        for first in range(0, len(lines), _BATCH_LINES):
            batch = lines[first : first + _BATCH_LINES]
            self._collection.upsert(
                documents=[line.text for line in batch],
                ids=[line.id for line in batch],
                metadatas=[
                    {"wing": "chat", "room": line.thread, "source_file": line.id, "chunk_index": 0} for line in batch
                ],
            )

    def ask(self, query: str, k: int, max_tokens: int) -> list[str]:
        """The best drawers."""
        found = search_memories(query, palace_path=self._path, n_results=k, candidate_strategy=self._strategy)
        if "error" in found:
            raise RuntimeError(found["error"])
        return [hit["source_file"] for hit in found["results"]]


if __name__ == "__main__":
    serve(MemPalace)
