"""How fast the local embedder is, how much it holds, and how near to full precision its vectors are.

Run on a quiet machine, from the project's folder:

    python benchmarks/embedder.py [LINES.txt] [--json]

A file has one text per line; without one, lines of 10 to 60 tokens are put together from those that ship
for calibration. Full precision is the slow reference that the tests have.
"""
# ruff: noqa: S311, S603

import argparse
import importlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from backscroll.embedders.calibration import UNRELATED_LINES
from backscroll.embedders.local import LocalEmbedder, read_safetensors
from backscroll.embedders.model_files import TOKENIZER, WEIGHTS, find_model

QUERIES = 200
BULK_LINES = 1500
BULK_RUNS = 3
REFERENCE_LINES = 200
FIRST_VECTOR = """
import time; start = time.perf_counter()
from backscroll.embedders import open_embedder
open_embedder("local").embed(["hello"])
seconds = time.perf_counter() - start
import resource, sys
unit = 2**20 if sys.platform == "darwin" else 2**10
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit)
"""


def own_lines(count: int) -> list[str]:
    """Lines of 10 to 60 tokens, about: one to six short ones in a row."""
    short = [line for line in UNRELATED_LINES.read_text("utf-8").splitlines() if line.isascii()]
    chance = random.Random(1)  # the same lines on every run
    return [" ".join(chance.sample(short, chance.randint(1, 6))) for _ in range(count)]


def bulk_lines_per_second(lines: Sequence[str], threads: int) -> float:
    """The best of a few runs: what else the machine does only ever slows it down."""
    embedder = LocalEmbedder(threads=threads)
    embedder.embed(lines[:8])
    seconds = []
    for _ in range(BULK_RUNS):
        start = time.perf_counter()
        embedder.embed(lines)
        seconds.append(time.perf_counter() - start)
    return len(lines) / min(seconds)


def single_milliseconds(lines: Sequence[str]) -> list[float]:
    """What each line takes when it is embedded alone, as a query is."""
    embedder = LocalEmbedder()
    embedder.embed(["hello"])
    spent = []
    for line in lines:
        start = time.perf_counter()
        embedder.embed([line])
        spent.append(1000 * (time.perf_counter() - start))
    return spent


def first_vector() -> tuple[float, float]:
    """Seconds from a fresh process's first import to its first vector, and the most MB that it held."""
    runs = [subprocess.run([sys.executable, "-c", FIRST_VECTOR], capture_output=True, check=True) for _ in range(3)]
    figures = [tuple(map(float, run.stdout.split())) for run in runs]
    return min(seconds for seconds, _ in figures), max(megabytes for _, megabytes in figures)


def cosines_and_overlap(lines: Sequence[str], tokenizer: Tokenizer) -> tuple[np.ndarray, float]:
    """Cosine of each line's vector to full precision's, and the share of its 10 nearest that are the same lines."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    reference = importlib.import_module("test_embedders").reference
    tensors = read_safetensors(find_model() / WEIGHTS)
    exact = np.array([reference(tokenizer.encode(line).ids, tensors) for line in lines])
    vectors = LocalEmbedder().embed(lines)
    near, nearest = (np.argsort(9 * np.eye(len(lines)) - each @ each.T)[:, :10] for each in (vectors, exact))
    overlap = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(near.tolist(), nearest.tolist(), strict=True)])
    return (vectors * exact).sum(axis=1), float(overlap)


def measure(lines: Sequence[str]) -> dict[str, float]:
    """All figures by name, with their units."""
    tokenizer = Tokenizer.from_file(str(find_model() / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    lengths = np.array([len(tokenizer.encode(line).ids) for line in lines])
    bulk = [line for line, length in zip(lines, lengths, strict=True) if 10 <= length <= 60][:BULK_LINES]
    queries = [line for line, length in zip(lines, lengths, strict=True) if 12 <= length <= 22][:QUERIES]
    if not bulk or not queries:
        sys.exit("the file has no lines of 12 to 22 tokens: give another one, or none")
    load_seconds, megabytes = first_vector()
    cosines, overlap = cosines_and_overlap(bulk[:REFERENCE_LINES], tokenizer)
    spent = single_milliseconds(queries)
    return {
        "single_p50_ms": float(np.percentile(spent, 50)),
        "single_p95_ms": float(np.percentile(spent, 95)),
        "bulk_1_thread_lines_per_second": bulk_lines_per_second(bulk, 1),
        "bulk_2_threads_lines_per_second": bulk_lines_per_second(bulk, 2),
        "bulk_mean_tokens": float(np.mean([len(tokenizer.encode(line).ids) for line in bulk])),
        "load_seconds": load_seconds,
        "load_rss_mb": megabytes,
        "cosine_mean": float(cosines.mean()),
        "cosine_min": float(cosines.min()),
        "top_10_overlap": overlap,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, help="one text per line")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    texts = arguments.file.read_text("utf-8").splitlines() if arguments.file else own_lines(2 * BULK_LINES)
    figures = measure([text for text in texts if text.strip()])
    if arguments.json:
        print(json.dumps({name: round(value, 4) for name, value in figures.items()}, indent=2))
        return
    for name, value in figures.items():
        print(f"{name:34} {value:10.4g}")


if __name__ == "__main__":
    main()
