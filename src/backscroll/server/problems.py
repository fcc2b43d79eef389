"""What went wrong, as an answer: problem details at /api, OpenAI's form at /v1.

Which status an error of ours has is written here once.
"""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from backscroll.errors import (
    BackscrollError,
    BudgetError,
    EmbedderError,
    LLMError,
    LLMTimeoutError,
    LLMUnavailableError,
    MessageError,
    NotFoundError,
    StoreBusyError,
)

PROXY_PATH = "/v1"
_STATUSES: tuple[tuple[type[BackscrollError], int], ...] = (
    (BudgetError, 413),
    (MessageError, 422),
    (NotFoundError, 404),
    (StoreBusyError, 503),
    (LLMTimeoutError, 504),
    (LLMUnavailableError, 502),
    (LLMError, 502),
    (EmbedderError, 503),
)
_TITLES = {
    400: "Bad request",
    401: "A key is needed",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    408: "Too slow",
    413: "Too large",
    422: "Not what it should be",
    429: "Too many requests",
    500: "Internal error",
    501: "Not configured",
    502: "The language model gave no reply",
    503: "Not available now",
    504: "The language model did not answer in time",
}
_OPENAI_TYPES = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error"}
_OPENAI_TYPES |= {404: "not_found_error", 413: "invalid_request_error", 429: "rate_limit_error"}


class RefusedError(HTTPException):
    """A request that is not served; an HTTPException, since FastAPI makes a 400 of others that a body is read into.

    Attributes:
        status: the HTTP status.
        code: OpenAI's word for it, where it has one.
        headers: to send along.
    """

    def __init__(
        self, status: int, detail: str, code: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(status, detail, headers or {})
        self.status = status
        self.code = code

    def __str__(self) -> str:
        """What went wrong, without the status."""
        return self.detail


def status_of(error: BackscrollError) -> int:
    """The HTTP status of an error of ours; what nobody can help is 500."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def problem(path: str, status: int, detail: str, code: str | None = None, **headers: str) -> Response:
    """The answer that says what went wrong, in the form of the path that was asked."""
    body: dict[str, Any]
    if path.startswith(PROXY_PATH):
        kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        body = {"error": {"message": detail, "type": kind, "param": None, "code": code}}
        return JSONResponse(body, status, headers)
    return JSONResponse(problem_body(status, detail), status, headers, media_type="application/problem+json")


def problem_body(status: int, detail: str) -> dict[str, Any]:
    """Problem details, by RFC 9457."""
    return {"type": "about:blank", "title": _TITLES.get(status, "Error"), "status": status, "detail": detail}


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer to an error of ours."""
    assert isinstance(error, BackscrollError)
    code = "context_length_exceeded" if isinstance(error, BudgetError) else None
    status = status_of(error)
    if request.url.path.startswith(PROXY_PATH) and isinstance(error, (BudgetError, MessageError)):
        status = 400  # as OpenAI has it
    return problem(request.url.path, status, str(error), code)


async def answer_refused(request: Request, error: Exception) -> Response:
    """The answer to a request that is not served."""
    assert isinstance(error, RefusedError)
    return problem(request.url.path, error.status, str(error), error.code, **dict(error.headers or {}))
