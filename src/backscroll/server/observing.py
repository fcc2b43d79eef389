"""What the server tells of itself: numbers for Prometheus, spans for OpenTelemetry, a line of log for each request.

None of them says what was said: no message, no key, no header, no user, no query string.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backscroll.tracing import trace
from backscroll.types import Reply

_SHARED = "PROMETHEUS_MULTIPROC_DIR"  # where workers put their numbers together
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120)
_OTHER = "other"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_log = logging.getLogger("backscroll.server.requests")


class Observer:
    """The numbers and spans of one application."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.requests = Histogram(
            "backscroll_request_seconds",
            "From a request's first byte to its answer's last",
            ("method", "route", "status"),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.inside = Gauge(
            "backscroll_requests_in_progress",
            "Requests being answered",
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self.stages = Histogram(
            "backscroll_stage_seconds",
            "The memory's stages, and of a proxied turn: store, context, upstream (to its answer's first byte), keep",
            ("stage",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self.tokens = Counter(
            "backscroll_tokens",
            "Tokens: sent to the upstream, and of the whole histories instead",
            ("of",),
            registry=self._registry,
        )
        self.replies = Counter(
            "backscroll_replies", "What became of the upstream's replies", ("end",), registry=self._registry
        )
        self._tracer = _tracer()

    @contextmanager
    def stage(self, name: str, span_name: str = "", is_call: bool = False, **attributes: Any) -> Iterator["Stage"]:
        """Measure a part of a turn; a call is one of another server."""
        began = time.perf_counter()
        try:
            with _span(self._tracer, span_name or name, is_call, attributes) as stage:
                yield stage
        finally:
            self.stages.labels(name).observe(time.perf_counter() - began)

    def text(self) -> bytes:
        """The numbers as Prometheus reads them, of all workers."""
        if not os.environ.get(_SHARED):
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


class Stage:
    """A span that is open, or nothing where there is no OpenTelemetry."""

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def note(self, attributes: Mapping[str, Any]) -> None:
        """Add what is known now; None is left out."""
        if self._span is not None:
            self._span.set_attributes({name: value for name, value in attributes.items() if value is not None})


def asked_attributes(model: object, base_url: str) -> dict[str, Any]:
    """A request to a language model by the GenAI conventions, without what it says."""
    address = urlsplit(base_url)
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": model if isinstance(model, str) else None,
        "server.address": address.hostname,
        "server.port": address.port or (443 if address.scheme == "https" else 80),
    }


def answered_attributes(reply: Reply | None) -> dict[str, Any]:
    """Its reply, in the same way."""
    if reply is None:
        return {}
    return {
        "gen_ai.response.model": reply.model,
        "gen_ai.response.finish_reasons": [reply.finish_reason],
        "gen_ai.usage.input_tokens": reply.usage.prompt_tokens if reply.usage else None,
        "gen_ai.usage.output_tokens": reply.usage.completion_tokens if reply.usage else None,
    }


class Observed:
    """Measures and logs each request by its route, method and status."""

    def __init__(self, app: ASGIApp, observer: Observer) -> None:
        """Take what is measured."""
        self._app = app
        self._observer = observer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500

        async def send_noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._observer.inside.inc()
        try:
            with trace(self._observer.stage):
                await self._app(scope, receive, send_noted)
        finally:
            self._observer.inside.dec()
            seconds = time.perf_counter() - began
            route = getattr(scope.get("route"), "path", "") or _OTHER
            method = scope["method"] if scope["method"] in _METHODS else _OTHER  # a client may make up any number
            self._observer.requests.labels(method, route, str(status)).observe(seconds)
            _log.info("%s %s %d %.0f ms", method, route, status, seconds * 1000)


@contextmanager
def _span(tracer: Any, name: str, is_call: bool, attributes: Mapping[str, Any]) -> Iterator[Stage]:
    if tracer is None:
        yield Stage()
        return
    known = {key: value for key, value in attributes.items() if value is not None}
    kind = import_module("opentelemetry.trace").SpanKind["CLIENT" if is_call else "INTERNAL"]
    with tracer.start_as_current_span(name, kind=kind, attributes=known, record_exception=False) as span:
        yield Stage(span)


def _tracer() -> Any:
    """OpenTelemetry's, where its package is installed; it sends nothing unless it was set up to."""
    try:
        return import_module("opentelemetry.trace").get_tracer("backscroll.server")
    except ImportError:
        return None
