"""The systems that are compared, and how one is started: a process of its own, in its own environment.

Nothing of the caller's environment is passed on, so that no proxy, key or configuration has a say. Knows nothing about
questions or budgets.
"""
# ruff: noqa: S603

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setup import HERE, is_ready, python_of

from backscroll.errors import NotFoundError, StoreError

_MODEL = "all-MiniLM-L6-v2"
_TOLD_CHARACTERS = 1000  # of what a peer said before it ended


@dataclass(frozen=True)
class System:
    """A peer in one of its modes."""

    peer: str
    mode: str


SYSTEMS: Mapping[str, System] = {
    "LangChain vector": System("langchain", "vector"),
    "LangChain hybrid": System("langchain", "hybrid"),
    "LangChain trim_messages": System("langchain", "window"),
    "LangGraph vector": System("langgraph", "vector"),
    "LlamaIndex vector": System("llamaindex", "vector"),
    "LlamaIndex hybrid": System("llamaindex", "hybrid"),
    "mem0 vector": System("mem0", "vector"),
    "mem0 hybrid": System("mem0", "hybrid"),
    "MemPalace vector": System("mempalace", "vector"),
    "MemPalace hybrid": System("mempalace", "hybrid"),
    "MemPalace chroma vector": System("mempalace", "chroma vector"),
}


class Running:
    """A peer's process, while it holds one conversation."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        """Start it with an empty home. Raises: StoreError."""
        system = SYSTEMS[name]
        self.name = name
        self._log = folder / "log"
        (folder / "home").mkdir(parents=True)
        (folder / "data").mkdir()
        command = [python_of(system.peer), HERE / f"{system.peer}_peer.py", system.mode, url, folder / "data"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=_environment(url, folder / "home"),
                encoding="utf-8",
            )
        self._answer()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What the peer answers. Raises: StoreError."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended() from error
        return self._answer()

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._ended()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ended(self) -> StoreError:
        said = self._log.read_text("utf-8", "replace")[-_TOLD_CHARACTERS:]
        return StoreError(f"{self.name} ended with code {self._process.wait()}; it said: {said}")


def need_environments(names: Sequence[str]) -> None:
    """Say what to run where an environment is missing, or was made of other requirements. Raises: NotFoundError."""
    missing = [peer for peer in dict.fromkeys(SYSTEMS[name].peer for name in names) if not is_ready(peer)]
    if missing:
        raise NotFoundError(
            f"no environment for {', '.join(missing)}: run python benchmarks/peers/setup.py {' '.join(missing)}, "
            "or leave them out with --systems"
        )


def _environment(url: str, home: Path) -> dict[str, str]:
    return {
        "PATH": os.environ.get("PATH", ""),
        "HOME": str(home),
        "ANONYMIZED_TELEMETRY": "False",
        "HF_HUB_OFFLINE": "1",
        "LANGSMITH_TRACING": "false",
        "MEM0_DIR": str(home / "mem0"),
        "MEM0_TELEMETRY": "False",
        "MEMPALACE_EMBEDDING_API_KEY": "none",
        "MEMPALACE_EMBEDDING_API_MODEL": _MODEL,
        "MEMPALACE_EMBEDDING_API_URL": url,
        "MEMPALACE_EMBEDDING_MODEL": "openai-compat",
        "OPENAI_API_KEY": "none",  # a client is made, and never asked
    }
