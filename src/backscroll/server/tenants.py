"""Whose memory a request is served from: a tenant's users stand in a file of their own, so that no route, no search
and no mistake in either reaches another tenant's.
"""

import threading
import uuid
from pathlib import Path

from backscroll.errors import MessageError
from backscroll.memory import Memory
from backscroll.server.keys import DEFAULT_TENANT
from backscroll.server.settings import ServerSettings
from backscroll.settings import BY_MODEL, PRESETS
from backscroll.wiring import open_memory

_MEMORY = ":memory:"
_QUESTION = "And when does it open there?"
_REMOTE = "remote:"  # how the names of embedders begin that are asked over HTTP


class Tenants:
    """The memories, one a tenant; each is opened when it is first asked for."""

    def __init__(self, settings: ServerSettings, memory: Memory | None = None) -> None:
        """Take what memories are opened by, and the default tenant's where it is open already."""
        self._settings = settings
        self._opening = threading.Lock()
        self._is_given = memory is not None
        self._open: dict[str, Memory] = {} if memory is None else {DEFAULT_TENANT: memory}

    def memory(self, tenant: str = DEFAULT_TENANT) -> Memory:
        """The memory of a tenant. Blocks while it is opened."""
        with self._opening:
            if tenant not in self._open:
                self._open[tenant] = open_memory(
                    self.path(tenant),
                    embedder=self._settings.embedder or None,
                    preset=self._settings.preset,
                    llm=self._settings.llm or None,
                )
            return self._open[tenant]

    def path(self, tenant: str) -> str:
        """The file of a tenant: ``chat.acme.db`` beside ``chat.db``.

        Raises: MessageError where there is no file to stand beside.
        """
        if tenant == DEFAULT_TENANT:
            return self._settings.db
        if self._settings.db == _MEMORY:
            raise MessageError("a store in RAM has one tenant: name a file by --db")
        path = Path(self._settings.db)
        return str(path.with_name(f"{path.stem}.{tenant}{path.suffix}"))

    def asks_others(self, preset: str | None) -> bool:
        """Whether a context by a preset, or by the tenants' own for None, waits for a model on another machine."""
        memory = self._open.get(DEFAULT_TENANT) or self.memory()  # open since the start: nothing is waited for
        settings = PRESETS.get(preset or "", memory.settings)
        return settings.contextualizer in BY_MODEL or memory.embedder.name.startswith(_REMOTE)

    def warm(self) -> None:
        """Load what the first context would wait for, by one of nobody's, where that asks no other machine.

        Raises: EmbedderError, StoreError.
        """
        if not self.asks_others(None):
            nobody = uuid.uuid4().hex
            self.memory().thread(nobody, nobody).context(_QUESTION, max_tokens=self._settings.max_tokens)

    def opened(self) -> list[Memory]:
        """The memories that are open now."""
        with self._opening:
            return list(self._open.values())

    def close(self) -> None:
        """Close what was opened here; a memory that was given stays its owner's."""
        with self._opening:
            for tenant, memory in self._open.items():
                if not (self._is_given and tenant == DEFAULT_TENANT):
                    memory.close()
            self._open.clear()
