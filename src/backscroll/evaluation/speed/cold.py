"""The first context of a new process: what it takes beyond the interpreter's and the model's start.

    python -m backscroll.evaluation.speed.cold FILE EMBEDDER USER QUESTION MAX_TOKENS

prints JSON: the seconds, and the bytes that the process grew by, those of mapped files apart.
"""

import json
import sys
import time
from pathlib import Path

from backscroll import api
from backscroll.tokens import open_counter
from backscroll.wiring import shared_embedder

_STATUS = Path("/proc/self/status")  # of Linux; elsewhere memory is not told


def resident_bytes() -> dict[str, int]:
    """The process's own memory and that of the files it maps; empty where the system does not tell."""
    if not _STATUS.exists():
        return {}
    told = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return {name: int(told[key].split()[0]) * 1024 for name, key in (("own", "RssAnon"), ("mapped", "RssFile"))}


def main() -> None:
    """Measure and print."""
    path, name, user, question, max_tokens = sys.argv[1:]
    embedder = shared_embedder(name)
    embedder.embed(["The model is there, and its first run is done."])
    open_counter().count("So is the tokenizer.")
    before = resident_bytes()
    started = time.perf_counter()
    with api.open(path, embedder=embedder) as memory:
        memory.thread("cold", user=user).context(question, max_tokens=int(max_tokens))
        seconds = time.perf_counter() - started
        after = resident_bytes()
    grown = {key: after[key] - size for key, size in before.items()}
    sys.stdout.write(json.dumps({"seconds": seconds, **grown}) + "\n")


if __name__ == "__main__":
    main()
