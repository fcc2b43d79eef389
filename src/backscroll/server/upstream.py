"""The server behind the proxy: where it is, what it is sent beside the body, and what of its answer goes back."""

import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx

from backscroll.endpoint import checked_key
from backscroll.errors import LLMError
from backscroll.server.problems import RefusedError
from backscroll.server.settings import ServerSettings, base_url_of

_CONNECT_SECONDS = 10.0
# Of one client at once: at each request it looks through its connections, by the square of the idle ones.
_MAX_ANSWERS = 16
# Between two machines each, or ours: not for the other side.
_NOT_SENT = frozenset(
    "host content-length content-type accept-encoding connection keep-alive proxy-authenticate proxy-authorization te "
    "trailer transfer-encoding upgrade expect authorization cookie origin referer forwarded".split()
)
_NOT_SENT_STARTS = ("x-backscroll-", "x-forwarded-", "sec-")
_NOT_RETURNED = frozenset(
    "content-length content-encoding connection keep-alive proxy-authenticate trailer transfer-encoding upgrade date "
    "server set-cookie alt-svc strict-transport-security content-security-policy clear-site-data refresh".split()
)
_NOT_RETURNED_STARTS = ("x-backscroll-", "access-control-")
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Client:
    """One HTTP client, and how many answers of its are still being read."""

    http: httpx.AsyncClient
    answers: int = 0


class _Answer(httpx.AsyncByteStream):
    """An answer's bytes, whose end its client is told."""

    def __init__(self, stream: httpx.AsyncByteStream, client: _Client) -> None:
        self._stream = stream
        self._client = client
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            self._client.answers -= 1
        await self._stream.aclose()


class Upstream:
    """An OpenAI-compatible server. Opened with the application, closed with it."""

    def __init__(self, settings: ServerSettings) -> None:
        """Take its address and its key. Raises: LLMError for an address or a key that is none."""
        self.base_url = base_url_of(settings)
        variable = settings.upstream_key_variable
        key = os.environ.get(variable, "") if variable else ""
        self._key = checked_key(key, LLMError, f"{variable} has characters that no key has")
        self._passes_keys = not settings.keys
        self._timeout = httpx.Timeout(settings.timeout_seconds, connect=min(_CONNECT_SECONDS, settings.timeout_seconds))
        self._tls = httpx.create_ssl_context()
        self._clients = [self._opened()]

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Ask, and return when the answer's headers are there; its bytes are still to come.

        Raises: RefusedError with 502 or 504 where there is no answer.
        """
        return await self._send("POST", path, body, headers)

    async def get(self, path: str, headers: Mapping[str, str]) -> httpx.Response:
        """As `post`, without a body."""
        return await self._send("GET", path, None, headers)

    def check(self) -> None:
        """Refuse where there is no upstream. Raises: RefusedError."""
        if not self.base_url:
            raise RefusedError(
                501, "the proxy has no server behind it: start with --upstream URL or --llm openai:MODEL"
            )

    async def close(self) -> None:
        """Close the connections."""
        for client in self._clients:
            await client.http.aclose()

    async def _send(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> httpx.Response:
        self.check()
        client = self._free()
        request = client.http.build_request(
            method, f"{self.base_url}{path}", content=body, headers=self._headers(headers, has_body=body is not None)
        )
        client.answers += 1
        try:
            answer = await client.http.send(request, stream=True)
        except BaseException as error:
            client.answers -= 1
            if isinstance(error, httpx.HTTPError):
                raise refused(error, self.base_url) from error
            raise
        assert isinstance(answer.stream, httpx.AsyncByteStream)
        answer.stream = _Answer(answer.stream, client)
        return answer

    def _free(self) -> _Client:
        """The first client with room, so that few chats keep few connections; a new one where there is none."""
        free = next((client for client in self._clients if client.answers < _MAX_ANSWERS), None)
        if free is None:
            self._clients.append(free := self._opened())
        return free

    def _opened(self) -> _Client:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=_MAX_ANSWERS)
        none = CookieJar(DefaultCookiePolicy(allowed_domains=[]))  # one user's are not sent for another
        return _Client(httpx.AsyncClient(timeout=self._timeout, limits=limits, verify=self._tls, cookies=none))

    def _headers(self, given: Mapping[str, str], has_body: bool) -> dict[bytes, bytes]:
        """What is sent beside a body; a client's bytes go as they came."""
        sent = {
            name: value
            for name, value in given.items()
            if name not in _NOT_SENT and not name.startswith(_NOT_SENT_STARTS)
        }
        # A client's key is the upstream's where we ask for none and have none; else it is ours, and stays here.
        key = f"Bearer {self._key}" if self._key else given.get("authorization", "") if self._passes_keys else ""
        told = {
            **sent,
            "accept-encoding": "identity",
            **({"content-type": "application/json"} if has_body else {}),
            **({"authorization": key} if key else {}),
        }
        return {name.encode("latin-1"): value.encode("latin-1") for name, value in told.items()}


def returned_headers(given: httpx.Headers) -> Iterable[tuple[str, str]]:
    """The headers of an answer that go back to the client."""
    told = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in given.raw]
    return [
        (name, value) for name, value in told if name not in _NOT_RETURNED and not name.startswith(_NOT_RETURNED_STARTS)
    ]


def refused(error: httpx.HTTPError, base_url: str) -> RefusedError:
    """What is said where the upstream gave no answer; what it was asked stays out of it."""
    kind = type(error).__name__
    _log.warning("the upstream gave no answer: %s", kind)
    if isinstance(error, httpx.TimeoutException):
        return RefusedError(504, f"the server behind the proxy at {base_url} did not answer in time")
    return RefusedError(502, f"the server behind the proxy at {base_url} cannot be reached, or hung up ({kind})")
