"""LlamaIndex: VectorStoreIndex; the same with BM25Retriever in a QueryFusionRetriever.

The fusion retriever would let a language model write more queries; with num_queries=1 it takes the question alone. Its
mode is reciprocal_rerank, the one of its guide; BM25Retriever stems and drops stop words by itself.
"""

from collections.abc import Sequence

from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import TextNode
from llama_index.retrievers.bm25 import BM25Retriever
from peer_loop import Embeddings, Line, Start, serve
from pydantic import PrivateAttr

_BATCH_TEXTS = 256


class ServedEmbedding(BaseEmbedding):
    """The one embedder as LlamaIndex wants it."""

    _embeddings: Embeddings = PrivateAttr()

    def __init__(self, url: str) -> None:
        super().__init__(embed_batch_size=_BATCH_TEXTS)
        self._embeddings = Embeddings(url)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embeddings.embed([query])[0]

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._embeddings.embed([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embeddings.embed(texts)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)


class Vector:
    """The vector index alone."""

    def __init__(self, start: Start) -> None:
        self._embedding = ServedEmbedding(start.url)

    def ingest(self, lines: Sequence[Line]) -> None:
        """Index all lines as nodes."""
        self.nodes = [TextNode(text=line.text, id_=line.id) for line in lines]
        self.index = VectorStoreIndex(self.nodes, embed_model=self._embedding)

    def ask(self, query: str, k: int, max_tokens: int) -> list[str]:
        """The nearest lines."""
        found = self.index.as_retriever(similarity_top_k=k).retrieve(query)
        return [hit.node.node_id for hit in found]


class Hybrid(Vector):
    """The vector index and BM25, fused by rank."""

    def ingest(self, lines: Sequence[Line]) -> None:
        """Index all lines in both."""
        super().ingest(lines)
        self._words = BM25Retriever.from_defaults(nodes=self.nodes, similarity_top_k=1)

    def ask(self, query: str, k: int, max_tokens: int) -> list[str]:
        """The lines that rank best in both lists."""
        self._words.similarity_top_k = min(k, len(self.nodes))
        fused = QueryFusionRetriever(
            [self.index.as_retriever(similarity_top_k=k), self._words],
            llm=MockLLM(),
            mode="reciprocal_rerank",
            similarity_top_k=k,
            num_queries=1,
            use_async=False,
        )
        return [hit.node.node_id for hit in fused.retrieve(query)]


if __name__ == "__main__":
    serve(lambda start: {"vector": Vector, "hybrid": Hybrid}[start.mode](start))
