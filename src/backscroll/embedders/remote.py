"""Vectors from any endpoint that speaks OpenAI's `/embeddings`.

What a server gives is checked before it is believed: as many vectors as texts, by their index, all numbers
finite, all of one dimension. Knows nothing about which models there are.

The texts leave this machine; that happens only where such an embedder was configured by name.
"""

import os
import re
import threading
from collections.abc import Sequence
from typing import Any

import httpx
import numpy as np

from backscroll.endpoint import checked_address, checked_key
from backscroll.errors import EmbedderError
from backscroll.retry import DEFAULT_RETRY, TRANSIENT, Retry
from backscroll.types import Vectors
from backscroll.vectors import unit_rows

KEY_ENVIRONMENT = "OPENAI_API_KEY"
BATCH_TEXTS = 64
MAX_CHARACTERS = 2_000  # of a text: about `max_tokens`; some servers refuse what is too long instead of cutting it
MAX_DETAIL = 200  # characters of a server's own words in an error


class RemoteEmbedder:
    """Embeds by an OpenAI-compatible endpoint. Safe to share between threads.

    Whether a text's vector depends on the text alone is the server's promise; most
    servers batch, and their vectors may differ in the last bits.

    Args:
        base_url: up to and without ``/embeddings``: ``https://api.openai.com/v1``.
        model: as the server calls it.
        dimension: asked of the server and checked; None takes what it gives. Leave it out for a model that
            has one size only: some servers refuse the question.
        api_key: None takes the environment variable OPENAI_API_KEY, "" sends none.
        timeout_seconds: for each request.
        batch_texts: most texts in one request.
        retry: how often to ask again after 429, 5xx and lost connections.

    Raises: EmbedderError when base_url is not an http address, or carries a password, or the key cannot be a key.
    """

    max_tokens = 512  # what the smallest usual models read; larger ones read more than a passage ever has

    dimension: int

    def __init__(
        self,
        base_url: str,
        model: str,
        dimension: int | None = None,
        api_key: str | None = None,
        timeout_seconds: float = 30.0,
        batch_texts: int = BATCH_TEXTS,
        retry: Retry = DEFAULT_RETRY,
    ) -> None:
        self._url = _endpoint(base_url)
        self._model = model
        self._asked_dimension = dimension
        self._key = _checked_key(os.environ.get(KEY_ENVIRONMENT, "") if api_key is None else api_key)
        self._batch_texts = batch_texts
        self._retry = retry
        self._timeout_seconds = timeout_seconds
        self._client: httpx.Client | None = None
        self._connecting = threading.Lock()
        self.name = f"remote:{model}@{base_url.rstrip('/')}" + (f"#{dimension}" if dimension else "")
        if dimension:
            self.dimension = dimension

    def __getattr__(self, name: str) -> int:
        """The dimension, where it was not given: learnt from the vector of one word."""
        if name != "dimension":
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return int(self.embed(["dimension"]).shape[1])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Embed texts, in as few requests as `batch_texts` allows.

        Returns: (n, d) float32, unit rows, in the order of `texts`.
        Raises: EmbedderError when the server cannot be reached, refuses, or answers something else.
        """
        if not texts:
            return np.zeros((0, self.dimension), dtype=np.float32)
        starts = range(0, len(texts), self._batch_texts)
        parts = [self._embed_batch(list(texts[start : start + self._batch_texts])) for start in starts]
        return np.concatenate(parts)

    def close(self) -> None:
        """Close the connections; embedding again opens new ones."""
        with self._connecting:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _embed_batch(self, texts: list[str]) -> Vectors:
        readable = [text[:MAX_CHARACTERS].encode("utf-8", "replace").decode() or " " for text in texts]
        request: dict[str, Any] = {"model": self._model, "input": readable, "encoding_format": "float"}
        if self._asked_dimension:
            request["dimensions"] = self._asked_dimension
        response = self._post(request)
        try:
            vectors = _vectors(response.json(), len(texts))
        except (ValueError, KeyError, TypeError) as error:
            raise EmbedderError(f"{self._url} answered no embeddings: {self._without_key(str(error))}") from error
        expected = self.__dict__.setdefault("dimension", vectors.shape[1])
        if vectors.shape[1] != expected:
            raise EmbedderError(
                f"{self._url} gave vectors of dimension {vectors.shape[1]} for {self._model!r}, not {expected}: "
                "leave the dimension out, or name a model that has it"
            )
        return vectors

    def _post(self, request: dict[str, Any]) -> httpx.Response:
        """Ask, and ask again where the failure may pass."""
        attempt = 0
        while True:
            attempt += 1
            last = attempt >= self._retry.attempts
            try:
                response = self._connected().post(self._url, json=request)
            except httpx.RequestError as error:
                if last:
                    raise self._unreachable(error) from error
                self._retry.wait(attempt)
                continue
            if response.is_success:
                return response
            if last or response.status_code not in TRANSIENT:
                raise self._refused(response)
            self._retry.wait(attempt, response.headers.get("retry-after"))

    def _connected(self) -> httpx.Client:
        with self._connecting:
            if self._client is None:
                headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
                self._client = httpx.Client(headers=headers, timeout=self._timeout_seconds)
            return self._client

    def _unreachable(self, error: httpx.RequestError) -> EmbedderError:
        problem = self._without_key(str(error)) or type(error).__name__
        return EmbedderError(
            f"{self._url} cannot be reached ({problem}; {self._retry.attempts} attempts): "
            "check the address and that the server runs"
        )

    def _refused(self, response: httpx.Response) -> EmbedderError:
        status = response.status_code
        advice = {
            401: f"set {KEY_ENVIRONMENT} or give api_key",
            403: "the key may not use this model",
            404: "check base_url, which ends before /embeddings, and the model's name",
            429: "wait, or raise the limit of the account",
        }.get(status, "the server's log says more" if status >= 500 else "check the model's name and the dimension")
        said = self._without_key(response.text)[:MAX_DETAIL]
        return EmbedderError(f"{self._url} answered {status} for model {self._model!r}: {advice}. It said: {said}")

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


def open_remote(place: str) -> RemoteEmbedder:
    """Open the embedder by what follows ``remote:`` in its name: MODEL@BASE_URL, or MODEL@BASE_URL#DIMENSION."""
    parts = re.fullmatch(r"(?P<model>.+?)@(?P<base_url>https?://[^#]+)(#(?P<dimension>[1-9]\d*))?", place, re.ASCII)
    if parts is None:
        raise EmbedderError(f"remote:{place}: write remote:MODEL@BASE_URL, as remote:bge-m3@http://localhost:8080/v1")
    dimension = parts["dimension"]
    return RemoteEmbedder(parts["base_url"], parts["model"], int(dimension) if dimension else None)


def _checked_key(key: str) -> str:
    return checked_key(key, EmbedderError, f"the api_key has characters that no key has: check {KEY_ENVIRONMENT}")


def _endpoint(base_url: str) -> str:
    return checked_address(base_url, EmbedderError, "give it as api_key instead") + "/embeddings"


def _vectors(answer: Any, count: int) -> Vectors:
    """The vectors of an answer in the order of the texts, at length 1.

    Raises: ValueError, KeyError or TypeError when the answer is not what it must be.
    """
    items = sorted(answer["data"], key=lambda item: item["index"])
    if [item["index"] for item in items] != list(range(count)):
        raise ValueError(f"{len(items)} vectors for {count} texts, or indexes that are not 0 to {count - 1}")
    vectors = unit_rows([item["embedding"] for item in items], count)
    if not vectors.any(axis=1).all():
        raise ValueError("a vector has no length")
    return vectors
