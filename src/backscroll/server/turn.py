"""One chat completion's way through the memory: whose it is, what is sent for it, what of the answer is stored.

    body -> user, thread -> store what is new -> context -> body for the upstream -> answer -> store the reply

All of it blocks, and runs in the server's threads. Knows nothing about sockets.
"""

import json
import logging
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import unquote
from weakref import WeakValueDictionary

from backscroll.answer import to_store
from backscroll.context import Context
from backscroll.errors import MessageError
from backscroll.fingerprint import says_the_same
from backscroll.memory import DEFAULT_USER, Memory, Thread
from backscroll.messages import is_empty, parse_messages
from backscroll.protocols import MemoryStore
from backscroll.reply import CONTEXT_TOKENS, LATENCY, PARTIAL, PRESET, said, sent
from backscroll.server.bodies import read_json
from backscroll.server.finding import History, find_thread, store_history
from backscroll.server.observing import Observer
from backscroll.server.settings import ServerSettings
from backscroll.types import Line, Message, Reply, own_path
from backscroll.wiring import reply_of, reply_of_chunks

USER_HEADER, THREAD_HEADER = "x-backscroll-user", "x-backscroll-thread"
HISTORY_HEADER, BUDGET_HEADER, PRESET_HEADER = "x-backscroll-history", "x-backscroll-max-tokens", "x-backscroll-preset"
_USER_KEY, _THREAD_KEY = "backscroll_user", "backscroll_thread"  # in the body's metadata
_NOTED = frozenset(  # in a line's metadata: what is known here of its reply, which no client tells
    {PARTIAL, CONTEXT_TOKENS, LATENCY, PRESET, "replaces_system", "usage", "model", "finish_reason"}
)
_MAX_NAME = 500
_SHRUNK_SHARE = 0.75  # of what the model says it takes: counts differ, and the reply needs room
_SHRUNK_BLINDLY = 0.5  # of what was sent, where it does not say
_ALL = 2**62
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Turn:
    """A request whose messages are stored and whose context is made.

    Attributes:
        thread: where it was stored.
        prompt: the thread's newest line when the messages were stored: the reply belongs behind it.
        body: the client's, less what is ours.
        context: what is sent in place of its messages.
        is_streamed: whether the client asked for a stream.
        sent: the body for the upstream.
        began: by the monotonic clock.
    """

    thread: Thread
    prompt: Line
    body: Mapping[str, Any]
    context: Context
    is_streamed: bool
    sent: bytes
    began: float


class Order:
    """One request a thread at a time, from storing its messages to its context: another's prompt is not in between."""

    def __init__(self) -> None:
        self._making = threading.Lock()
        self._locks: WeakValueDictionary[tuple[int, str, str], threading.Lock] = WeakValueDictionary()

    def lock(self, thread: Thread) -> threading.Lock:
        """The thread's own; it lasts as long as somebody has it."""
        with self._making:
            return self._locks.setdefault((id(thread.memory), *thread.key), threading.Lock())


def begin_turn(
    memory: Memory,
    raw: bytes,
    headers: Mapping[str, str],
    settings: ServerSettings,
    observer: Observer,
    order: Order,
) -> Turn:
    """Store what is new of a request's messages, and make the context for them.

    Args:
        raw: the request's body.
        headers: by names in lower case.
        observer: is told how long it took.
        order: of the requests in a thread.

    Raises: MessageError for what is no chat completion; what `Thread.context` raises.
    """
    began = time.monotonic()
    body = _parsed(raw)
    _check_text(body)
    told = _without_ours(body)
    with ExitStack() as until_it_is_made:
        with observer.stage("store"):
            thread, messages, history = _addressed(memory, body, headers)
            until_it_is_made.enter_context(order.lock(thread))
            prompt = store_history(thread, messages, history)
        context = _context(thread, told, _budget(told, headers, settings), headers.get(PRESET_HEADER))
    observer.tokens.labels("context").inc(context.tokens)
    observer.tokens.labels("history").inc(prompt.offset + prompt.tokens)
    return Turn(thread, prompt, told, context, body.get("stream") is True, _sent(told, context), began)


def _addressed(
    memory: Memory, body: Mapping[str, Any], headers: Mapping[str, str]
) -> tuple[Thread, list[Message], History]:
    """A request's messages, the thread that they are of, and which part of it they are."""
    messages = parse_messages(_listed(body, "messages"))
    if not messages:
        raise MessageError("messages is a list of at least one message")
    history = _history(headers)
    user = _user(body, headers)
    name = _in_header(headers, THREAD_HEADER) or _in_metadata(body, _THREAD_KEY)
    known = name or find_thread(memory.store, user, messages)
    thread = memory.thread(known or f"chat-{uuid.uuid4().hex[:12]}", user=user)
    return thread, [_without_notes(message) for message in messages], history if name else "whole"


def _without_notes(message: Message) -> Message:
    if _NOTED.isdisjoint(message.metadata):
        return message
    return message._replace(metadata={key: told for key, told in message.metadata.items() if key not in _NOTED})


def shrink(turn: Turn, limit: int) -> Turn:
    """The turn with a smaller context, after the model refused the one it was sent.

    Args:
        limit: the most tokens that the model takes; 0 where it did not say.
    """
    sent = turn.context.tokens
    budget = int(min(limit, sent) * _SHRUNK_SHARE) if limit else int(sent * _SHRUNK_BLINDLY)
    context = _context(turn.thread, turn.body, max(1, budget), turn.context.report.preset)
    return replace(turn, context=context, sent=_sent(turn.body, context))


def reply_in(raw: bytes, is_stream: bool) -> Reply | None:
    """The reply in an upstream's answer; None where there is none.

    Args:
        raw: the bytes of its body, as far as they came.
        is_stream: whether they are server-sent events.
    """
    try:
        if not is_stream:
            return reply_of(_parsed(raw))
        return reply_of_chunks(_chunks(raw))
    except (MessageError, AttributeError, KeyError, TypeError, ValueError):
        _log.warning("an answer of the upstream is none that could be stored")
        return None


def end_turn(turn: Turn, reply: Reply | None) -> str:
    """Store the reply behind its prompt; says what became of it: kept, partial, empty, known, beside or superseded.

    Where the chat went on otherwise meanwhile, the reply does not come between: behind another prompt it stands
    beside, on a branch that is not the current one; another reply of the same prompt is left for this one; a copy that
    the client resent already is enough.
    """
    if reply is None or is_empty(to_store(reply.message, reply.is_partial)):
        return "empty"
    message = said(reply, sent(turn.context, turn.began))
    memory, store = turn.thread.memory, turn.thread.memory.store
    with store.exclusive():
        since = store.read(turn.thread.key, turn.prompt.position, _ALL)
        if not since or since[0].row != turn.prompt.row:
            return "superseded"
        following = [line.message for line in since[1:]]
        if not following:
            turn.thread.append(message, embed=False)
            return "partial" if reply.is_partial else "kept"
        if says_the_same(message, following[0]):
            return "known"
        if reply.is_partial:
            return "superseded"
        went_on = any(one.role == "user" for one in following)
        current = _current(store, turn.prompt)
        branch = store.fork(turn.thread.key, turn.prompt.position + 1)
        memory.thread(branch.thread, user=branch.user).append(message, embed=False)
        if went_on:
            store.switch(turn.thread.key, current)
    return "beside" if went_on else "kept"


def _current(store: MemoryStore, line: Line) -> str:
    """The branch that the name of a line's thread stands for now."""
    head = next(info.head for info in store.threads(line.user, line.family) if info.thread == line.family)
    return own_path(line.family) if head in (None, line.family) else str(head)


def _context(thread: Thread, body: Mapping[str, Any], budget: int, preset: str | None) -> Context:
    named = preset if preset != "custom" else None
    model = body.get("model")
    return thread.context(
        None,
        max_tokens=budget,
        tools=_schemas(body),
        model=checked_model(model if isinstance(model, str) and model.strip() else None),
        now=datetime.now(UTC),
        preset=named,
    )


def checked_model(name: str | None) -> str | None:
    """The name of a model to count by; a file of this machine is none that a caller may name."""
    if name is not None and name.strip().endswith(".json"):
        raise MessageError("model is a model's name, not a file")
    return name


def _sent(body: Mapping[str, Any], context: Context) -> bytes:
    return json.dumps({**body, "messages": context.messages}, ensure_ascii=False).encode()


def _schemas(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Everything that the model is sent beside the messages, as schemas to count."""
    tools = _listed(body, "tools") if body.get("tools") else []
    functions = _listed(body, "functions") if body.get("functions") else []
    shape = body.get("response_format")
    shapes = [shape] if isinstance(shape, Mapping) and shape.get("type") == "json_schema" else []
    return [*tools, *functions, *shapes]


def _budget(body: Mapping[str, Any], headers: Mapping[str, str], settings: ServerSettings) -> int:
    """The size of the context: what is set or asked for, and what the model has room for beside the reply."""
    asked = headers.get(BUDGET_HEADER)
    if asked is not None and not (asked.isascii() and asked.isdigit() and 0 < int(asked) < 2**31):
        raise MessageError(f"{BUDGET_HEADER} is a whole number above 0")
    wanted = settings.max_tokens if asked is None else int(asked)
    if not settings.limit_tokens:
        return wanted
    told = [body.get(name) for name in ("max_completion_tokens", "max_tokens")]
    reply = next((one for one in told if isinstance(one, int) and one > 0), settings.reply_tokens)
    return max(1, min(wanted, settings.limit_tokens - reply))


def _history(headers: Mapping[str, str]) -> History:
    given = headers.get(HISTORY_HEADER, "")
    if given not in ("", "whole", "new"):
        raise MessageError(f"{HISTORY_HEADER} is whole or new, not {given!r}")
    return cast(History, given)


def _user(body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    given = _in_header(headers, USER_HEADER) or _in_metadata(body, _USER_KEY) or _name(body.get("user"), "user")
    return given or DEFAULT_USER


def _in_header(headers: Mapping[str, str], header: str) -> str | None:
    """A name in a header, where any character may be percent-encoded."""
    return _name(unquote(headers.get(header, ""), errors="replace"), header)


def _in_metadata(body: Mapping[str, Any], key: str) -> str | None:
    metadata = body.get("metadata")
    return _name(metadata.get(key), f"metadata.{key}") if isinstance(metadata, Mapping) else None


def _name(given: object, what: str) -> str | None:
    """A user's or a thread's name; None where none is given. Raises: MessageError for one that is too long."""
    if not isinstance(given, str) or not given.strip():
        return None
    if len(given) > _MAX_NAME:
        raise MessageError(f"{what} has more than {_MAX_NAME} characters")
    return given


def _without_ours(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body without the names that are for us; metadata of nothing else goes with them."""
    metadata = body.get("metadata")
    if not isinstance(metadata, Mapping) or not {_USER_KEY, _THREAD_KEY} & set(metadata):
        return dict(body)
    kept = {key: value for key, value in metadata.items() if key not in (_USER_KEY, _THREAD_KEY)}
    others = {key: value for key, value in body.items() if key != "metadata"}
    return {**others, "metadata": kept} if kept else others


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        body = read_json(raw)
    except (ValueError, RecursionError) as error:
        raise MessageError("the body is not JSON") from error
    if not isinstance(body, dict):
        raise MessageError("the body is a JSON object")
    return body


def _check_text(body: Mapping[str, Any]) -> None:
    """Refuse what could not be sent on; messages are checked as such."""
    try:
        json.dumps({key: value for key, value in body.items() if key != "messages"}, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise MessageError(f"the body holds half of a surrogate pair, which is no text: {error}") from error
    except RecursionError as error:
        raise MessageError("the body is nested too deep") from error


def _listed(body: Mapping[str, Any], key: str) -> list[Any]:
    given = body.get(key)
    if not isinstance(given, list):
        raise MessageError(f"{key} is a list")
    return given


def _chunks(raw: bytes) -> Iterator[dict[str, Any]]:
    """The objects of server-sent events; a last one that broke off is left out."""
    for line in raw.replace(b"\r", b"\n").split(b"\n"):
        data = line.removeprefix(b"data:").strip() if line.startswith(b"data:") else b""
        if data and data != b"[DONE]":
            try:
                chunk = json.loads(data)
            except (ValueError, RecursionError):
                continue
            if isinstance(chunk, dict) and not chunk.get("error"):
                yield chunk
