"""Whether the server lives, whether it can answer, and its numbers."""

from anyio import fail_after, to_thread
from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from backscroll.errors import BackscrollError

OPEN = ("/healthz", "/readyz")
_READY_SECONDS = 5.0
health = APIRouter(include_in_schema=False)


@health.get("/healthz")
async def healthz() -> Response:
    """The process answers."""
    return PlainTextResponse("ok\n")


@health.get("/readyz")
async def readyz(request: Request) -> Response:
    """The default tenant's store can be read."""
    try:
        with fail_after(_READY_SECONDS):
            await to_thread.run_sync(_read, request, abandon_on_cancel=True)
    except (BackscrollError, TimeoutError):
        return PlainTextResponse("the store does not answer\n", 503)
    return PlainTextResponse("ready\n")


@health.get("/metrics")
async def metrics(request: Request) -> Response:
    """The numbers, as Prometheus reads them."""
    text = await to_thread.run_sync(request.app.state.observer.text)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


def _read(request: Request) -> None:
    request.app.state.tenants.memory().store.setting("embedder")
