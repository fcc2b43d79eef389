"""`backscroll serve` as it is run: a process that is stopped by signals; its numbers, spans and logs."""

import contextlib
import gc
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from backscroll.cli import main
from backscroll.server.interpreter import COLLECTIONS, SWITCH_SECONDS
from backscroll.server.logs import JSONFormatter
from backscroll.wiring import open_memory
from chats import user
from openai_server import OpenAIServer, says, streams
from serving import asking, served

ROOT = Path(__file__).resolve().parents[1]
SAID = "the-gate-code-is-4711"


@pytest.fixture
def upstream(monkeypatch) -> Iterator[OpenAIServer]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = OpenAIServer()
    yield server
    server.stop()


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return asked.getsockname()[1]


class Process:
    """`backscroll serve`, running."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self.process = process

    def stop(self, number: int = signal.SIGTERM) -> str:
        """Stop it, and return what it wrote to stderr."""
        self.process.send_signal(number)
        return self.process.communicate(timeout=60)[1]


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Process]:
    port = free_port()
    command = [
        sys.executable,
        "-c",
        "from backscroll.cli import main; main()",
        "serve",
        "--db",
        str(folder / "chat.db"),
    ]
    command += ["--port", str(port), "--embedder", "hashing", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "BACKSCROLL_LOG_FORMAT": "json"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    running = Process(f"http://127.0.0.1:{port}", process)
    try:
        until = time.monotonic() + 60
        while not is_ready(running.url):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.05)
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.HTTPError:
        return False


def ask(url: str, messages: list[dict], **more: object) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json={"model": "small", "messages": messages, **more}, timeout=60)


# running


def test_a_stream_is_finished_when_the_server_is_told_to_stop(tmp_path, upstream):
    is_told, may_end = threading.Event(), threading.Event()

    def wait(handler) -> None:
        is_told.set()
        may_end.wait(30)
        streams([{"content": " and the end."}])(handler_without_head(handler), {})

    upstream.steps = [streams([{"content": "The beginning"}], then=wait)]
    got: list[httpx.Response] = []
    with serving(tmp_path, "--upstream", upstream.base_url) as running:
        asking_it = threading.Thread(target=lambda: got.append(ask(running.url, [user("Tell.")], stream=True)))
        asking_it.start()
        assert is_told.wait(30)
        running.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        may_end.set()
        asking_it.join()
        running.process.communicate(timeout=60)
        assert running.process.returncode in (0, -signal.SIGTERM)
    assert got[0].text.rstrip().endswith("[DONE]")
    with open_memory(tmp_path / "chat.db") as memory:
        [info] = memory.threads()
        assert [line.message.text for line in memory.thread(info.thread).lines()] == [
            "Tell.",
            "The beginning and the end.",
        ]


def handler_without_head(handler):
    """The handler, whose stream has begun already."""
    handler.begin_stream = lambda: None
    return handler


def test_several_workers_share_one_file_and_lose_nothing(tmp_path, upstream):
    upstream.otherwise = says("Noted.")
    with serving(tmp_path, "--upstream", upstream.base_url, "--workers", "2") as running:

        def chat(who: int) -> None:
            talk = []
            for turn in range(5):
                talk += [user(f"{who} says {turn}")]
                talk.append(ask(running.url, talk, user=f"user {who}").json()["choices"][0]["message"])

        chatting = [threading.Thread(target=chat, args=(who,)) for who in range(6)]
        for one in chatting:
            one.start()
        for one in chatting:
            one.join()
        numbers = httpx.get(f"{running.url}/metrics").text
        assert total(numbers, 'backscroll_replies_total{end="kept"}') == 30
        running.stop()
    with open_memory(tmp_path / "chat.db") as memory:
        for who in range(6):
            [info] = memory.threads(f"user {who}")
            said = [line.message.text for line in memory.thread(info.thread, info.user).lines()]
            assert said == [text for turn in range(5) for text in (f"{who} says {turn}", "Noted.")]


def test_whatever_kills_it_what_a_client_saw_the_end_of_is_stored(tmp_path, upstream):
    upstream.otherwise = says("Noted.")
    seen: dict[int, list[dict]] = {who: [] for who in range(6)}
    with serving(tmp_path, "--upstream", upstream.base_url) as running:

        def chat(who: int) -> None:
            talk: list[dict] = []
            with contextlib.suppress(httpx.HTTPError):
                for turn in range(1000):
                    talk = [*talk, user(f"{who} says {turn}")]
                    got = ask(running.url, talk, user=f"user {who}", stream=bool(who % 2))
                    assert got.status_code == 200
                    talk = [*talk, {"role": "assistant", "content": "Noted."}]
                    seen[who] = talk

        chatting = [threading.Thread(target=chat, args=(who,)) for who in seen]
        for one in chatting:
            one.start()
        while min(map(len, seen.values())) < 6:
            assert running.process.poll() is None
            time.sleep(0.01)
        running.process.kill()
        for one in chatting:
            one.join()
    with open_memory(tmp_path / "chat.db") as memory:
        for who, talk in seen.items():
            [info] = memory.threads(f"user {who}")
            lines = memory.thread(info.thread, info.user).lines()
            assert [line.message.text for line in lines[: len(talk)]] == [message["content"] for message in talk]
        assert [one for one in memory.check() if one.kind != "vectors"] == []


def total(numbers: str, name: str) -> float:
    return float(re.search(rf"^{re.escape(name)} (\S+)$", numbers, re.MULTILINE)[1])


def test_ctrl_c_ends_it_and_nothing_that_was_said_is_in_its_logs(tmp_path, upstream):
    with serving(tmp_path, "--upstream", upstream.base_url) as running:
        ask(running.url, [user(SAID)], user=f"{SAID}-user")
        httpx.get(f"{running.url}/api/recall", params={"q": SAID, "user": f"{SAID}-user"})
        httpx.get(f"{running.url}/api/threads", params={"user": SAID}, headers={"Authorization": f"Bearer {SAID}"})
        httpx.get(f"{running.url}/{SAID}")
        httpx.post(f"{running.url}/api/messages?thread={SAID}", json={"messages": [{"role": "bot", "content": SAID}]})
        written = running.stop(signal.SIGINT)
    assert SAID not in written
    lines = [json.loads(line) for line in written.splitlines() if line.startswith("{")]
    asked = [line["message"] for line in lines if line["logger"] == "backscroll.server.requests"]
    assert any(message.startswith("POST /v1/chat/completions 200 ") for message in asked)
    assert any(message.startswith("GET /api/recall 200 ") for message in asked)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--upstream", "ftp://x"], "address"),
        (["--keys", "nowhere.json"], "nowhere.json"),
        (["--llm", "gpt"], "openai:MODEL"),
        (["--port", "0"], "port"),
        (["--config", "nowhere.toml"], "nowhere.toml"),
        (["--embedder", "nothing"], "nothing"),
    ],
)
def test_what_is_wrong_is_said_in_a_line_before_anything_listens(tmp_path, options, words):
    given = [] if "--embedder" in options else ["--embedder", "hashing"]
    run = CliRunner().invoke(main, ["serve", "--db", str(tmp_path / "chat.db"), *given, *options])
    assert run.exit_code == 2
    assert words in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1


def test_a_port_that_is_taken_is_said_so(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = ["serve", "--db", str(tmp_path / "chat.db"), "--embedder", "hashing", "--port", port]
        run = CliRunner().invoke(main, given)
    assert run.exit_code == 2
    assert port in run.stderr


def test_a_file_that_is_no_store_is_said_so(tmp_path):
    (tmp_path / "chat.db").write_text("not a store, but a text that is long enough to be looked at" * 20)
    run = CliRunner().invoke(main, ["serve", "--db", str(tmp_path / "chat.db")])
    assert (run.exit_code, len(run.stderr.strip().splitlines())) == (2, 1)


# health, numbers, spans, logs


def test_a_server_whose_store_is_gone_lives_and_is_not_ready(memory):
    with asking(memory) as client:
        assert client.get("/readyz").status_code == 200
        memory.store.close()
        assert client.get("/healthz").status_code == 200
        assert client.get("/readyz").status_code == 503
        assert client.get("/api/users").status_code == 500


def test_the_numbers_count_requests_by_route_and_tokens_saved(memory, upstream):
    with asking(memory, upstream=upstream.base_url) as client:
        ask(str(client.base_url).rstrip("/"), [user("Hi")])
        client.get("/api/users")
        client.get("/nowhere/at/all")
        client.request("MADEUP", "/api/users")
        numbers = client.get("/metrics").text
    counted = 'backscroll_request_seconds_count{method="%s",route="%s",status="%s"}'
    assert total(numbers, counted % ("POST", "/v1/chat/completions", 200)) == 1
    assert total(numbers, counted % ("GET", "/api/users", 200)) == 1
    assert total(numbers, counted % ("GET", "other", 404)) == 1
    assert "MADEUP" not in numbers
    assert total(numbers, 'backscroll_stage_seconds_count{stage="context"}') == 1
    assert total(numbers, 'backscroll_tokens_total{of="context"}') > 0


def test_spans_tell_the_stages_by_the_genai_conventions_and_nothing_that_was_said(memory, upstream, monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    with asking(memory, upstream=upstream.base_url) as client:
        ask(str(client.base_url).rstrip("/"), [user(SAID)], user=SAID)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert {"store", "context", "search", "window", "chat small", "keep"} <= set(spans)
    assert spans["search"].context.trace_id == spans["context"].context.trace_id
    assert spans["chat small"].attributes["gen_ai.request.model"] == "small"
    assert spans["chat small"].attributes["server.address"] == "127.0.0.1"
    assert spans["chat small"].attributes["server.port"] == upstream.server_address[1]
    assert (spans["chat small"].kind, spans["keep"].kind) == (trace.SpanKind.CLIENT, trace.SpanKind.INTERNAL)
    assert spans["keep"].attributes["gen_ai.usage.input_tokens"] == 11
    assert SAID not in str([span.to_json() for span in spans.values()])


def test_what_the_first_request_would_wait_for_is_made_ready_before(memory):
    with served(memory) as server:
        assert server.config.app.openapi_schema
        until = time.monotonic() + 20
        while not memory.store.setting(f"calibration {memory.embedder.name}") and time.monotonic() < until:
            time.sleep(0.01)
        assert memory.store.setting(f"calibration {memory.embedder.name}")


def test_while_it_runs_threads_give_way_sooner_and_all_is_as_before_afterwards(memory):
    before = sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count()
    with served(memory):
        assert sys.getswitchinterval() == pytest.approx(SWITCH_SECONDS)
        assert gc.get_threshold() == (*before[1][:2], COLLECTIONS)
        assert gc.get_freeze_count() > 0
    assert (sys.getswitchinterval(), gc.get_threshold(), gc.get_freeze_count()) == (*before[:2], 0)


def test_a_log_line_is_one_json_object():
    record = logging.LogRecord("backscroll", logging.INFO, "x.py", 1, "two\nlines %s", ("é",), None)
    assert json.loads(JSONFormatter().format(record))["message"] == "two\nlines é"
    assert "\n" not in JSONFormatter().format(record)
