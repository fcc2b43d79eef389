"""Requests' bodies from JSON, a long one in steps between which other threads run.

`json.loads` and pydantic hold Python's lock from the first byte of a body to its last, wherever they are called: of
60,000 messages the event loop would stand still for as long. Read and checked one by one, it does not.
"""

import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from anyio import to_thread
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

_LONG_BYTES = 200_000  # fewer are read in a millisecond or two
_decoder = json.JSONDecoder()


def read_json(raw: bytes) -> Any:
    """As `json.loads`, which it leaves the short bodies to, and those that are no object. Blocks.

    >>> read_json(b'{"a": 1}')
    {'a': 1}
    """
    if len(raw) < _LONG_BYTES:
        return json.loads(raw)
    text = raw.decode(json.detect_encoding(raw), "surrogatepass")
    try:
        return dict(_members(text))
    except (IndexError, ValueError):
        return json.loads(text)  # what is wrong, and where, or what needs no steps, it knows


class LongBodies(APIRoute):
    """A route whose long bodies are read in a thread."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own, handed a request that reads its body so."""
        answer = super().get_route_handler()

        async def answered(request: Request) -> Response:
            return await answer(_Request(request.scope, request.receive))

        return answered


class _Request(Request):
    async def json(self) -> Any:
        """The body; in the loop where it is short."""
        raw = await self.body()
        return read_json(raw) if len(raw) < _LONG_BYTES else await to_thread.run_sync(read_json, raw)


def _members(text: str) -> Iterator[tuple[str, Any]]:
    """The names and values of an object, the values of its lists read one by one.

    Raises: ValueError or IndexError for whatever is not the usual.
    """
    at = _behind(text, 0, "{")
    while True:
        if text[at] != '"':
            raise ValueError("a member's name is a text")
        name, at = _decoder.raw_decode(text, at)
        at = _behind(text, _blanks(text, at), ":")
        value, at = _elements(text, at + 1) if text[at] == "[" else _decoder.raw_decode(text, at)
        yield name, value
        at = _blanks(text, at)
        if text[at] == "}" and _blanks(text, at + 1) == len(text):
            return
        at = _behind(text, at, ",")


def _elements(text: str, at: int) -> tuple[list[Any], int]:
    """The values of a list from behind its bracket on, and the place behind its end."""
    found: list[Any] = []
    at = _blanks(text, at)
    while text[at] != "]" or found:
        value, at = _decoder.raw_decode(text, at)
        found.append(value)
        at = _blanks(text, at)
        if text[at] == "]":
            break
        at = _behind(text, at, ",")
    return found, at + 1


def _behind(text: str, at: int, sign: str) -> int:
    """The place of what follows a sign and blanks."""
    if text[at := _blanks(text, at)] != sign:
        raise ValueError(f"no {sign} at {at}")
    return _blanks(text, at + 1)


def _blanks(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\n", "\r", "\t"):
        at += 1
    return at
