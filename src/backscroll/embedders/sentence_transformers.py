"""Any model of the package sentence-transformers: the extra ``backscroll[sentence-transformers]``.

It brings PyTorch: 0.8 to 5 GB installed, and some 5 s until the first vector. Knows nothing about the model.
"""

import importlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from backscroll.errors import EmbedderError, ModelNotFoundError
from backscroll.types import Vectors

EXTRA = "sentence-transformers"


class SentenceTransformersEmbedder:
    """Embeds with a model of sentence-transformers, by the name it has there or by a folder.

    Args:
        model: as `sentence_transformers.SentenceTransformer` takes it.
        batch_texts: texts that are padded to one length and run together. With more than 1 a text's vector
            differs in its last bits with the texts beside it; on a GPU that may be worth it.

    Raises:
        EmbedderError: the extra is not installed.
        ModelNotFoundError: there is no such model on this machine, and it could not be fetched.
    """

    def __init__(self, model: str, batch_texts: int = 1) -> None:
        package = _import_extra()
        try:
            self._model: Any = package.SentenceTransformer(model)
        except (OSError, ValueError) as error:
            raise ModelNotFoundError(
                f"sentence-transformers has no model {model!r}: check the name, or give its folder ({error})"
            ) from error
        self.name = f"{EXTRA}:{model}"
        self.max_tokens = int(self._model.max_seq_length or 512)
        self._batch_texts = batch_texts
        self._running = threading.Lock()  # its tokenizer must not be used by two threads at a time
        self.dimension = int(self._encode(["dimension"]).shape[1])  # what asks for it is called otherwise since 6

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts.

        Returns: (n, d) float32, unit rows, in the order of `texts`.
        Raises: EmbedderError when the model fails, as on a GPU without memory.
        """
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        return self._encode([text.encode("utf-8", "replace").decode() for text in texts])  # lone surrogates are no text

    def close(self) -> None:
        """Nothing to let go of before the embedder itself goes."""

    def _encode(self, texts: list[str]) -> Vectors:
        try:
            with self._running:
                rows = self._model.encode(
                    texts, batch_size=self._batch_texts, normalize_embeddings=True, show_progress_bar=False
                )
        except RuntimeError as error:
            raise EmbedderError(f"{self.name} failed: {error}") from error
        vectors: Vectors = np.asarray(rows, dtype=np.float32)
        return vectors


def open_sentence_transformers(model: str) -> SentenceTransformersEmbedder:
    """Open the embedder by what follows ``sentence-transformers:`` in its name."""
    if not model:
        raise EmbedderError(f"{EXTRA}: write {EXTRA}:MODEL, as {EXTRA}:BAAI/bge-small-en-v1.5")
    return SentenceTransformersEmbedder(model)


def _import_extra() -> Any:
    try:
        return importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise EmbedderError(
            f"this embedder needs an extra: `pip install 'backscroll[{EXTRA}]'` (it brings PyTorch)"
        ) from error
