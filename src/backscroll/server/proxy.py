"""/v1: OpenAI's chat completions with a memory in between. The client changes its base URL and nothing else.

    begin_turn (store, context) -> upstream -> its bytes, unchanged -> end_turn (store the reply)

The reply is stored before the client sees its end, so that its next request finds it.
"""

import logging
import re
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from urllib.parse import quote

import httpx
from anyio import CancelScope, create_task_group, to_thread
from fastapi import APIRouter, Request
from starlette.datastructures import State
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from backscroll.background import Background
from backscroll.errors import BackscrollError
from backscroll.memory import Memory, Thread
from backscroll.server.gate import TENANT
from backscroll.server.observing import Observer, answered_attributes, asked_attributes
from backscroll.server.problems import RefusedError
from backscroll.server.threads import Threads
from backscroll.server.turn import (
    PRESET_HEADER,
    THREAD_HEADER,
    USER_HEADER,
    Turn,
    begin_turn,
    end_turn,
    reply_in,
    shrink,
)
from backscroll.server.upstream import Upstream, refused, returned_headers
from backscroll.wiring import taken_tokens

TOKENS_HEADER = "x-backscroll-tokens"
_DONE = re.compile(rb"(?:\A|[\r\n])data: ?\[DONE\]")  # a line of its own: a reply may quote it
_DONE_BYTES = 13  # at most, with the end of the line before
_EMBEDDED_SECONDS = 5.0  # at the latest after the reply, however many requests there are
_REFUSALS = frozenset({400, 413, 422})  # with which servers say that there were too many tokens
proxy = APIRouter(prefix="/v1", include_in_schema=False)
_log = logging.getLogger(__name__)


@proxy.get("/models")
async def models(request: Request) -> Response:
    """The upstream's models."""
    upstream: Upstream = request.app.state.upstream
    answer = await upstream.get("/models", request.headers)
    return Response(await _read(answer, upstream), answer.status_code, dict(returned_headers(answer.headers)))


@proxy.post("/chat/completions")
async def chat_completions(request: Request) -> Response:
    """The upstream's answer to the context that the memory made for the messages."""
    upstream: Upstream = request.app.state.upstream
    upstream.check()
    raw = await request.body()
    turn = await _made(request.app.state, request.headers.get(PRESET_HEADER), partial(_begun, request, raw))
    model = turn.body.get("model")
    named = f"chat {model}" if isinstance(model, str) else "chat"
    asked = asked_attributes(model, upstream.base_url)
    with request.app.state.observer.stage("upstream", named, is_call=True, **asked):
        turn, answer = await _answered(upstream, turn, request)
    headers = {**dict(returned_headers(answer.headers)), **_named(turn)}
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        return Relay(answer, turn, headers, request.app.state)
    whole = await _read(answer, upstream)
    if answer.is_success:
        await to_thread.run_sync(_keep, turn, whole, False, request.app.state)
    return Response(whole, answer.status_code, headers)


@proxy.api_route("/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
async def others(path: str) -> Response:
    """What has no memory in it is not passed on: the upstream's key opens more than chats."""
    raise RefusedError(404, "the proxy serves /v1/chat/completions and /v1/models alone", "unknown_url")


class Relay(Response):
    """A stream's bytes as they come; what came is stored when it ends, or when either side leaves."""

    def __init__(self, answer: httpx.Response, turn: Turn, headers: dict[str, str], state: State) -> None:
        """Take the upstream's answer, whose body is still to come."""
        super().__init__(None, answer.status_code, headers)
        del self.headers["content-length"]
        self._answer = answer
        self._turn = turn
        self._state = state
        self._received = bytearray()
        self._is_kept = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what comes until either side leaves."""
        try:
            async with create_task_group() as group:

                async def until_the_client_leaves() -> None:
                    while (await receive())["type"] != "http.disconnect":
                        pass
                    group.cancel_scope.cancel()

                group.start_soon(until_the_client_leaves)
                await self._send(send)
                group.cancel_scope.cancel()
        finally:
            with CancelScope(shield=True):
                await self._answer.aclose()
                await self._keep()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for piece in self._pieces():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except httpx.HTTPError as error:  # the client's stream breaks as ours did
            _log.warning("the upstream's stream broke: %s", type(error).__name__)
            return
        await self._keep()
        await send({"type": "http.response.body", "body": b""})

    async def _pieces(self) -> AsyncIterator[bytes]:
        async for piece in self._answer.aiter_bytes():
            seen = len(self._received)
            self._received += piece
            if _DONE.search(self._received, max(0, seen - _DONE_BYTES)):
                await self._keep()
            yield piece

    async def _keep(self) -> None:
        if not self._is_kept:
            self._is_kept = True
            await to_thread.run_sync(_keep, self._turn, bytes(self._received), True, self._state)


async def _answered(upstream: Upstream, turn: Turn, request: Request) -> tuple[Turn, httpx.Response]:
    """The upstream's answer; one that had too many tokens is asked once more with fewer."""
    answer = await upstream.post("/chat/completions", turn.sent, request.headers)
    if answer.status_code not in _REFUSALS:
        return turn, answer
    limit = taken_tokens((await _read(answer, upstream)).decode(errors="replace"))
    if limit is None:
        return turn, answer
    smaller = await _made(request.app.state, turn.context.report.preset, partial(shrink, turn, limit))
    return smaller, await upstream.post("/chat/completions", smaller.sent, request.headers)


async def _read(answer: httpx.Response, upstream: Upstream) -> bytes:
    """All of an answer; reading it twice is reading it once. Raises: RefusedError where it breaks off."""
    try:
        return await answer.aread()
    except httpx.HTTPError as error:
        raise refused(error, upstream.base_url) from error
    finally:
        await answer.aclose()


async def _made(state: State, preset: str | None, make: Callable[[], Turn]) -> Turn:
    """A turn with its context."""
    threads: Threads = state.threads
    return await threads.context(make, state.tenants.asks_others(preset))


def _begun(request: Request, raw: bytes) -> Turn:
    state = request.app.state
    memory: Memory = state.tenants.memory(request.scope[TENANT])
    return begin_turn(memory, raw, request.headers, state.settings, state.observer, state.order)


def _keep(turn: Turn, raw: bytes, is_stream: bool, state: State) -> None:
    """Store the reply. It is embedded when the client has it, or by the next context if that comes first.

    Where the store fails, the client gets its answer all the same: a client that resends its history brings it again.
    """
    observer: Observer = state.observer
    background: Background = state.background
    try:
        with observer.stage("keep") as stage:
            reply = reply_in(raw, is_stream)
            stage.note(answered_attributes(reply))
            observer.replies.labels(end_turn(turn, reply)).inc()
        embed = partial(_embed, turn.thread, state.threads, time.monotonic() + _EMBEDDED_SECONDS)
        background.ask((id(turn.thread.memory), turn.thread.key.user), embed)
    except Exception as error:  # noqa: BLE001 - also a bug's: it costs the line, not the answer
        observer.replies.labels("lost").inc()
        _log.error(
            "a reply could not be stored: %s", error if isinstance(error, BackscrollError) else type(error).__name__
        )


def _embed(thread: Thread, threads: Threads, until: float) -> None:
    """Embed what a user has stored, when no request waits for its context, or it is time."""
    threads.quiet.wait(max(0.0, until - time.monotonic()))
    thread.append(())


def _named(turn: Turn) -> dict[str, str]:
    """Where the turn was stored, for clients that ask."""
    return {
        USER_HEADER: quote(turn.thread.key.user),
        THREAD_HEADER: quote(turn.thread.key.thread),
        TOKENS_HEADER: str(turn.context.tokens),
    }
