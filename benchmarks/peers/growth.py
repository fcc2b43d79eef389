"""How the time of a question grows with the history, for Backscroll and its peers: the same lines, vectors and moments.

    python benchmarks/peers/growth.py --lines F.lines.jsonl.gz --questions F.questions.jsonl.gz --json OUT.json \\
        [--sizes 1000 5000 10000] [--most mem0=5000] [--plot docs/growth.png]

The lines are the file's own, said again with other names and numbers until there are as many as asked for
(`backscroll.evaluation.speed.history`); each is embedded for real. Beside the peers stand what a user could write: the
exact cosines of all lines by numpy, sqlite-vec where it is installed, and embedding every line again at every turn. All
of it but Backscroll's whole context is the search alone; the embedding of the question over HTTP, which all rows
contain, is measured as well. A peer that takes minutes to take its lines in stops at a smaller size, `--most`.
"""

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import apsw
import numpy as np
from conversation import CONTROL, MODEL, Asked
from growth_plot import EMBEDDING, draw, slopes
from run import served
from systems import SYSTEMS, need_environments

from backscroll.embedders.remote import RemoteEmbedder
from backscroll.evaluation.datasets import Conversation, Question, read_conversations, read_questions
from backscroll.evaluation.plot import need_plot
from backscroll.evaluation.replay import Plan
from backscroll.evaluation.speed.history import THREAD_LINES, said_again
from backscroll.types import Message

USER = "user"
PEERS = [name for name in SYSTEMS if name.endswith("vector") or name == "mem0 hybrid"]
MOST = {"mem0": 5000}  # peer -> lines: it takes in 20 to 70 ms each, all of it again at every size
MAX_TOKENS = 2000
K = 100
NUMPY, SQLITE_VEC = "numpy, exact", "sqlite-vec, exact"
NAIVE = "every line embedded at every turn"


def history(messages: Sequence[Message], lines: int) -> Conversation:
    """So many lines in threads of their own."""
    said = [said_again(messages[n % len(messages)], n // len(messages)) for n in range(lines)]
    named = [Message(one.role, one.payload, one.text, f"m{n}", one.created_at) for n, one in enumerate(said)]
    threads = {f"t{n}": tuple(named[n : n + THREAD_LINES]) for n in range(0, lines, THREAD_LINES)}
    thread_of = {str(one.id): name for name, own in threads.items() for one in own}
    return Conversation(USER, threads, thread_of, {})


def timed(work: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def floors(embedder: RemoteEmbedder, vectors: np.ndarray) -> dict[str, Callable[[str], object]]:
    """What a user could write."""

    def exact(question: str) -> object:
        return np.argpartition(vectors @ embedder.embed([question])[0], -K)[-K:]

    found: dict[str, Callable[[str], object]] = {EMBEDDING: lambda one: embedder.embed([one]), NUMPY: exact}
    if find_spec("sqlite_vec"):
        database = apsw.Connection(":memory:")
        database.enable_load_extension(True)
        database.load_extension(import_module("sqlite_vec").loadable_path())
        database.execute(f"CREATE VIRTUAL TABLE v USING vec0 (e float[{vectors.shape[1]}])")
        with database:
            rows = ((n, one.tobytes()) for n, one in enumerate(vectors))
            database.executemany("INSERT INTO v (rowid, e) VALUES (?, ?)", rows)
        query = "SELECT rowid FROM v WHERE e MATCH ? ORDER BY distance LIMIT ?"
        found[SQLITE_VEC] = lambda one: database.execute(query, (embedder.embed([one])[0].tobytes(), K)).fetchall()
    return found


def measure(messages: Sequence[Message], questions: Sequence[str], lines: int, systems: Sequence[str]) -> dict:
    """Seconds of each system at a size: of a question, the median; of taking in a line."""
    conversation = history(messages, lines)
    plan = Plan(("backscroll",), (MAX_TOKENS,))
    spent: dict[str, list[float]] = {}
    with (
        served() as url,
        tempfile.TemporaryDirectory(prefix="growth-") as folder,
        Asked(conversation, systems, plan, url, Path(folder)) as asked,
    ):
        embedder = RemoteEmbedder(url, MODEL, api_key="")
        said = [f"{one.payload.get('name')}: {one.text}" for own in conversation.threads.values() for one in own]
        started = time.perf_counter()
        vectors = np.concatenate([embedder.embed(said[n : n + 256]) for n in range(0, lines, 256)])
        others = floors(embedder, vectors)
        print(f"{lines} lines taken in, {time.perf_counter() - started:.0f} s for the floors", flush=True)
        for number, text in enumerate(questions):
            question = Question(f"q{number}", USER, text, "", "", "small talk")
            for outcome in asked.ask(question).outcomes:
                spent.setdefault(outcome.preset, []).append(outcome.seconds)
            embedder.embed([f"Behind the others: {text}"])  # not timed: peers that took seconds left its server asleep
            for name, ask in others.items():
                spent.setdefault(name, []).append(timed(lambda ask=ask, text=text: ask(text)))
        ingests = {one.system: one.seconds / one.lines for one in asked.ingests}
    return {
        "lines": lines,
        "median_ms": {name: 1000 * statistics.median(of) for name, of in spent.items()},
        "p95_ms": {name: 1000 * float(np.percentile(of, 95)) for name, of in spent.items()},
        "ingest_ms_per_line": {name: 1000 * seconds for name, seconds in ingests.items()},
    }


def naive_ms(messages: Sequence[Message]) -> float:
    """Embedding one line again, of many together: what each line of the archive costs at every turn."""
    with served() as url:
        embedder = RemoteEmbedder(url, MODEL, api_key="")
        texts = [f"{number} {one.text}" for number, one in enumerate(messages[:512])]
        return 1000 * timed(lambda: embedder.embed(texts)) / len(texts)


def table(runs: Sequence[Mapping], naive: float, most: Mapping[str, int]) -> None:
    """Print medians, and in brackets how many times Backscroll's they are: of its whole context, then of its search."""
    whole = [{**one["median_ms"], NAIVE: naive * one["lines"]} for one in runs]
    _grid("ms, median of a question", runs, whole, "backscroll")
    embedding = [one["median_ms"][EMBEDDING] for one in runs]
    alone = [
        {name: of - less for name, of in found.items() if name != EMBEDDING}
        for found, less in zip(whole, embedding, strict=True)
    ]
    _grid("ms, less the embedding of the question", runs, alone, CONTROL)
    print("\nslope over lines, log-log, of medians over the embedding of the question")
    for name, exponent in slopes(runs).items():
        print(f"{name:40}{exponent:8.2f}")
    _grid("ms a line taken in, vectors at hand", runs, [one["ingest_ms_per_line"] for one in runs], "backscroll")
    for peer, lines in most.items():
        print(f"\n- : {peer} is not asked beyond {lines:,} lines, which it would take too long to take in (--most)")


def _grid(heading: str, runs: Sequence[Mapping], found: Sequence[Mapping[str, float]], unit: str) -> None:
    print(f"\n{heading:40}" + "".join(f"{one['lines']:>20,}" for one in runs))
    for name in dict.fromkeys(name for one in found for name in one):
        cells = [f"{one[name]:.1f} ({one[name] / one[unit]:6.2f})" if name in one else "-" for one in found]
        print(f"{name:40}" + "".join(f"{cell:>20}" for cell in cells))


def _most(text: str) -> dict[str, int]:
    """Peers with their most lines, as mem0=5000."""
    found = {peer: lines for peer, _, lines in (one.partition("=") for one in text.split(",") if one)}
    peers = {one.peer for one in SYSTEMS.values()}
    wrong = [peer for peer, lines in found.items() if peer not in peers or not lines.isdecimal()]
    if wrong:
        raise argparse.ArgumentTypeError(f"{', '.join(wrong)}: write PEER=LINES, peers are {', '.join(sorted(peers))}")
    return {peer: int(lines) for peer, lines in found.items()}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure how the time of a question grows, side by side.")
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True, dest="out", help="where the figures go")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000, 5000, 10_000])
    parser.add_argument("--systems", default=",".join(PEERS), help="with commas between")
    parser.add_argument(
        "--most", type=_most, default=MOST, help="peers that stop at a size, as mem0=5000,llamaindex=5000"
    )
    parser.add_argument("--count", type=int, default=40, help="how many questions are asked")
    parser.add_argument("--plot", type=Path, help="draw the growth into a file")
    return parser


def main() -> None:
    asked = _parser().parse_args()
    if asked.plot:
        need_plot()
    systems = [name for name in asked.systems.split(",") if name]
    need_environments(systems)
    asked.out.parent.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    conversations = read_conversations(asked.lines)
    questions = [one.text for one in read_questions(asked.questions, conversations).asked[: asked.count]]
    found = [one for conversation in conversations.values() for own in conversation.threads.values() for one in own]
    messages = [one for one in found if one.text.strip() and isinstance(one.payload.get("content"), str)]
    naive = naive_ms(messages)
    made = {"python": platform.python_version(), "cores": os.cpu_count(), "questions": len(questions)}
    made |= {"most_lines": asked.most, "naive_ms_per_line": naive, "whole_context": ["backscroll"], "runs": []}
    for lines in sorted(asked.sizes):
        taken = [name for name in systems if lines <= asked.most.get(SYSTEMS[name].peer, lines)]
        load = os.getloadavg()[0]
        made["runs"].append({**measure(messages, questions, lines, taken), "load_average": load})
        made["slopes"] = slopes(made["runs"])
        asked.out.write_text(json.dumps(made, indent=2) + "\n", encoding="utf-8")
    table(made["runs"], naive, {peer: lines for peer, lines in asked.most.items() if lines < max(asked.sizes)})
    if asked.plot:
        draw(made["runs"], asked.plot)


if __name__ == "__main__":
    main()
