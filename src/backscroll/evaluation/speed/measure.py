"""One store that grows from size to size, measured at each: taking in, contexts by stage, cold start, memory, disk.

Every figure of time is of this run on this machine; what is compared is measured beside it, in the same process.
"""
# ruff: noqa: S603

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from backscroll import api
from backscroll.errors import StoreError
from backscroll.evaluation.speed.history import History, said_again
from backscroll.memory import Memory, Thread
from backscroll.protocols import Embedder
from backscroll.tracing import Stopwatch, trace

USER, MANY = "user", "user {}"
_SINGLES = 50  # lines that are appended one by one
_RECENT = 20  # lines of the thread that is asked in
_PARTS = ("contextualize", "embed query", "search")
_YARDSTICK = "yardstick"  # beside the stages
_FIRST = "A first question."  # of each block, not timed
_BLOCK = 25  # contexts in a row, then as many embeddings by the yardstick: each finds the caches as its own left them
_REST_SECONDS = 0.02  # PyTorch's threads spin for some 6 ms behind a call, in which a context would wait for a core
_MAX_FLOOR_LINES = 200_000  # exact search by numpy takes 1,536 bytes a line
_FLOOR_K = 100
_TOLD_CHARACTERS = 500  # of what a process said before it ended

Advance = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "Times":
        """The percentiles of some seconds."""
        return cls(*(1000 * float(np.percentile(seconds, p)) for p in (50, 95, 99)))


@dataclass(frozen=True, slots=True)
class Plan:
    """What is measured.

    Attributes:
        sizes: lines of the one user, growing.
        users, user_lines: of the store with many users.
        questions: how many are asked at each size, where there are so many.
        embedder: the name that a store which is asked is opened by, in this process and in another.
        yardstick: embeds the same questions, 25 behind 25 contexts; None for no comparison.
        pause_seconds: of rest in front of each question, as between the turns of a chat; 0 asks again and again.
    """

    sizes: tuple[int, ...]
    users: int
    user_lines: int
    questions: int
    max_tokens: int
    embedder: str
    yardstick: Embedder | None = None
    pause_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Ratio:
    """A part's times over those of the yardstick: median over median, 99th over 99th, 99th over the median."""

    p50: float
    p99: float
    p99_to_p50: float

    @classmethod
    def of(cls, part: Times, yardstick: Times) -> "Ratio":
        """How many yardsticks a part is long."""
        return cls(part.p50 / yardstick.p50, part.p99 / yardstick.p99, part.p99 / yardstick.p50)


@dataclass(frozen=True, slots=True)
class Size:
    """The figures of a store of one size.

    Attributes:
        users: 1, or many with lines / users each.
        stored: lines a second without embedding, fsync on.
        contexts: part -> its times: context, contextualize, embed query, search, rest, without embedder.
        singles: way of appending one line -> its times: stored, stored and embedded, embedder, deferred and asked.
        numpy: the search that a user could write: exact cosines by numpy, and the best 100 of them.
        cold_seconds: the first context of a new process, beyond the interpreter's and the model's start.
        bytes_per_line: of the disk, of the first context's own memory, of the files that it maps.
        stages: every stage's median milliseconds.
        work: the same of the asking thread's own work, in which nobody else's takes part.
        yardstick: one question embedded by the other embedder.
        ratios: the same parts as in contexts -> how many of it they take; empty without it.
    """

    lines: int
    users: int
    stored: float
    contexts: dict[str, Times]
    singles: dict[str, Times]
    numpy: Times | None
    cold_seconds: float
    bytes_per_line: dict[str, float]
    stages: dict[str, float] = field(default_factory=dict)
    work: dict[str, float] = field(default_factory=dict)
    yardstick: Times | None = None
    ratios: dict[str, Ratio] = field(default_factory=dict)


def sizes(history: History, embedder: Embedder, plan: Plan, folder: Path, advance: Advance) -> Iterator[Size]:
    """The figures of each size, from the smallest, then those of many users. Raises: StoreError, EmbedderError."""
    begin = 0
    for lines in sorted(plan.sizes):
        with api.open(folder / "one.db", embedder=embedder) as memory:
            stored = _fill(memory, history, begin, lines, advance)
        yield _measured(history, embedder, plan, folder / "one.db", (lines, 1, stored))
        begin = lines
    if plan.users:
        lines = plan.users * plan.user_lines
        with api.open(folder / "many.db", embedder=embedder) as memory:
            stored = _fill_many(memory, history, plan, advance)
        yield _measured(history, embedder, plan, folder / "many.db", (lines, plan.users, stored))


def _fill(memory: Memory, history: History, begin: int, lines: int, advance: Advance) -> float:
    """Store lines with their vectors; lines a second, vectors not counted."""
    spent = 0.0
    for name, messages, vectors in history.threads(lines, begin):
        started = time.perf_counter()
        memory.thread(name, USER).append(messages, embed=False)
        spent += time.perf_counter() - started
        _add_vectors(memory, USER, vectors)
        advance(len(messages))
    _name_embedder(memory)
    return (lines - begin) / spent if spent else 0.0


def _fill_many(memory: Memory, history: History, plan: Plan, advance: Advance) -> float:
    spent = 0.0
    threads = history.threads(plan.users * plan.user_lines, each=plan.user_lines)
    for number, (_, messages, vectors) in enumerate(threads):
        user = MANY.format(number)
        started = time.perf_counter()
        memory.thread("chat", user).append(messages, embed=False)
        spent += time.perf_counter() - started
        _add_vectors(memory, user, vectors)
        advance(len(messages))
    _name_embedder(memory)
    return plan.users * plan.user_lines / spent


def _add_vectors(memory: Memory, user: str, vectors: np.ndarray) -> None:
    lines = memory.store.unembedded(user, len(vectors))
    passages = [[(0, len(line.message.text))] for line in lines]
    memory.store.add_vectors([line.row for line in lines], passages, vectors[: len(lines)])


def _name_embedder(memory: Memory) -> None:
    memory.store.put_setting("embedder", memory.embedder.name)


def _measured(history: History, embedder: Embedder, plan: Plan, path: Path, size: tuple[int, int, float]) -> Size:
    lines, users, stored = size
    user = USER if users == 1 else MANY.format(0)
    questions = history.drawn(plan.questions, seed=lines)
    disk = sum(file.stat().st_blocks * 512 for file in _files(path))
    cold = _cold(path, user, questions[0], plan)
    asking = user if users == 1 else None
    with api.open(path, embedder=plan.embedder) as memory:  # by name, as users do: it then remembers its newest texts
        watch = _asked(memory, asking, questions, plan, Stopwatch())
    with api.open(path, embedder=plan.embedder) as memory:  # anew: the questions are remembered
        work = _asked(memory, asking, questions, replace(plan, yardstick=None), Stopwatch(time.thread_time))
        singles = _singles(memory.thread(f"singles at {lines}", user), history, embedder, plan)
    own = ("own", "mapped")
    contexts = _parts(watch)
    yardstick = Times.of(watch.seconds.pop(_YARDSTICK)) if plan.yardstick else None
    return Size(
        lines=lines,
        users=users,
        stored=stored,
        contexts=contexts,
        singles=singles,
        numpy=_numpy(history, lines, embedder.embed(questions[:20])) if users == 1 else None,
        cold_seconds=cold["seconds"],
        bytes_per_line={"disk": disk / lines, **{name: cold[name] / lines for name in own if name in cold}},
        stages=_medians(watch),
        work=_medians(work),
        yardstick=yardstick,
        ratios={name: Ratio.of(times, yardstick) for name, times in contexts.items()} if yardstick else {},
    )


def _asked(memory: Memory, user: str | None, questions: Sequence[str], plan: Plan, watch: Stopwatch) -> Stopwatch:
    """Time all stages of a context for each question, in a chat that has begun; of many users, each asks once."""
    asking = [memory.thread("asking", user or MANY.format(number % plan.users)) for number in range(len(questions))]
    for thread in asking[:1] if user else asking:
        if not thread.lines(0, 0):
            thread.append([{"role": ("user", "assistant")[n % 2], "content": f"Fine, {n}."} for n in range(_RECENT)])
        thread.context(_FIRST, max_tokens=plan.max_tokens)
    for first in range(0, len(questions), _BLOCK):
        block = slice(first, first + _BLOCK)
        asking[first].context(_FIRST, max_tokens=plan.max_tokens)
        with trace(watch):
            for thread, question in zip(asking[block], questions[block], strict=True):
                time.sleep(plan.pause_seconds)
                thread.context(question, max_tokens=plan.max_tokens)
        if plan.yardstick:
            _measure_yardstick(plan.yardstick, questions[block], plan.pause_seconds, watch)
    return watch


def _measure_yardstick(yardstick: Embedder, questions: Sequence[str], pause_seconds: float, watch: Stopwatch) -> None:
    """Embed the questions that contexts were just made for."""
    yardstick.embed([_FIRST])
    for question in questions:
        time.sleep(pause_seconds)
        with watch(_YARDSTICK):
            yardstick.embed([question])
    time.sleep(_REST_SECONDS)


def _medians(watch: Stopwatch) -> dict[str, float]:
    return {name: Times.of(seconds).p50 for name, seconds in watch.seconds.items()}


def _parts(watch: Stopwatch) -> dict[str, Times]:
    whole = np.array(watch.seconds["context"])
    parts = {name: np.array(watch.seconds[name]) for name in _PARTS}
    rest = whole - sum(parts.values())
    without = whole - parts["embed query"]
    named = {"context": whole, **parts, "rest": rest, "without embedder": without}
    return {name: Times.of(seconds.tolist()) for name, seconds in named.items()}


def _singles(thread: Thread, history: History, embedder: Embedder, plan: Plan) -> dict[str, Times]:
    """Append lines one by one, in each of the ways that there are."""
    said = iter([said_again(one, again) for again in range(101, 105) for one in history.messages])
    spent: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[[], object]) -> None:
        started = time.perf_counter()
        work()
        spent.setdefault(name, []).append(time.perf_counter() - started)

    for _ in range(min(_SINGLES, len(history.messages))):
        alone, at_once, later, asked = (next(said)._replace(created_at=None) for _ in range(4))
        timed("embedder", lambda: embedder.embed([at_once.text]))  # noqa: B023 - called at once
        timed("stored and embedded", lambda: thread.append(at_once))  # noqa: B023
        timed("stored", lambda: thread.append(alone, embed=False))  # noqa: B023
        thread.memory.embed()
        timed("deferred, and the next context", lambda: _deferred(thread, later, asked.text, plan))  # noqa: B023
    return {name: Times.of(seconds) for name, seconds in spent.items()}


def _deferred(thread: Thread, message: object, question: str, plan: Plan) -> None:
    thread.append(message, embed=False)  # type: ignore[arg-type]
    thread.context(question, max_tokens=plan.max_tokens)


def _numpy(history: History, lines: int, asked: np.ndarray) -> Times | None:
    """The floor that a user could write: all vectors as float32 in one matrix."""
    if lines > _MAX_FLOOR_LINES:
        return None
    matrix = np.concatenate([vectors for _, _, vectors in history.threads(lines)])
    spent = []
    for vector in [asked[0], *asked]:
        started = time.perf_counter()
        found = matrix @ vector
        np.argpartition(found, -min(_FLOOR_K, lines))[-_FLOOR_K:]
        spent.append(time.perf_counter() - started)
    return Times.of(spent[1:])


def _cold(path: Path, user: str, question: str, plan: Plan) -> dict[str, float]:
    arguments = [str(path), plan.embedder, user, question, str(plan.max_tokens)]
    command = [sys.executable, "-m", "backscroll.evaluation.speed.cold", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        raise StoreError(f"a new process could not ask {path}; it said: {run.stderr[-_TOLD_CHARACTERS:]}")
    found: dict[str, float] = json.loads(run.stdout)
    return found


def _files(path: Path) -> list[Path]:
    beside = Path(f"{path}-columns")
    return [path, *(Path(f"{path}{end}") for end in ("-wal",) if Path(f"{path}{end}").exists()), *beside.glob("*")]
