"""A small real server that speaks OpenAI's chat completions over HTTP, streamed too, and fails as it is told to.

It is given steps, one a request; when there are none left it repeats the last user's words. A step is a function of
the handler and the request's body.
"""

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from backscroll.tokens import message_tokens, open_counter

Body = dict[str, Any]
Step = Callable[["Handler", Body], None]
USAGE = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 8}}
MODEL = "small-2026-01"


class OpenAIServer(ThreadingHTTPServer):
    """Answers on a free port of this machine until it is closed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.steps: list[Step] = []
        self.otherwise: Step = repeats  # when there are no steps left
        self.bodies: list[Body] = []
        self.keys: list[str | None] = []
        self.headers: list[dict[str, str]] = []
        self.max_tokens: int | None = None  # more are refused
        self.going = threading.Lock()
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self.thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is what some tests are about."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: OpenAIServer

    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "tests"}]}
        self.server.keys.append(self.headers["Authorization"])
        self.answer(200 if self.path == "/v1/models" else 404, json.dumps(models).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.going:
            self.server.bodies.append(body)
            self.server.keys.append(self.headers["Authorization"])
            self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
            step = self.server.steps.pop(0) if self.server.steps else self.server.otherwise
        if self.path != "/v1/chat/completions":
            step = status(404, "no such page")
        elif self.server.max_tokens is not None and tokens(body) > self.server.max_tokens:
            step = too_long(self.server.max_tokens, tokens(body))
        step(self, body)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged."""

    def answer(self, code: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def begin_stream(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def event(self, data: str) -> None:
        text = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))
        self.wfile.flush()

    def hang_up(self) -> None:
        """Close the connection at once, with a reset."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True


def chunk(delta: Body, finish_reason: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return json.dumps(
        {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": MODEL, "choices": [choice], **more}
    )


def says(message: str | Body, finish_reason: str | None = None, usage: Body | None = USAGE) -> Step:
    """A reply, at once or streamed word by word, as it is asked for."""
    whole = {"role": "assistant", "content": message} if isinstance(message, str) else message
    reason = finish_reason or ("tool_calls" if whole.get("tool_calls") else "stop")

    def step(handler: Handler, body: Body) -> None:
        if body.get("stream"):
            deltas = [{"content": word + " "} for word in str(whole.get("content") or "").split(" ")]
            deltas[-1]["content"] = deltas[-1]["content"].removesuffix(" ")
            deltas += [{"tool_calls": [{"index": i, **call}]} for i, call in enumerate(whole.get("tool_calls") or ())]
            streams(deltas, reason, usage)(handler, body)
            return
        choice = {"index": 0, "message": whole, "finish_reason": reason}
        answer = {"id": "c", "object": "chat.completion", "created": 0, "model": MODEL, "choices": [choice]}
        handler.answer(200, json.dumps({**answer, "usage": usage}).encode())

    return step


def streams(
    deltas: Sequence[Body | str],
    finish_reason: str | None = "stop",
    usage: Body | None = USAGE,
    then: Callable[[Handler], None] | None = None,
) -> Step:
    """A stream of deltas; `then` takes the place of its end."""

    def step(handler: Handler, body: Body) -> None:
        handler.begin_stream()
        for delta in deltas:
            handler.event(delta if isinstance(delta, str) else chunk(delta))
        if then is not None:
            then(handler)
            return
        if finish_reason is not None:
            handler.event(chunk({}, finish_reason))
        if usage is not None and body.get("stream_options"):
            handler.event(chunk({}, usage=usage).replace('"choices": [{', '"choices": [], "unused": [{'))
        handler.event("[DONE]")
        handler.wfile.write(b"0\r\n\r\n")

    return step


def repeats(handler: Handler, body: Body) -> None:
    said = [message["content"] for message in body["messages"] if message["role"] == "user"]
    says(f"You said: {said[-1]}" if said else "Nobody spoke.")(handler, body)


def status(number: int, message: str, headers: dict[str, str] | None = None, **error: Any) -> Step:
    """A refusal as OpenAI words it."""
    data = json.dumps({"error": {"message": message, "type": "error", **error}}).encode()
    return lambda handler, _: handler.answer(number, data, headers)


def tokens(body: Body) -> int:
    """What a request costs, the opening of the reply included."""
    counter = open_counter()
    return counter.tokens_per_reply + sum(message_tokens(message, counter) for message in body["messages"])


def too_long(limit: int, asked: int) -> Step:
    said = f"This model's maximum context length is {limit} tokens. However, your messages resulted in {asked} tokens."
    return status(400, said, code="context_length_exceeded")


def raw(data: bytes, content_type: str = "application/json") -> Step:
    return lambda handler, _: handler.answer(200, data, {"Content-Type": content_type})


def slow(seconds: float) -> Step:
    def step(handler: Handler, body: Body) -> None:
        time.sleep(seconds)
        repeats(handler, body)

    return step


def hangs_up(handler: Handler, _: Body) -> None:
    handler.hang_up()
