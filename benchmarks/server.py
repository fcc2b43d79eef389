"""What the server adds to a language model's time, and whether it loses or mixes anything under load.

Run on a quiet machine, from the project's folder:

    python benchmarks/server.py [--chats 200] [--turns 5] [--few 10] [--few-turns 20] [--embedder local] [--workers 1] \
        [--json]

Three processes on this machine alone, over loopback: a scripted upstream that answers after a set time and says how
long it took; the server, on a new file; and the chats, which resend their whole history at each turn, half of them
streamed. First many chats at once (nothing may be lost, nothing mixed between users), then a few (what is added), in
three ways, none of them with a pause between an answer and the next turn:

    in step    all begin at once, and the upstream takes equally long for each: their turns come in the same
               millisecond, and queue behind each other
    spread     each begins a little later than the one before, all within the upstream's time
    alone      one chat: a turn's own work, without a queue

    added      a turn's time for the client, less the upstream's own
    late       how much later than it asked the event loop wakes a task that sleeps 10 ms, over and over: whatever keeps
               it, its own work, a thread that holds Python's lock, or another process on the core
    own CPU    what the loop's own thread works between two waits

The latter two and the CPU of a turn are measured where there is one worker, which then runs in this process; several
are those of `backscroll serve --workers`.

Every chat has a word of its own in all that it says. The upstream refuses what has another chat's word in it, and at
the end the file must hold every line of every chat once, in order.
"""
# ruff: noqa: S603

import argparse
import asyncio
import json
import os
import re
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import uvicorn

from backscroll.server.app import create_app
from backscroll.server.settings import KEEP_ALIVE_SECONDS, ServerSettings
from backscroll.wiring import open_memory

WORD = re.compile(r"word\d{4}")
FACTS = (  # four that stand alone, and one that leans on the lines before it
    "The lorry of {word} needs a new hose before the winter comes: order one from the depot.",
    "The gate of the depot opens at five: {word} takes the left ramp and asks for the foreman.",
    "How long is the way from the mill to the harbor for {word} when the bridge is closed?",
    "Dee has the keys on Monday, and {word} takes the early run with two crates of bread.",
    "{word}: and when does it open there?",
)
PIECES = 8  # of a streamed answer
TIMEOUT_SECONDS = 120
SLEEP_SECONDS = 0.01


class MeasuredSelector(selectors.DefaultSelector):
    """Notes how much CPU the loop takes between two waits."""

    def __init__(self) -> None:
        super().__init__()
        self.cpu: list[float] = []
        self._woke: float | None = None

    def select(self, timeout: float | None = None) -> list[Any]:
        """Wait, and note what was before it."""
        if self._woke is not None:
            self.cpu.append(time.thread_time() - self._woke)
        events = super().select(timeout)
        self._woke = time.thread_time()
        return events


class Served:
    """The server in a thread of its own, with a measured loop."""

    def __init__(self, settings: ServerSettings) -> None:
        self.selector = MeasuredSelector()
        self.late: list[float] = []
        config = uvicorn.Config(
            create_app(None, settings),
            host=settings.host,
            port=settings.port,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            log_level="warning",
            access_log=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Served":
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive(), "the server did not start"
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(self.selector)) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        watching = asyncio.create_task(self._watch())
        await self._server.serve()
        watching.cancel()

    async def _watch(self) -> None:
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(SLEEP_SECONDS)
            self.late.append(time.perf_counter() - asked - SLEEP_SECONDS)


@contextmanager
def serve_workers(settings: ServerSettings) -> Iterator[None]:
    """`backscroll serve` with its workers, until the block ends."""
    command = [sys.executable, "-c", "from backscroll.cli import main; main()", "serve"]
    run = subprocess.Popen(command, env={**os.environ, **settings.to_environment()})
    try:
        while not answers(f"http://{settings.host}:{settings.port}/readyz"):
            assert run.poll() is None, "the server did not start"
            time.sleep(0.1)
        yield
    finally:
        run.terminate()
        run.wait()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


# the scripted upstream


async def upstream(delay_seconds: float) -> None:
    """Answer until the process is ended; says its port on stdout."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await answer_one(reader, writer, delay_seconds)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**24, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_seconds: float) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    began = time.perf_counter()
    length = int(re.search(r"content-length: (\d+)", head, re.IGNORECASE)[1])
    body = json.loads(await reader.readexactly(length))
    words = set(WORD.findall(json.dumps(body["messages"])))
    if words != set(WORD.findall(body["user"])):
        await send(writer, 409, "application/json", [json.dumps({"error": {"message": f"mixed: {words}"}})], began)
        return
    turn = body["messages"][-1]["content"].partition(".")[0]  # no two answers are the same text
    text = f"{turn} is noted for {words.pop()}: I keep it in mind, and tell you when it is time to leave the depot."
    await asyncio.sleep(delay_seconds)
    if not body.get("stream"):
        message = {"role": "assistant", "content": text}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        await send(writer, 200, "application/json", [json.dumps({"model": "scripted", "choices": choices})], began)
        return
    step = -(-len(text) // PIECES)
    deltas: list[tuple[dict[str, str], str | None]] = [
        ({"content": text[start : start + step]}, None) for start in range(0, len(text), step)
    ]
    events = [
        f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': end}]})}\n\n"
        for delta, end in [*deltas, ({}, "stop")]
    ]
    await send(writer, 200, "text/event-stream", [*events, "data: [DONE]\n\n"], began)


async def send(writer: asyncio.StreamWriter, status: int, kind: str, parts: Sequence[str], began: float) -> None:
    own = f"x-upstream-seconds: {time.perf_counter() - began}\r\n"
    head = f"HTTP/1.1 {status} OK\r\ncontent-type: {kind}\r\n{own}transfer-encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    for part in [*parts, ""]:
        data = part.encode()
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await writer.drain()


# the chats


async def chats(url: str, first: int, count: int, turns: int, spread_seconds: float) -> None:
    """Let some chats go on at once; says on stdout what was added to each turn, and what went wrong.

    Args:
        spread_seconds: within which they begin, one after the other.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=count)
    async with httpx.AsyncClient(limits=limits, timeout=TIMEOUT_SECONDS) as client:

        async def begun_later(place: int) -> tuple[list[float], list[str]]:
            await asyncio.sleep(spread_seconds * place / count)
            return await chat(client, url, first + place, turns)

        done = await asyncio.gather(*map(begun_later, range(count)))
    added = [seconds for one in done for seconds in one[0]]
    print(json.dumps({"added": added, "errors": [error for one in done for error in one[1]]}))


async def chat(client: httpx.AsyncClient, url: str, number: int, turns: int) -> tuple[list[float], list[str]]:
    """One chat; the seconds added to each of its turns, and its errors."""
    word, talk, added = f"word{number:04}", [], []
    is_streamed = number % 2 == 0
    for turn in range(turns):
        talk.append({"role": "user", "content": f"{turn}. {FACTS[turn % len(FACTS)].format(word=word)}"})
        body = {"model": "gpt-4o", "user": f"user {word}", "messages": talk, "stream": is_streamed}
        began = time.perf_counter()
        got = await client.post(f"{url}/v1/chat/completions", json=body)
        took = time.perf_counter() - began
        if got.status_code != 200:
            return added, [f"{word}, turn {turn}: {got.status_code} {got.text[:200]}"]
        added.append(took - float(got.headers["x-upstream-seconds"]))
        text = streamed(got.text) if is_streamed else got.json()["choices"][0]["message"]["content"]
        if word not in text:
            return added, [f"{word}, turn {turn}: {text[:200]}"]
        talk.append({"role": "assistant", "content": text})
    return added, []


def streamed(text: str) -> str:
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
    return "".join(json.loads(event)["choices"][0]["delta"].get("content", "") for event in events)


# all of it


def load(url: str, first: int, count: int, turns: int, spread_seconds: float = 0.0) -> dict[str, Any]:
    """Run chats in a process of their own."""
    command = [sys.executable, __file__, "chats", url, *map(str, (first, count, turns, spread_seconds))]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=1800)
    return json.loads(run.stdout)


def lost(db: str, counts: Sequence[tuple[int, int, int]]) -> list[str]:
    """The chats that the file does not hold as they were: (first number, how many, turns) of each part."""
    wrong = []
    with open_memory(db) as memory:
        for first, count, turns in counts:
            for number in range(first, first + count):
                user = f"user word{number:04}"
                threads = memory.threads(user)
                lines = [line for info in threads for line in memory.thread(info.thread, user).lines()]
                places = [line.message.text.partition(".")[0] for line in lines if line.message.role == "user"]
                is_whole = len(threads) == 1 and len(lines) == 2 * turns and places == list(map(str, range(turns)))
                wrong += [] if is_whole else [f"{user}: {len(threads)} threads, {len(lines)} lines, {places}"]
        findings = [f"check: {finding.problem}" for finding in memory.check() if "not embedded" not in finding.problem]
    return wrong + findings


def milliseconds(seconds: Sequence[float]) -> dict[str, float]:
    found = {f"p{p}": round(1000 * float(np.percentile(seconds, p)), 1) for p in (50, 95, 99)}
    return {**found, "max": round(1000 * max(seconds), 1)}


def ways(options: argparse.Namespace) -> dict[str, tuple[tuple[int, int, int], float]]:
    """How a few chats go on: (first number, how many, turns), and the seconds within which they begin."""
    return {
        "in step": ((5000, options.few, options.few_turns), 0.0),
        "spread": ((6000, options.few, options.few_turns), options.upstream_seconds),
        "alone": ((7000, 1, options.few_turns), 0.0),
    }


def measure(options: argparse.Namespace, folder: str) -> dict[str, Any]:
    script = [sys.executable, __file__, "upstream", str(options.upstream_seconds)]
    behind = subprocess.Popen(script, stdout=subprocess.PIPE, text=True)
    try:
        port = int(behind.stdout.readline())
        db = str(Path(folder) / "chat.db")
        settings = ServerSettings(
            db=db,
            port=options.port,
            embedder=options.embedder,
            upstream=f"http://127.0.0.1:{port}/v1",
            upstream_key_variable="",
            requests_per_minute=0,
            max_requests=2 * options.chats,
            workers=options.workers,
            log_level="warning",
        )
        with Served(settings) if options.workers == 1 else serve_workers(settings) as running:
            url = f"http://127.0.0.1:{options.port}"
            load(url, 9000, 2, 2)  # starting, and the first requests, load what is loaded once
            if running:
                running.late.clear()
                running.selector.cpu.clear()
            began, cpu = time.perf_counter(), time.process_time()
            many = load(url, 0, options.chats, options.turns)
            seconds = time.perf_counter() - began
            cpu = time.process_time() - cpu
            few = {way: load(url, *part, spread) for way, (part, spread) in ways(options).items()}
            loop = (milliseconds(running.late), milliseconds(running.selector.cpu)) if running else None
        parts = [(0, options.chats, options.turns), *(part for part, _ in ways(options).values())]
        return {
            "workers": options.workers,
            "chats": options.chats,
            "turns": len(many["added"]),
            "turns_a_second": round(len(many["added"]) / seconds, 1),
            "cpu_ms_a_turn": round(1000 * cpu / len(many["added"]), 1) if loop else None,
            "added_ms": milliseconds(many["added"]),
            "few": options.few,
            "few_added_ms": {way: milliseconds(found["added"]) for way, found in few.items()},
            "loop_late_ms": loop and loop[0],
            "loop_cpu_ms": loop and loop[1],
            "errors": many["errors"] + [error for found in few.values() for error in found["errors"]],
            "lost": lost(db, parts),
        }
    finally:
        behind.kill()
        behind.wait()


def shown(values: dict[str, float]) -> str:
    return "  ".join(f"{name} {value:g}" for name, value in values.items())


def loop_lines(found: dict[str, Any]) -> list[str]:
    if found["workers"] > 1:
        return [f"event loops of {found['workers']} workers: not measured"]
    late, own = shown(found["loop_late_ms"]), shown(found["loop_cpu_ms"])
    return ["event loop", f"  late, ms         {late}", f"  its own CPU, ms  {own}"]


def main() -> None:
    if sys.argv[1:2] == ["upstream"]:
        asyncio.run(upstream(float(sys.argv[2])))
        return
    if sys.argv[1:2] == ["chats"]:
        asyncio.run(chats(sys.argv[2], *map(int, sys.argv[3:6]), float(sys.argv[6])))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chats", type=int, default=200)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--few", type=int, default=10)
    parser.add_argument("--few-turns", type=int, default=20)
    parser.add_argument("--upstream-seconds", type=float, default=0.5)
    parser.add_argument("--embedder", default="local")
    parser.add_argument("--port", type=int, default=18790)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, folder)
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for text in (
        (
            f"{found['chats']} chats at once: {found['turns']} turns, {found['turns_a_second']:g} a second"
            + (f", {found['cpu_ms_a_turn']:g} ms of the server's CPU each" if found["cpu_ms_a_turn"] else "")
        ),
        f"  added, ms        {shown(found['added_ms'])}",
        f"{found['few']} chats at once, or one alone: added, ms",
        *(f"  {way:<16} {shown(added)}" for way, added in found["few_added_ms"].items()),
        *loop_lines(found),
        f"errors: {len(found['errors'])}; not as they were said: {len(found['lost'])}",
        *found["errors"][:5],
        *found["lost"][:5],
    ):
        print(text)
    sys.exit(1 if found["errors"] or found["lost"] else 0)


if __name__ == "__main__":
    main()
