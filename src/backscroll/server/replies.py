"""A reply as server-sent events: its text as it comes, then the context that it was made from and the stored turn."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

from anyio import CancelScope, CapacityLimiter, to_thread
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from backscroll.errors import BackscrollError
from backscroll.reply import ReplyStream
from backscroll.server.problems import problem_body, status_of
from backscroll.server.shaping import context_shape, turn_shape


def stream_reply(ask: Callable[[], ReplyStream], waiting: CapacityLimiter) -> StreamingResponse:
    """The reply as events ``context``, ``delta``, ``done``, or ``error``.

    Args:
        ask: begins the reply.
        waiting: the threads that may wait for a language model; others do the memory's work.
    """
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_events(ask, waiting), media_type="text/event-stream", headers=headers)


async def _events(ask: Callable[[], ReplyStream], waiting: CapacityLimiter) -> AsyncIterator[str]:
    try:
        stream = await to_thread.run_sync(ask, limiter=waiting)
        try:
            is_told = False
            while (piece := await to_thread.run_sync(partial(next, stream, None), limiter=waiting)) is not None:
                if stream.context is not None and not is_told:
                    is_told = True
                    yield _event("context", context_shape(stream.context))
                yield _event("delta", {"text": piece})
        finally:
            with CancelScope(shield=True):  # whoever leaves has what came so far stored
                await to_thread.run_sync(stream.close, limiter=waiting)
    except BackscrollError as error:
        yield _event("error", problem_body(status_of(error), str(error)))
        return
    if stream.turn is not None:
        yield _event("done", turn_shape(stream.turn))


def _event(name: str, data: Mapping[str, Any] | BaseModel) -> str:
    text = data.model_dump_json() if isinstance(data, BaseModel) else json.dumps(data, ensure_ascii=False)
    return f"event: {name}\ndata: {text}\n\n"
