"""The server on a free port of this machine, in a thread, for the tests that speak HTTP to it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from backscroll.memory import Memory
from backscroll.server.app import create_app
from backscroll.server.settings import ServerSettings


class Served(uvicorn.Server):
    """A server that runs until the block ends."""

    url: str

    def install_signal_handlers(self) -> None:
        """Ctrl-C is the tests' own."""


@contextmanager
def served(memory: Memory | None, **settings: Any) -> Iterator[Served]:
    """Serve a memory; `url` says where."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        told = ServerSettings(port=port, embedder="hashing", **settings)
        config = uvicorn.Config(create_app(memory, told), log_config=None, timeout_graceful_shutdown=5)
        server = Served(config)
        server.url = f"http://127.0.0.1:{port}"
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            while not server.started and thread.is_alive():
                threading.Event().wait(0.01)
            assert server.started, "the server did not start"
            yield server
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def asking(memory: Memory | None, **settings: Any) -> Iterator[httpx.Client]:
    """A client of a served memory."""
    with served(memory, **settings) as server, httpx.Client(base_url=server.url, timeout=30) as client:
        yield client
