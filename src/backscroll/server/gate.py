"""Who may ask, and how much: the one way into the application.

A path is closed unless it is named as open. Knows nothing about what is asked.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Collection
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backscroll.errors import MessageError
from backscroll.server.keys import DEFAULT_TENANT, Key, Keyring
from backscroll.server.problems import RefusedError, problem
from backscroll.server.settings import LOOPBACK, ServerSettings

TENANT = "backscroll.tenant"  # in the scope of a request; None where it is not known whose it is
STATUS_PATH = "/api/status"  # says without a key that one is needed
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_BUCKETS = 10_000
_MAX_OPEN = 64  # requests at once that bring a body without a key: a channel's webhook knows its caller by the body
_MAX_BEGUN = 8  # requests in one step of the event loop: 84 took it 30 ms
_BODY_SECONDS = 60.0  # for a whole body: by its parts, one byte a while would hold a place for ever


class Gate:
    """Lets a request through with its tenant, or answers it.

    Args:
        app: what lies behind.
        settings: the limits.
        open_paths: what needs no key: the page's files, health.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, open_paths: Collection[str]) -> None:
        self._app = app
        self._settings = settings
        self._open = frozenset(open_paths)
        self._keyring = Keyring(settings.keys) if settings.keys else None
        self._rate = Rate(settings.requests_per_minute)
        self._pace = Pace(_MAX_BEGUN)
        self._hosts = LOOPBACK | {settings.host}
        self._inside = {True: 0, False: 0}  # with a key, or where none is asked for; and without

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        await self._pace.place()
        headers = Headers(scope=scope)
        try:
            scope[TENANT] = self._tenant(scope, headers)
            self._check_size(headers)
            self._check_room(scope)
        except RefusedError as refused:
            await problem(scope["path"], refused.status, str(refused), refused.code, **dict(refused.headers or {}))(
                scope, receive, send
            )
            return
        is_known = scope[TENANT] is not None
        self._inside[is_known] += 1
        try:
            await self._app(scope, self._limited(receive), send)
        finally:
            self._inside[is_known] -= 1

    def _tenant(self, scope: Scope, headers: Headers) -> str | None:
        """Whose request it is. Raises: RefusedError."""
        client = scope.get("client")
        address = str(client[0] if client else "")
        _split(f"//{headers.get('host', '')}")  # what asks for its own address later stumbles over one that is none
        if scope["path"] in self._open:
            if scope["method"] not in _SAFE:
                self._check_rate(f"{scope['path']} {address}")
            return None
        self._check_origin(scope, headers)
        key = self._key(headers)
        self._check_rate(key.id if key else address)
        if self._keyring is None:
            return DEFAULT_TENANT
        if key is None and scope["path"] != STATUS_PATH:
            raise RefusedError(
                401,
                "send a key of this server's: Authorization: Bearer KEY",
                "invalid_api_key",
                {"WWW-Authenticate": "Bearer"},
            )
        return key.tenant if key else None

    def _check_rate(self, who: str) -> None:
        wait = self._rate.wait_seconds(who)
        if wait:
            most = self._settings.requests_per_minute
            raise RefusedError(429, f"more than {most} requests a minute", headers=_later(wait))

    def _check_room(self, scope: Scope) -> None:
        """Refuse more at once than there may be; who has no key takes no place of those who have one."""
        is_known = scope[TENANT] is not None
        most = self._settings.max_requests if is_known else _MAX_OPEN
        if (is_known or scope["method"] not in _SAFE) and self._inside[is_known] >= most:
            raise RefusedError(
                503, f"{self._inside[is_known]} requests are being answered: try again", headers=_later(1)
            )

    def _key(self, headers: Headers) -> Key | None:
        kind, _, secret = headers.get("authorization", "").partition(" ")
        if self._keyring is None or kind.lower() != "bearer" or not secret:
            return None
        try:
            return self._keyring.find(secret.strip())
        except MessageError as error:
            raise RefusedError(503, "the keys cannot be read") from error

    def _check_origin(self, scope: Scope, headers: Headers) -> None:
        """Refuse what a page of another site makes a browser ask here, by its name or by ours."""
        host = headers.get("host", "")
        if self._keyring is None and (_split(f"//{host}").hostname or "") not in self._hosts:
            raise RefusedError(403, "without keys this server is asked by the name localhost or 127.0.0.1 alone")
        origin = headers.get("origin")
        if origin is not None and scope["method"] not in _SAFE and _split(origin).netloc != host:
            raise RefusedError(403, "a page of another site may not write here")

    def _check_size(self, headers: Headers) -> None:
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._settings.max_body_bytes:
            raise self._too_large()

    def _too_large(self) -> RefusedError:
        return RefusedError(413, f"a request has at most {self._settings.max_body_bytes:,} bytes")

    def _limited(self, receive: Receive) -> Receive:
        """The request's body, as long as it may be, and as slow."""
        received = 0
        is_whole = False
        until: float | None = None  # by the monotonic clock; from when the body is asked for

        async def receive_limited() -> Message:
            nonlocal received, is_whole, until
            if is_whole:  # what comes now is that the client left
                return await receive()
            until = until or time.monotonic() + _BODY_SECONDS
            try:
                message = await asyncio.wait_for(receive(), until - time.monotonic())
            except TimeoutError as error:
                raise RefusedError(408, "the request's body did not come") from error
            received += len(message.get("body", b""))
            is_whole = message["type"] != "http.request" or not message.get("more_body", False)
            if received > self._settings.max_body_bytes:
                raise self._too_large()
            return message

        return receive_limited


class Rate:
    """How often somebody asks: a bucket of requests that fills again evenly within a minute."""

    def __init__(self, per_minute: int) -> None:
        """Take how many there may be; 0 for any number."""
        self._per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # who -> left, at what time

    def wait_seconds(self, who: str) -> float:
        """Take one request; 0, or how long to wait for the next one."""
        if not self._per_minute:
            return 0.0
        now = time.monotonic()
        left, at = self._buckets.pop(who, (float(self._per_minute), now))
        left = min(float(self._per_minute), left + (now - at) * self._per_minute / 60)
        self._buckets[who] = (left - 1 if left >= 1 else left, now)
        if len(self._buckets) > _MAX_BUCKETS:
            self._buckets.popitem(last=False)  # who has not asked for the longest time has a full one anyway
        return 0.0 if left >= 1 else (1 - left) * 60 / self._per_minute


class Pace:
    """Lets a few begin in each step of the event loop, as they come: between them goes on what else there is."""

    def __init__(self, most: int) -> None:
        """Take how many in each step."""
        self._most = most
        self._left = most
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def place(self) -> None:
        """Wait for a place."""
        loop = asyncio.get_running_loop()
        if self._left == self._most:
            loop.call_soon(self._go_on, loop)
        if self._left:
            self._left -= 1
            return
        self._waiting.append(mine := loop.create_future())
        await mine

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """The next step: who waits begins, and who comes then."""
        self._left = self._most
        while self._left and self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():  # it may have been cancelled
                waiting.set_result(None)
                self._left -= 1
        if self._left < self._most:
            loop.call_soon(self._go_on, loop)


def _split(address: str) -> SplitResult:
    """The parts of an address that a client names. Raises: RefusedError where it is none, as ``http://[``."""
    try:
        return urlsplit(address)
    except ValueError as error:
        raise RefusedError(403, "Host and Origin are addresses") from error


def _later(seconds: float) -> dict[str, str]:
    return {"Retry-After": str(max(1, round(seconds)))}
