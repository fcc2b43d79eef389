"""LangChain: InMemoryVectorStore; the same with BM25 in an EnsembleRetriever; trim_messages as the plain window.

BM25Retriever splits at spaces and keeps capitals unless it is told otherwise; here it is given words in small letters,
which finds more. The ensemble's weights are its default, equal; its constant of rank fusion is the default, 60.
"""

import re
from collections.abc import Sequence

from langchain_classic.retrievers import EnsembleRetriever
from langchain_community.retrievers import BM25Retriever
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings as LangChainEmbeddings
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, trim_messages
from langchain_core.vectorstores import InMemoryVectorStore
from peer_loop import Embeddings, Line, Start, serve


class ServedEmbeddings(LangChainEmbeddings):
    """The one embedder as LangChain wants it."""

    def __init__(self, url: str) -> None:
        self._embeddings = Embeddings(url)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors of lines."""
        return self._embeddings.embed(texts)

    def embed_query(self, text: str) -> list[float]:
        """The vector of a query."""
        return self._embeddings.embed([text])[0]


class Vector:
    """The vector store alone."""

    def __init__(self, start: Start) -> None:
        self.store = InMemoryVectorStore(ServedEmbeddings(start.url))

    def ingest(self, lines: Sequence[Line]) -> None:
        """Add all lines as documents."""
        self.store.add_documents(_documents(lines))

    def ask(self, query: str, k: int, max_tokens: int) -> list[str]:
        """The nearest lines."""
        return [str(found.id) for found in self.store.similarity_search(query, k=k)]


class Hybrid(Vector):
    """The vector store and BM25, fused by rank."""

    def ingest(self, lines: Sequence[Line]) -> None:
        """Add all lines to both."""
        super().ingest(lines)
        self._words = BM25Retriever.from_documents(_documents(lines), preprocess_func=_words)

    def ask(self, query: str, k: int, max_tokens: int) -> list[str]:
        """The lines that rank best in both lists."""
        self._words.k = k
        dense = self.store.as_retriever(search_kwargs={"k": k})
        fused = EnsembleRetriever(retrievers=[self._words, dense], weights=[0.5, 0.5], id_key="id")
        return [found.metadata["id"] for found in fused.invoke(query)[:k]]


class Window:
    """The newest messages that fit, whatever was asked; all threads count as one chat."""

    def __init__(self, start: Start) -> None:
        self._messages: list[BaseMessage] = []
        self._tokens: dict[str, int] = {}

    def ingest(self, lines: Sequence[Line]) -> None:
        """Keep the messages."""
        kinds = {"user": HumanMessage, "assistant": AIMessage}
        self._messages = [kinds.get(line.role, HumanMessage)(content=line.text, id=line.id) for line in lines]
        self._tokens = {line.id: line.tokens for line in lines}

    def ask(self, query: str, k: int, max_tokens: int) -> list[str]:
        """The newest first."""
        kept = trim_messages(
            self._messages, max_tokens=max_tokens, token_counter=self._count, strategy="last", start_on="human"
        )
        return [str(message.id) for message in reversed(kept)]

    def _count(self, messages: list[BaseMessage]) -> int:
        return sum(self._tokens[str(message.id)] for message in messages)


def _documents(lines: Sequence[Line]) -> list[Document]:
    return [Document(page_content=line.text, id=line.id, metadata={"id": line.id}) for line in lines]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


if __name__ == "__main__":
    serve(lambda start: {"vector": Vector, "hybrid": Hybrid, "window": Window}[start.mode](start))
