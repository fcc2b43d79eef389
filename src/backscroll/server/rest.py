"""/api: threads, messages, contexts, replies and recall over HTTP. Every route blocks in a thread of the server's."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from backscroll import __version__
from backscroll.errors import MessageError
from backscroll.memory import DEFAULT_USER, Memory, Thread
from backscroll.server import shapes
from backscroll.server.bodies import LongBodies
from backscroll.server.gate import TENANT
from backscroll.server.paging import end, lines_before, lines_from, page_of
from backscroll.server.problems import RefusedError
from backscroll.server.replies import stream_reply
from backscroll.server.settings import ServerSettings
from backscroll.server.shaping import (
    by_age,
    context_shape,
    exported,
    hit_shape,
    line_shape,
    sent_shape,
    source_shapes,
    summary_shape,
    thread_shape,
    turn_shape,
    user_shape,
)
from backscroll.server.turn import checked_model
from backscroll.settings import PRESETS, name_of
from backscroll.types import Source, ThreadInfo, ThreadKey

MAX_ITEMS = 200

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": shapes.Problem, "content": {"application/problem+json": {}}, "description": about}
    for status, about in (
        (401, "A key is needed"),
        (403, "Not from this page, or not by this name"),
        (404, "Not found"),
        (408, "Too slow"),
        (413, "Too large, or the context does not fit"),
        (422, "Not what it should be"),
        (429, "Too many requests"),
        (501, "No language model is configured"),
        (502, "The language model gave no reply"),
        (503, "Not available now"),
        (504, "The language model did not answer in time"),
    )
}
api = APIRouter(prefix="/api", responses=_ERRORS, route_class=LongBodies)


def memory_of(request: Request) -> Memory:
    """The memory of the one who asks."""
    tenant = request.scope[TENANT]
    if tenant is None:
        raise RefusedError(401, "send a key of this server's: Authorization: Bearer KEY")
    memory: Memory = request.app.state.tenants.memory(tenant)
    return memory


def settings_of(request: Request) -> ServerSettings:
    """The server's settings."""
    settings: ServerSettings = request.app.state.settings
    return settings


UserName = Annotated[shapes.Name, Query(description="Whose.")]
ThreadName = Annotated[shapes.Name, Query(description="The thread.")]
Limit = Annotated[int, Query(ge=1, le=MAX_ITEMS, description="The most items.")]
Cursor = Annotated[str | None, Query(max_length=5000, description="`next` of the page before.")]
MemoryOf = Annotated[Memory, Depends(memory_of)]
SettingsOf = Annotated[ServerSettings, Depends(settings_of)]


def thread_of(memory: MemoryOf, thread: ThreadName, user: UserName = DEFAULT_USER) -> Thread:
    """The thread that is named."""
    return memory.thread(thread, user=user)


ThreadOf = Annotated[Thread, Depends(thread_of)]


@api.get("/status")
def status(request: Request, settings: SettingsOf) -> shapes.Status:
    """What this server is; without a key, only whether it needs one."""
    needs_key = bool(settings.keys)
    if needs_key and request.scope[TENANT] is None:
        return shapes.Status(version=__version__, needs_key=True)
    memory = memory_of(request)
    return shapes.Status(
        version=__version__,
        needs_key=needs_key,
        has_model=memory.llm is not None,
        model=memory.llm.model if memory.llm else None,
        embedder=memory.embedder.name,
        store=type(memory.store).__name__,
        presets=[shapes.Preset(name=name, settings=asdict(preset)) for name, preset in PRESETS.items()],
        default_preset=name_of(memory.settings),
        max_tokens=settings.max_tokens,
    )


@api.get("/users")
def users(memory: MemoryOf, limit: Limit = 50, cursor: Cursor = None) -> shapes.Page[shapes.UserShape]:
    """The users, by name."""
    found: dict[str, list[ThreadInfo]] = {}
    for info in memory.threads():
        found.setdefault(info.user, []).append(info)
    page, following = page_of(sorted(found.items()), lambda item: (item[0],), cursor, limit)
    return shapes.Page(items=[user_shape(name, infos) for name, infos in page], next=following)


@api.delete("/users")
def delete_user(memory: MemoryOf, user: UserName) -> shapes.Deleted:
    """Delete a user: lines, everything derived from them, and their bytes."""
    return shapes.Deleted(deleted=memory.delete(user))


@api.get("/threads")
def threads(
    memory: MemoryOf, user: UserName = DEFAULT_USER, limit: Limit = 50, cursor: Cursor = None
) -> shapes.Page[shapes.ThreadShape]:
    """A user's threads and their branches, the one that was written to last first."""
    infos = sorted(memory.threads(user), key=by_age)
    page, following = page_of(infos, by_age, cursor, limit)
    return shapes.Page(items=[thread_shape(memory, info) for info in page], next=following)


@api.delete("/threads")
def delete_thread(memory: MemoryOf, thread: ThreadName, user: UserName = DEFAULT_USER) -> shapes.Deleted:
    """Delete a thread with its branches."""
    return shapes.Deleted(deleted=memory.delete(user, thread))


@api.get("/messages")
def messages(
    thread: ThreadOf,
    before: shapes.Position | None = None,
    after: shapes.Position | None = None,
    around: shapes.Position | None = None,
    limit: Limit = 50,
) -> shapes.Lines:
    """Lines of a thread in order: before, after or around a position, else the newest."""
    store, key = thread.memory.store, thread.key
    newest = end(store, key)
    if around is not None:
        found = lines_before(store, key, around, limit // 2)
        found += lines_from(store, key, around, limit - len(found))
    elif after is not None:
        found = lines_from(store, key, after + 1, limit)
    else:
        found = lines_before(store, key, newest + 1 if before is None else min(before, newest + 1), limit)
    oldest = lines_from(store, key, 0, 1)
    family = store.threads(key.user, oldest[0].family) if oldest else []
    infos = [info for info in family if info.thread == key.thread]
    return shapes.Lines(
        items=[line_shape(line) for line in found],
        first=oldest[0].position if oldest else None,
        last=newest if oldest else None,
        total=infos[0].lines if infos else 0,
    )


@api.post("/messages")
def append(
    thread: ThreadOf,
    given: shapes.MessagesGiven,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> shapes.Stored:
    """Store messages at the end of a thread; one whose id is stored already is not stored again.

    With an Idempotency-Key, messages without an id get one made of it.
    """
    plain = shapes.plain(given)
    if idempotency_key is not None:
        plain = [{**one, "id": one.get("id") or f"{idempotency_key}/{place}"} for place, one in enumerate(plain)]
    return _stored(thread.append(plain))


@api.put("/messages")
def sync(thread: ThreadOf, given: shapes.MessagesGiven) -> shapes.Stored:
    """Store what is new in a history that is resent whole; where it differs from the stored one, it branches."""
    return _stored(thread.sync(shapes.plain(given)))


@api.post("/branches")
def branch(thread: ThreadOf, position: shapes.Position, given: shapes.BranchGiven) -> shapes.Stored:
    """Let a thread go on from a position as a branch, with another message there or none; the old lines stay stored.

    As sending the history anew does, without sending it.
    """
    with thread.memory.store.exclusive():
        thread.memory.store.fork(thread.key, position)
        sources = thread.append(given.message.plain(), embed=False) if given.message else []
    return _stored(sources)


@api.delete("/messages")
def delete_line(thread: ThreadOf, position: shapes.Position) -> shapes.Deleted:
    """Delete one line, everything derived from it, and its bytes; the others keep their positions."""
    return shapes.Deleted(deleted=thread.delete(position))


@api.post("/context")
async def context(
    request: Request, thread: ThreadOf, settings: SettingsOf, asked: shapes.ContextAsked
) -> shapes.ContextShape:
    """The context for a prompt, and the reason for every line; without a prompt, for what is stored."""

    def made() -> shapes.ContextShape:
        found = thread.context(
            _prompt(asked.prompt),
            max_tokens=asked.max_tokens or settings.max_tokens,
            tools=asked.tools,
            model=checked_model(asked.model),
            now=asked.now,
            preset=asked.preset,
            scope=asked.scope,
        )
        return context_shape(found)

    state = request.app.state
    shaped: shapes.ContextShape = await state.threads.context(made, state.tenants.asks_others(asked.preset))
    return shaped


@api.post("/reply", response_model=shapes.TurnShape, responses={200: {"content": {"text/event-stream": {}}}})
async def reply(
    request: Request, thread: ThreadOf, settings: SettingsOf, asked: shapes.ReplyAsked
) -> shapes.TurnShape | Response:
    """The language model's reply, stored with its prompt; with ``stream`` as events: context, delta, done or error."""
    if thread.memory.llm is None:
        raise RefusedError(501, "this server has no language model: start it with --llm openai:MODEL")
    ask: Callable[..., Any] = partial(
        thread.reply,
        _prompt(asked.prompt),
        max_tokens=asked.max_tokens or settings.max_tokens,
        tools=asked.tools or None,
        now=asked.now,
        scope=asked.scope,
    )
    waiting = request.app.state.threads.waiting  # a model that is slow must not stop what needs none
    if asked.stream:
        return stream_reply(partial(ask, stream=True), waiting)
    return turn_shape(await to_thread.run_sync(ask, limiter=waiting))


@api.get("/recall")
def recall(
    memory: MemoryOf,
    q: Annotated[str, Query(min_length=1, max_length=10_000, description="A text that stands alone.")],
    user: UserName = DEFAULT_USER,
    thread: Annotated[shapes.Name | None, Query(description="Needed for the scope `thread`.")] = None,
    k: Annotated[int, Query(ge=1, le=MAX_ITEMS)] = 10,
    scope: Literal["thread", "user", "all"] = "user",
) -> shapes.Page[shapes.HitShape]:
    """The lines that match a query best."""
    if scope == "thread" and thread is None:
        raise MessageError("name the thread to recall from, or take the scope user")
    hits = memory.thread(thread or "recall", user=user).recall(q, k=k, scope=scope)
    return shapes.Page(items=[hit_shape(hit) for hit in hits])


@api.get("/summaries")
def summaries(thread: ThreadOf) -> shapes.Page[shapes.SummaryShape]:
    """What there is of a thread in fewer words."""
    return shapes.Page(items=[summary_shape(one) for one in thread.memory.store.summaries(thread.key)])


@api.get("/pins")
def pins(thread: ThreadOf) -> shapes.Page[shapes.LineShape]:
    """The lines that are in every context of a thread."""
    return shapes.Page(items=[line_shape(line) for line in thread.memory.store.pinned(thread.key)])


@api.put("/pins")
def pin(thread: ThreadOf, position: shapes.Position) -> shapes.LineShape:
    """Keep a line in every context from now on."""
    return line_shape(thread.pin(position))


@api.delete("/pins")
def unpin(thread: ThreadOf, position: shapes.Position) -> shapes.LineShape:
    """Let go of a pinned line."""
    return line_shape(thread.unpin(position))


@api.get("/export", response_class=StreamingResponse, responses={200: {"content": {"application/x-ndjson": {}}}})
def export(
    memory: MemoryOf, user: UserName = DEFAULT_USER, thread: Annotated[shapes.Name | None, Query()] = None
) -> StreamingResponse:
    """A user's lines, or one thread's, one a line of JSON; `backscroll import` takes them."""
    roots = [info.thread for info in memory.threads(user) if info.parent is None]
    keys = [ThreadKey(user, name) for name in (roots if thread is None else [thread])]
    return StreamingResponse(exported(memory.store, keys), media_type="application/x-ndjson")


@api.get("/turns")
def turns(
    thread: ThreadOf, limit: Limit = MAX_ITEMS, before: shapes.Position | None = None
) -> shapes.Page[shapes.SentShape]:
    """What each reply was sent, beside the whole history at that place; oldest first, the newest `limit` lines."""
    store, key = thread.memory.store, thread.key
    newest = end(store, key) + 1
    found = lines_before(store, key, newest if before is None else min(before, newest), limit)
    following = str(found[0].position) if found and lines_before(store, key, found[0].position, 1) else None
    return shapes.Page(items=[sent_shape(line) for line in found if line.message.role == "assistant"], next=following)


def _stored(sources: list[Source]) -> shapes.Stored:
    return shapes.Stored(sources=source_shapes(sources))


def _prompt(given: str | shapes.MessageGiven | None) -> str | dict[str, Any] | None:
    return given.plain() if isinstance(given, shapes.MessageGiven) else given
