"""The server's application: its routes, what every answer carries, and what is opened and closed with it."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from anyio import to_thread
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backscroll import __version__
from backscroll.background import Background
from backscroll.errors import BackscrollError
from backscroll.memory import Memory
from backscroll.server.channels import Switchboard, answering, webhooks
from backscroll.server.gate import Gate
from backscroll.server.health import OPEN, health
from backscroll.server.interpreter import responsive
from backscroll.server.observing import Observed, Observer
from backscroll.server.problems import RefusedError, answer_error, answer_refused, problem
from backscroll.server.proxy import proxy
from backscroll.server.rest import api
from backscroll.server.settings import ServerSettings, read_settings
from backscroll.server.tenants import Tenants
from backscroll.server.threads import Threads
from backscroll.server.turn import Order
from backscroll.server.upstream import Upstream

PAGE = Path(__file__).parent / "page"
_CLOSING_SECONDS = 5.0  # for what is being embedded: what is not waits for the next context


def create_app(memory: Memory | None = None, settings: ServerSettings | None = None) -> FastAPI:
    """The application.

    Args:
        memory: of the default tenant; its owner closes it. None opens the settings' own.
        settings: None takes them from the environment.
    """
    told = settings or read_settings({})
    app = FastAPI(
        title="Backscroll",
        version=__version__,
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        telemetry={"tracing": False, "metrics": False, "logs": False},  # its spans tell query strings; ours do not
    )
    app.state.settings = told
    app.state.tenants = Tenants(told, memory)
    app.state.observer = Observer()
    app.state.background = Background()
    app.state.order = Order()
    app.state.threads = Threads(told.threads, told.workers)
    app.add_exception_handler(BackscrollError, answer_error)
    app.add_exception_handler(RefusedError, answer_refused)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)
    app.add_exception_handler(Exception, _answer_bug)
    app.add_middleware(Gate, settings=told, open_paths=_open_paths(told))
    app.add_middleware(Observed, observer=app.state.observer)
    app.add_middleware(_Headers)
    for router in (api, proxy, health):
        app.include_router(router)
    app.router.routes.extend(webhooks(told.channel_names))
    app.mount("/", _Page(directory=PAGE, html=True), name="page")
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    to_thread.current_default_thread_limiter().total_tokens = app.state.settings.threads
    await to_thread.run_sync(app.state.tenants.memory)
    await to_thread.run_sync(app.openapi)  # with it the routes' models: the loop would stand still for them, .1 s
    app.state.upstream = Upstream(app.state.settings)
    app.state.background.ask("warm", app.state.tenants.warm)
    with responsive():
        async with _channels(app) as app.state.switchboards:
            yield
    await app.state.upstream.close()
    app.state.threads.quiet.set()  # what is still to be embedded waits for nobody now
    await to_thread.run_sync(app.state.background.close, _CLOSING_SECONDS)
    await to_thread.run_sync(app.state.tenants.close)


def _open_paths(told: ServerSettings) -> set[str]:
    """What needs no key: health, the page, and the channels, which know their callers by a signature."""
    return {*OPEN, "/", *(f"/{file.name}" for file in PAGE.iterdir()), *(f"/{name}" for name in told.channel_names)}


def _channels(app: FastAPI) -> AbstractAsyncContextManager[dict[str, Switchboard]]:
    told = app.state.settings
    return answering(app.state.tenants.memory(), told.channel_names, told.max_tokens, told.shutdown_seconds)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:5])
    return problem(request.url.path, 422, said)


async def _answer_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(request.url.path, error.status_code, str(error.detail), **dict(error.headers or {}))


async def _answer_nobody(request: Request, error: Exception) -> Response:
    """The client left before its request was whole."""
    return problem(request.url.path, 400, "the request broke off")


async def _answer_bug(request: Request, error: Exception) -> Response:
    """A bug; its traceback is logged."""
    return problem(request.url.path, 500, "the server has a bug: its log has the traceback")


class _Page(StaticFiles):
    """The page's files; a browser asks whether each is still the same, so that modules of two versions never meet."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


class _Headers:
    """What every answer says to a browser: nothing from elsewhere, no frames, no guessing of types."""

    HEADERS = (
        (
            b"content-security-policy",
            (
                b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
                b"font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
                b"require-trusted-types-for 'script'"
            ),
        ),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    )

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self.HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)
