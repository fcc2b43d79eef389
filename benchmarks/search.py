"""What a search costs in a user's growing history: time, RAM, disk, and the first search after opening.

Run on a quiet machine, from the project's folder:

    python benchmarks/search.py [--lines 5000 20000 100000] [--json]

The embedder is left out: vectors are random unit ones of 384 numbers, one a line. The text is made up by Zipf's law,
as `benchmarks/text_index.py` says; a query is a random vector and eight terms. All lines are one user's, in threads of
500. A search is the store's: 512 candidates by cosine and as many by BM25, with two lines around each.
"""
# ruff: noqa: S603

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
from text_index import BEST, MadeUpText, count_message, messages_of, percentiles, timed

from backscroll.stores import SQLiteStore
from backscroll.types import Scope, ThreadKey

DIMENSION = 384
THREAD_LINES = 500
QUERIES = 200
REACH = 2
SCOPE = Scope("alice")
FIRST_SEARCH = """
import sys, time
import numpy as np
from backscroll.stores import SQLiteStore
from backscroll.types import Scope

def held_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

vector = np.zeros(int(sys.argv[2]), np.float32)
vector[0] = 1
before = held_bytes()
start = time.perf_counter()
store = SQLiteStore(sys.argv[1], lambda message: 1)
store.search(Scope("alice"), vector, ["ba"], 512, 2)
seconds = time.perf_counter() - start
print(seconds, held_bytes() - before)
"""


def vectors_of(chance: np.random.Generator, count: int) -> np.ndarray:
    """(count, 384) float32, unit rows."""
    found = chance.standard_normal((count, DIMENSION), dtype=np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def fill(store: SQLiteStore, text: MadeUpText, chance: np.random.Generator, first: int, stop: int) -> float:
    """Store lines and vectors up to a number; returns seconds."""
    start = time.perf_counter()
    texts = text.lines(stop - first)
    while batch := list(islice(texts, THREAD_LINES)):
        lines = store.append(ThreadKey("alice", f"t{first}"), messages_of(batch))
        passages = [[(0, len(line.message.text))] for line in lines]
        store.add_vectors([line.row for line in lines], passages, vectors_of(chance, len(lines)))
        first += len(batch)
    return time.perf_counter() - start


def first_search(path: Path) -> tuple[float, float]:
    """Seconds and bytes that opening the file and searching once takes in a process of its own."""
    command = [sys.executable, "-c", FIRST_SEARCH, str(path), str(DIMENSION)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, held = map(float, run.stdout.split())
    return seconds, held


def measure(sizes: list[int]) -> list[dict[str, float]]:
    """Figures for each size of one store that grows, by name, with their units."""
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "chat.db")
        store = SQLiteStore(path, count_message)
        text, chance, filled = MadeUpText(1), np.random.default_rng(1), 0
        for lines in sorted(sizes):
            seconds = fill(store, text, chance, filled, lines)
            asked = list(zip(vectors_of(chance, QUERIES), MadeUpText(2).queries(QUERIES), strict=True))
            store.search(SCOPE, *asked[0], BEST, REACH)
            spent = [timed(partial(store.search, SCOPE, *one, BEST, REACH)) for one in asked]
            store.close()  # empties the log into the file
            cold, held = first_search(path)
            runs.append(
                {
                    "lines": lines,
                    **percentiles(spent, "search"),
                    "first_search_s": cold,
                    "ram_bytes_per_line": held / lines,
                    "disk_bytes_per_line": path.stat().st_size / lines,
                    "stored_lines_per_second": (lines - filled) / seconds,
                }
            )
            store, filled = SQLiteStore(path, count_message), lines
        store.close()
    return runs


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lines", type=int, nargs="+", default=[5_000, 20_000, 100_000], help="how many, growing")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    runs = measure(arguments.lines)
    if arguments.json:
        print(json.dumps({"runs": runs, "load_average": load}, indent=2))
        return
    for figures in (*runs, {"load_average": load}):
        for name, value in figures.items():
            print(f"{name:28} {value:10.4g}")
        print()


if __name__ == "__main__":
    main()
