"""LangGraph: its InMemoryStore with an index, the long-term memory of its guide.

Lines are put 256 at a time by `batch`: put one by one, each would be embedded by a request of its own. numpy is
installed, as the store recommends; without it the cosines are computed in plain Python.
"""

from collections.abc import Sequence

from langgraph.store.base import PutOp
from langgraph.store.memory import InMemoryStore
from peer_loop import DIMENSION, Embeddings, Line, Start, serve

_BATCH_LINES = 256
_NAMESPACE = ("user", "lines")


class Vector:
    """A store with one namespace."""

    def __init__(self, start: Start) -> None:
        served = Embeddings(start.url)
        self._store = InMemoryStore(index={"dims": DIMENSION, "embed": served.embed, "fields": ["text"]})

    def ingest(self, lines: Sequence[Line]) -> None:
        """Put all lines as items."""
        for first in range(0, len(lines), _BATCH_LINES):
            batch = lines[first : first + _BATCH_LINES]
            self._store.batch([PutOp(_NAMESPACE, line.id, {"text": line.text}) for line in batch])

    def ask(self, query: str, k: int, max_tokens: int) -> list[str]:
        """The nearest items."""
        return [found.key for found in self._store.search(_NAMESPACE, query=query, limit=k)]


if __name__ == "__main__":
    serve(lambda start: {"vector": Vector}[start.mode](start))
