"""Backscroll's embedder behind a loopback address that speaks OpenAI's `/v1/embeddings`, for all systems alike.

    python benchmarks/peers/embeddings_server.py [--port N] [--cache FOLDER] [--embedder NAME]

It prints its address. `POST /remember {"texts": [...]}` embeds lines beforehand and keeps their vectors, so that taking
them in costs every system its own work alone; any other text is embedded anew each time it is asked for.
"""

import argparse
import base64
import json
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock

import numpy as np

from backscroll.evaluation.vector_cache import CachedEmbedder, VectorCache
from backscroll.types import Vector
from backscroll.wiring import cache_folder, shared_embedder


class Vectors:
    """What is remembered, and an embedder for the rest."""

    def __init__(self, name: str, cache: Path) -> None:
        self._embedder = shared_embedder(name)
        self._folder = cache
        self._kept: dict[str, Vector] = {}
        self._lock = Lock()

    def remember(self, texts: list[str]) -> None:
        """Embed texts that will be asked for again; those of an earlier run are read from the cache."""
        cache = VectorCache(self._folder)  # of the thread that asks
        try:
            vectors = CachedEmbedder(self._embedder, cache).embed(texts)
        finally:
            cache.close()
        self._kept.update(zip(texts, vectors, strict=True))

    def embed(self, texts: list[str]) -> list[Vector]:
        """One vector for each text."""
        new = [text for text in dict.fromkeys(texts) if text not in self._kept]
        with self._lock:  # one at a time: systems must not take the time of one another
            made = dict(zip(new, self._embedder.embed(new), strict=True)) if new else {}
        return [made[text] if text in made else self._kept[text] for text in texts]


class Handler(BaseHTTPRequestHandler):
    """Answers both requests."""

    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body go in one packet
    vectors: Vectors

    def do_POST(self) -> None:
        """Embed, or remember."""
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/remember":
            self.vectors.remember(given["texts"])
            self._answer({})
        elif self.path == "/v1/embeddings":
            self._answer(self._embeddings(given))
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, *told: object) -> None:
        """Say nothing."""

    def _embeddings(self, given: dict) -> dict:
        texts = [given["input"]] if isinstance(given["input"], str) else given["input"]
        in_base64 = given.get("encoding_format") == "base64"
        data = [
            {"object": "embedding", "index": place, "embedding": _base64(vector) if in_base64 else vector.tolist()}
            for place, vector in enumerate(self.vectors.embed(texts))
        ]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return {"object": "list", "model": given.get("model", ""), "data": data, "usage": usage}

    def _answer(self, value: dict) -> None:
        body = json.dumps(value).encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()


def _base64(vector: Vector) -> str:
    return base64.b64encode(vector.astype(np.dtype("<f4")).tobytes()).decode()


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve Backscroll's embedder on this machine.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--cache", type=Path, default=cache_folder(), help="where vectors of lines are kept")
    parser.add_argument("--embedder", default="local")
    asked = parser.parse_args()
    Handler.vectors = Vectors(asked.embedder, asked.cache)
    Handler.vectors.embed(["the model is loaded"])
    server = ThreadingHTTPServer(("127.0.0.1", asked.port), Handler)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
