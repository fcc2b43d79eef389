"""Any server that speaks OpenAI's chat completions, through the official client: the extra ``backscroll[openai]``.

OpenAI, Azure, Ollama, vLLM, llama.cpp, gateways. The messages leave this machine where the server is another one;
that happens only where such an LLM was configured by name. The key is read from the environment alone: it is not
stored, not logged, and taken out of every error's text.
"""

import importlib
import json
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import httpx

from backscroll.answer import is_answer
from backscroll.endpoint import checked_address, checked_key
from backscroll.errors import ContextTooLongError, LLMError, LLMTimeoutError, LLMUnavailableError
from backscroll.llm.deltas import Deltas, as_chunk, whole
from backscroll.llm.wordings import limit_in, says_too_long
from backscroll.protocols import Pieces
from backscroll.retry import DEFAULT_RETRY, TRANSIENT, Retry
from backscroll.types import Reply, ReplyOptions

EXTRA = "openai"
KEY_VARIABLE = "OPENAI_API_KEY"
ADDRESS_VARIABLE = "OPENAI_BASE_URL"
MAX_DETAIL = 300  # characters of a server's own words in an error
_TOO_LARGE = 413
_SPENT = re.compile(r"insufficient_quota|insufficient balance|exceeded your current quota", re.IGNORECASE)
_NOT_JSON = (json.JSONDecodeError, UnicodeDecodeError, RecursionError)
_AS_IT_IS = ReplyOptions()
R = TypeVar("R")


class OpenAILLM:
    """Answers by an OpenAI-compatible server. Safe to share between threads.

    Args:
        model: as the server calls it; tokens are counted by it.
        base_url: up to and without ``/chat/completions``, as ``http://localhost:11434/v1``; None takes the
            environment variable OPENAI_BASE_URL, else OpenAI.
        key_variable: the environment variable that holds the key; "" sends none.
        timeout_seconds: for the whole answer, and for each piece where it streams.
        retry: how often to ask again after 429, 5xx and lost connections; what timed out is not asked again.
        fields: sent along with every request, as ``{"temperature": 0.2}``; a value of None takes a field out.

    Raises: LLMError when the extra or the key is missing, or base_url is no http address or carries a password.
    """

    is_concurrent = True
    model: str | None

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        *,
        key_variable: str = KEY_VARIABLE,
        timeout_seconds: float = 120.0,
        retry: Retry = DEFAULT_RETRY,
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        self._package = _import_extra()
        self.model = model
        self._base_url = _checked_address(base_url or os.environ.get(ADDRESS_VARIABLE))
        self._key_variable = key_variable
        self._key = _key_in(key_variable)
        if not self._key and self._base_url is None:
            raise LLMError(f"there is no key for OpenAI: set {key_variable or KEY_VARIABLE}, or name a base_url")
        self._timeout_seconds = timeout_seconds
        self._retry = retry
        self._fields = dict(fields or {})
        self._failures = (self._package.OpenAIError, httpx.HTTPError, *_NOT_JSON)
        self._client: Any = None
        self._connecting = threading.Lock()

    def complete(self, messages: Sequence[Mapping[str, Any]], options: ReplyOptions = _AS_IT_IS) -> Reply:
        request = self._request(messages, options, {})
        return self._retried(lambda: whole(self._checked(self._create(request))))

    def stream(self, messages: Sequence[Mapping[str, Any]], options: ReplyOptions = _AS_IT_IS) -> Pieces:
        request = self._request(messages, options, {"stream": True, "stream_options": {"include_usage": True}})
        stream, first = self._retried(lambda: self._begun(request))
        deltas = Deltas()
        try:
            for chunk in chain(first, map(self._checked, stream)):
                piece = deltas.add(chunk)
                if piece:
                    yield piece
            rest, reply = deltas.rest(), deltas.reply()
        except self._failures as error:
            raise self._failure(error) from self._cause(error)
        finally:
            stream.close()
        if rest:
            yield rest
        if deltas.finish_reason is None:
            raise LLMUnavailableError(f"{self._who()} ended the stream before the reply's end")
        yield reply

    def close(self) -> None:
        """Close the connections; asking again opens new ones."""
        with self._connecting:
            if self._client is not None:
                self._client.close()
                self._client = None

    def _request(
        self, messages: Sequence[Mapping[str, Any]], options: ReplyOptions, streaming: Mapping[str, Any]
    ) -> dict[str, Any]:
        longest = "max_completion_tokens" if self._base_url is None else "max_tokens"  # others know only the old name
        asked = {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "tools": [dict(tool) for tool in options.tools] or None,
            "temperature": options.temperature,
            longest: options.reply_tokens,
            "timeout": options.timeout_seconds,
        }
        request = {**streaming, **self._fields, **{key: value for key, value in asked.items() if value is not None}}
        others = {key for key, value in self._fields.items() if value is None}
        others |= set() if streaming else {"stream", "stream_options"}
        return {key: value for key, value in request.items() if value is not None and key not in others}

    def _begun(self, request: Mapping[str, Any]) -> tuple[Any, list[Mapping[str, Any]]]:
        """The stream and its first chunk: until that came, nothing is lost by asking again."""
        stream = self._create(request)
        if "json" in stream.response.headers.get("content-type", ""):  # not streamed: an error, or all at once
            return stream, [as_chunk(self._protocol(json.loads(stream.response.read())))]
        first = next(stream, None)
        return stream, [] if first is None else [self._checked(first)]

    def _create(self, request: Mapping[str, Any]) -> Any:
        named = {key: value for key, value in request.items() if key in _NAMED}
        others = {key: value for key, value in request.items() if key not in _NAMED}
        return self._connected().chat.completions.create(**named, extra_body=others or None)

    def _checked(self, answer: Any) -> Mapping[str, Any]:
        """An answer or a chunk of the client's as a dict."""
        return self._protocol(
            answer.model_dump(exclude_none=True, warnings=False) if hasattr(answer, "model_dump") else answer
        )

    def _protocol(self, answer: object) -> Mapping[str, Any]:
        """What came, if it is of the protocol; an error that came as an answer raises."""
        if isinstance(answer, Mapping) and answer.get("error"):
            raise self._failed(str(answer["error"]), _code_in(answer["error"]))
        if not isinstance(answer, Mapping) or not is_answer(answer):
            told = self._without_key(repr(answer))[:MAX_DETAIL]
            raise LLMError(
                f"{self._who()} does not speak the protocol: check base_url, which often ends with /v1. It sent: {told}"
            )
        return answer

    def _retried(self, ask: Callable[[], R]) -> R:
        """Ask, and ask again where the failure may pass."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return ask()
            except self._failures as error:
                failure = self._failure(error)
                if attempt >= self._retry.attempts or not isinstance(failure, LLMUnavailableError):
                    raise failure from self._cause(error)
                response = getattr(error, "response", None)
                self._retry.wait(attempt, response.headers.get("retry-after") if response is not None else None)
            except LLMUnavailableError:
                if attempt >= self._retry.attempts:
                    raise
                self._retry.wait(attempt)

    def _failure(self, error: Exception) -> LLMError:
        """The error of ours that an error of the client's or of the connection's is."""
        if isinstance(error, (self._package.APITimeoutError, httpx.TimeoutException)):
            return LLMTimeoutError(
                f"{self._who()} did not answer in time: give it more timeout_seconds, or send it less"
            )
        if isinstance(error, _NOT_JSON):
            return LLMError(f"{self._who()} answered what is not JSON: {self._without_key(str(error))[:MAX_DETAIL]}")
        status = getattr(error, "status_code", None)
        if isinstance(error, (self._package.APIConnectionError, httpx.HTTPError)):
            why = self._without_key(str(error.__cause__ or error))
            return LLMUnavailableError(
                f"{self._who()} cannot be reached, or the connection broke ({why}): "
                "check the address and that the server runs"
            )
        body = getattr(error, "body", None)
        said = str(error) if body is None or str(body) in str(error) else f"{error} {body}"
        return self._failed(said, status or _code_in(body))

    def _failed(self, said: str, status: int | None) -> LLMError:
        """The error for what a server said, by its words first: statuses are not to be relied on."""
        told = self._without_key(said)[:MAX_DETAIL]
        if status == _TOO_LARGE or says_too_long(said):
            return ContextTooLongError(
                f"{self._who()} takes less than was sent: lower max_tokens. It said: {told}", status, limit_in(said)
            )
        kind = f"an error of status {status}" if status else "an error"
        if status in TRANSIENT and not _SPENT.search(said):
            return LLMUnavailableError(f"{self._who()} gave {kind}: try again later. It said: {told}", status)
        advice = {
            401: f"set {self._key_variable or KEY_VARIABLE} to a key that it takes",
            403: "the key may not use this model",
            404: "check base_url, which ends before /chat/completions, and the model's name",
            429: "the account has nothing left",
        }.get(status or 0, "check the model's name and what it takes")
        return LLMError(f"{self._who()} gave {kind}: {advice}. It said: {told}", status)

    def _connected(self) -> Any:
        with self._connecting:
            if self._client is None:
                self._client = self._package.OpenAI(
                    api_key=self._key or "none",
                    base_url=self._base_url,
                    timeout=self._timeout_seconds,
                    max_retries=0,  # ours are the same each time, and end with errors of ours
                )
            return self._client

    def _who(self) -> str:
        return f"{self.model!r} at {self._base_url or 'OpenAI'}"

    def _cause(self, error: Exception) -> Exception | None:
        """The error to keep as the cause; none where a server put the key into its words."""
        return None if self._key and self._key in f"{error} {error.__cause__}" else error

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if self._key else text


_NAMED = frozenset(  # what the client itself takes; other fields are sent in the body as they are
    "model messages tools temperature max_tokens max_completion_tokens timeout stream stream_options".split()
)


def open_openai(place: str) -> OpenAILLM:
    """Open the LLM by what follows ``openai:`` in its name: MODEL, or MODEL@BASE_URL."""
    parts = re.fullmatch(r"(?P<model>.+?)(@(?P<base_url>https?://.+))?", place)
    if parts is None:
        raise LLMError(f"openai:{place}: write openai:MODEL or openai:MODEL@BASE_URL")
    return OpenAILLM(parts["model"], parts["base_url"])


def _import_extra() -> Any:
    try:
        return importlib.import_module("openai")
    except ImportError as error:
        raise LLMError(f"the package openai is not installed: pip install 'backscroll[{EXTRA}]'") from error


def _key_in(variable: str) -> str:
    key = os.environ.get(variable, "") if variable else ""
    return checked_key(key, LLMError, f"{variable} has characters that no key has")


def _checked_address(base_url: str | None) -> str | None:
    if base_url is None:
        return None
    return checked_address(base_url, LLMError, "put it into the variable of the key")


def _code_in(body: object) -> int | None:
    """The status that an error's body names, where it came inside an answer of status 200."""
    code = body.get("code") if isinstance(body, Mapping) else None
    return int(code) if isinstance(code, (int, str)) and re.fullmatch(r"[45]\d\d", str(code)) else None
