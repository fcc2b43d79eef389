"""What every adapter shares: lines of JSON in, lines of JSON out, and vectors from the one embedder.

This runs in the peer's own environment, so that it imports the standard library alone. The conversation:

    started as   python langchain_peer.py MODE EMBEDDINGS_URL FOLDER    <- {"ready": true}
    {"lines": [{"id", "thread", "role", "text", "tokens"}, ...]}        <- {"seconds"}
    {"query", "k", "max_tokens"}                                        <- {"ids": best first, "seconds"}

Standard output belongs to it: whatever a library prints goes to standard error.
"""

import http.client
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

DIMENSION = 384
MODEL = "all-MiniLM-L6-v2"


@dataclass(frozen=True)
class Line:
    """One line of a chat as a peer takes it in.

    Attributes:
        text: what is ingested: "speaker: words" where the speaker has a name, else the words.
        tokens: what it costs where it is quoted in a context.
    """

    id: str
    thread: str
    role: str
    text: str
    tokens: int


class Adapter(Protocol):
    """A peer in one of its modes, empty at first."""

    def ingest(self, lines: Sequence[Line]) -> None:
        """Take in all lines, in the order in which they were said."""

    def ask(self, query: str, k: int, max_tokens: int) -> list[str]:
        """The ids of at most k lines, best first."""


@dataclass(frozen=True)
class Start:
    """What an adapter is opened with.

    Attributes:
        mode: which of the peer's ways to search.
        url: of the embeddings, up to and without ``/embeddings``.
        folder: an empty one, for whatever it stores.
    """

    mode: str
    url: str
    folder: Path


class Embeddings:
    """Vectors over one connection that stays open, for peers that take a Python class."""

    def __init__(self, url: str) -> None:
        self._place = urlsplit(url)
        self._connection = http.client.HTTPConnection(self._place.netloc)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector for each text."""
        body = json.dumps({"model": MODEL, "input": list(texts)})
        self._connection.request("POST", f"{self._place.path}/embeddings", body, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answer = response.read()
        if response.status != http.HTTPStatus.OK:
            raise RuntimeError(f"the embeddings answered {response.status}: {answer[:200]!r}")
        return [item["embedding"] for item in json.loads(answer)["data"]]


def serve(open_adapter: Callable[[Start], Adapter]) -> None:
    """Answer until standard input ends."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        mode, url, folder = sys.argv[1:]
        adapter = open_adapter(Start(mode, url, Path(folder)))
        _say(out, {"ready": True})
        for request in sys.stdin:
            _say(out, _answer(adapter, json.loads(request)))


def _answer(adapter: Adapter, request: dict) -> dict:
    if "lines" in request:
        lines = [Line(**given) for given in request["lines"]]
        started = time.perf_counter()
        adapter.ingest(lines)
        return {"seconds": time.perf_counter() - started}
    started = time.perf_counter()
    ids = adapter.ask(request["query"], request["k"], request["max_tokens"])
    return {"ids": ids, "seconds": time.perf_counter() - started}


def _say(out, value: dict) -> None:
    out.write(json.dumps(value) + "\n")
    out.flush()
