"""mem0 with infer=False: no language model, every message a memory; in qdrant's local files.

Its hybrid search wants two downloads that need not be made here. The BM25 encoder's stop words are spaCy's own list
instead of a file. Of spaCy's model only the tokenizer is there: stop words and punctuation go, words are stemmed by the
encoder instead of lemmatized, and no entities are found, so that their boost is off. `vector` leaves BM25 out.
"""
# ruff: noqa: SLF001 - mem0 has no setting for where these parts come from

from collections.abc import Sequence

import fastembed
import spacy
from mem0 import Memory
from mem0.utils import spacy_models
from peer_loop import DIMENSION, MODEL, Line, Start, serve
from spacy.lang.en.stop_words import STOP_WORDS

_USER = "user"
_LEMMAS = "words as lemmas"


@spacy.Language.component(_LEMMAS)
def words_as_lemmas(text):
    """Give every word itself as its lemma, where there is no lemmatizer."""
    for token in text:
        token.lemma_ = token.lower_
    return text


def prepare_search(start: Start) -> None:
    """Hand mem0 the parts that it would download; without an encoder it searches by meaning alone."""

    class Encoder(fastembed.SparseTextEmbedding):
        """BM25 with spaCy's stop words, or, for `vector`, none."""

        def __init__(self, model_name: str) -> None:
            if start.mode == "vector":
                raise ImportError("BM25 is left out")
            super().__init__(model_name, specific_model_path=str(start.folder), stopwords=set(STOP_WORDS))

    fastembed.SparseTextEmbedding = Encoder
    spacy_models._load_failed_full = True
    spacy_models._nlp_lemma = spacy.blank("en")
    spacy_models._nlp_lemma.add_pipe(_LEMMAS)


class Mem0:
    """A memory of one user."""

    def __init__(self, start: Start) -> None:
        prepare_search(start)
        store = {"path": str(start.folder / "qdrant"), "on_disk": True, "embedding_model_dims": DIMENSION}
        served = {"openai_base_url": start.url, "model": MODEL, "embedding_dims": DIMENSION, "api_key": "none"}
        self._memory = Memory.from_config(
            {
                "vector_store": {"provider": "qdrant", "config": store},
                "embedder": {"provider": "openai", "config": served},
                "llm": {"provider": "openai", "config": {"api_key": "none"}},  # made, and never asked
                "history_db_path": str(start.folder / "history.db"),
            }
        )
        self._lines: dict[str, str] = {}

    def ingest(self, lines: Sequence[Line]) -> None:
        """Add the messages, a thread at a time."""
        for thread in dict.fromkeys(line.thread for line in lines):
            own = [line for line in lines if line.thread == thread]
            messages = [{"role": line.role, "content": line.text} for line in own]
            added = self._memory.add(messages, user_id=_USER, infer=False)["results"]
            self._lines |= {one["id"]: line.id for one, line in zip(added, own, strict=True)}

    def ask(self, query: str, k: int, max_tokens: int) -> list[str]:
        """The best memories, with no lower bound of their score."""
        found = self._memory.search(query, filters={"user_id": _USER}, top_k=k, threshold=0.0)["results"]
        return [self._lines[one["id"]] for one in found]


if __name__ == "__main__":
    serve(Mem0)
